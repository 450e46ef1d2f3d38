#include "bench/attention_arguments.h"

#include "bench/call.h"

namespace bench {
namespace {

size_t words_of(quire_type type, int64_t count) { return size_t(quire_bytes_of(type, count) + 3) / 4; }

}  // namespace

quire_attention_desc attention_desc(const Workload& w) {
    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = int32_t(w.heads);
    desc.num_kv_heads = int32_t(w.kv_heads);
    desc.head_dim = int32_t(w.head_dim);
    desc.value_head_dim = int32_t(w.value_dim);
    desc.type = w.type;
    desc.key_format = desc.value_format = w.cache;
    desc.is_causal = 1;
    desc.is_alibi = w.mask == Mask::alibi;
    desc.has_window = w.window > 0;
    desc.window_left = int32_t(w.window) - 1;
    desc.window_right = -1;
    desc.page_size = int32_t(w.page_size);
    desc.precision = w.precision;
    return desc;
}

AttentionArguments::AttentionArguments(const Workload& w)
    : w_(w),
      cache_(cache_of(w)),
      query_data_(random_numbers(w.type, w.new_tokens() * w.heads * w.head_dim, 3)),
      output_data_(words_of(w.type, w.new_tokens() * w.heads * w.dim_of_values())) {
    for (int64_t b = 0; b < w.batch; ++b) {
        const Workload::Sequence sequence = w.sequence(b);
        seqstarts_.push_back(seqstarts_.back() + sequence.queries);
        kvstarts_.push_back(kvstarts_.back() + sequence.keys);
    }
    if (w.has_mask()) mask_data_ = random_numbers(w.mask_type, mask_rows() * kvstarts_.back(), 5);
}

const quire_attention_args* AttentionArguments::of(int64_t i) {
    const int64_t layer = i % cache_.layers();
    const int64_t shape[] = {seqstarts_.back(), w_.heads, w_.head_dim},
                  output_shape[] = {seqstarts_.back(), w_.heads, w_.dim_of_values()},
                  mask_shape[] = {mask_heads(), seqstarts_.back(), kvstarts_.back()},
                  starts_shape[] = {int64_t(seqstarts_.size())};
    query_ = quire_tensor_of(query_data_.data(), w_.type, 3, shape);
    output_ = quire_tensor_of(output_data_.data(), w_.type, 3, output_shape);
    mask_ = quire_tensor_of(mask_data_.data(), w_.mask_type, 3, mask_shape);
    seqstarts_view_ = quire_tensor_of(seqstarts_.data(), QUIRE_INT64, 1, starts_shape);
    kvstarts_view_ = quire_tensor_of(kvstarts_.data(), QUIRE_INT64, 1, starts_shape);
    key_ = cache_.key(layer), key_scale_ = cache_.key_scale(layer);
    value_ = cache_.value(layer), value_scale_ = cache_.value_scale(layer);
    pages_ = cache_.page_table();
    args_ = {};
    args_.struct_size = sizeof args_;
    args_.query = &query_, args_.output = &output_;
    args_.key = &key_, args_.value = &value_;
    args_.key_scale = cache_.is_quantised() ? &key_scale_ : nullptr;
    args_.value_scale = cache_.is_quantised() ? &value_scale_ : nullptr;
    args_.seqstarts = &seqstarts_view_, args_.kvstarts = &kvstarts_view_;
    args_.cachestarts = &pages_;
    args_.attn_mask = w_.has_mask() ? &mask_ : nullptr;
    return &args_;
}

}  // namespace bench
