// Valid calls of MindSpore's MultiHeadAttention: the layer's weights are tensors of the descriptor.
#include "tests/fuzz/batch.h"

namespace quire::fuzz {
namespace {

using Mindspore =
    Builder<quire_mindspore_multi_head_attention_desc, quire_mindspore_multi_head_attention_args>;

void add_weights(Mindspore* b) {
    const quire_type type = b->desc.param_init_type;
    const int64_t size = b->desc.hidden_size;
    const auto add = [&](const char* name, const quire_tensor* const& weight,
                         const quire_tensor* const& bias) {
        b->add_to_desc(name, weight, type, {size, size});
        b->add_to_desc(name, bias, type, {size});
    };
    add("dense1", b->desc.dense1_weight, b->desc.dense1_bias);
    add("dense2", b->desc.dense2_weight, b->desc.dense2_bias);
    add("dense3", b->desc.dense3_weight, b->desc.dense3_bias);
    add("projection", b->desc.projection_weight, b->desc.projection_bias);
}

quire_type draw_type(Source& source) { return source.pick<quire_type>({QUIRE_F32, QUIRE_F16}); }

void set_layer(Source& source, Mindspore* b) {
    auto& d = b->desc;
    d.batch_size = int32_t(source.between(1, 3));
    d.src_seq_length = int32_t(source.between(1, 8));
    d.num_heads = int32_t(source.between(1, 3));
    d.hidden_size = d.num_heads * int32_t(source.pick<int64_t>({1, 2, 5, 8, 16}));
    d.compute_dtype = draw_type(source);
    d.softmax_compute_type = draw_type(source);
    d.param_init_type = draw_type(source);
    d.use_past = source.chance(128);
    d.tgt_seq_length = d.use_past ? d.src_seq_length : int32_t(source.between(1, 8));
    d.parallel_config = int32_t(source.between(0, 2));
}

}  // namespace

Call make_mindspore_multi_head_attention(Source& source) {
    Mindspore b(quire_mindspore_multi_head_attention_desc_init);
    set_layer(source, &b);
    add_weights(&b);
    const auto& d = b.desc;
    const bool first = source.chance(128), one = d.use_past && !first;
    b.args.is_first_iteration = first;
    b.args.training = source.chance(64);
    const int64_t B = d.batch_size, H = d.num_heads, D = d.hidden_size / H, T = d.tgt_seq_length;
    const int64_t S = one ? 1 : d.src_seq_length, N = one ? 1 : T;
    const auto rows = [&](int64_t tokens) {
        return source.chance(128) ? std::vector<int64_t>{B, tokens, d.hidden_size}
                                  : std::vector<int64_t>{B * tokens, d.hidden_size};
    };
    const quire_type type = draw_type(source);
    QUIRE_FUZZ_ADD(b, query_tensor, Role::input, type, rows(S));
    QUIRE_FUZZ_ADD(b, key_tensor, Role::input, draw_type(source), rows(N));
    QUIRE_FUZZ_ADD(b, value_tensor, Role::input, draw_type(source), rows(N));
    if (source.chance(192)) {
        const quire_type mask = draw_type(source);
        if (source.chance(128))
            QUIRE_FUZZ_ADD(b, attention_mask, Role::input, mask, {B, S, T});
        else
            QUIRE_FUZZ_ADD(b, attention_mask, Role::input, mask, {B, source.chance(128) ? H : 1, S, T});
    }
    if (d.use_past) {
        if (one || source.chance(128)) {
            QUIRE_FUZZ_ADD(b, key_past, Role::input, QUIRE_F16, {B, H, D, T});
            QUIRE_FUZZ_ADD(b, value_past, Role::input, QUIRE_F16, {B, H, T, D});
        }
        std::vector<int64_t> lengths;
        for (int64_t i = 0; i < B; ++i) lengths.push_back(source.between(0, one ? T - 1 : T));
        QUIRE_FUZZ_ADD(b, batch_valid_length, Role::input, QUIRE_INT32, {B}, lengths);
    }
    b.scalar(b.args.dropout_seed);
    b.scalar(b.args.dropout_step);
    QUIRE_FUZZ_ADD(b, output, Role::written, type, rows(S));
    if (source.chance(128)) {
        QUIRE_FUZZ_ADD(b, layer_present_0, Role::written, d.compute_dtype, {B, H, D, T});
        QUIRE_FUZZ_ADD(b, layer_present_1, Role::written, d.compute_dtype, {B, H, T, D});
    }
    return b.finish(QUIRE_FUZZ_FUNCTIONS(mindspore_multi_head_attention));
}

}  // namespace quire::fuzz
