// Valid calls of quire_attention, quire_append, quire_rotate and quire_merge_states.
#include <algorithm>

#include "src/format.h"
#include "tests/fuzz/batch.h"

namespace quire::fuzz {
namespace {

using Attention = Builder<quire_attention_desc, quire_attention_args>;
using Append = Builder<quire_append_desc, quire_append_args>;
using Rotate = Builder<quire_rotate_desc, quire_rotate_args>;

int64_t grid_of(const quire_format& key, const quire_format& value) {
    return std::max(tokens_of_block(key), tokens_of_block(value));
}

template <typename B>
void add_cache(B* b, const std::vector<int64_t>& lead, int64_t Hk, int64_t D, int64_t Dv, Role role) {
    const auto side = [&](const quire_format& format, int64_t dim, bool key) {
        std::vector<int64_t> shape = lead;
        shape.insert(shape.end(), {Hk, dim});
        const bool blocks = token_block_info(format.type) != nullptr;
        if (blocks) {
            shape[lead.size() - 1] /= kBlockTokens;
            shape.back() = block_bytes(format, int(dim));
        }
        if (key)
            QUIRE_FUZZ_ADD(*b, key, role, format.type, shape);
        else
            QUIRE_FUZZ_ADD(*b, value, role, format.type, shape);
        if (format.quant_group == 0 || blocks) return;
        shape.back() = dim / format.quant_group;
        if (key)
            QUIRE_FUZZ_ADD(*b, key_scale, role, format.scale_type, shape);
        else
            QUIRE_FUZZ_ADD(*b, value_scale, role, format.scale_type, shape);
    };
    side(b->desc.key_format, D, true);
    side(b->desc.value_format, Dv, false);
}

void add_mask(Source& source, const Batch& batch, int64_t H, Attention* b) {
    const int64_t S = batch.longest_queries(), T = batch.longest_keys();
    const int64_t columns = batch.kvstarts.back() + source.between(0, 2);
    std::vector<int64_t> shape;
    switch (source.between(0, 2)) {
        case 0: shape = {batch.n(), columns}; break;
        case 1: shape = {source.chance(128) ? H : 1, batch.n(), columns}; break;
        default:
            shape = {batch.B(), H, S, T};
            for (int64_t& length : shape)
                if (source.chance(64)) length = 1;
    }
    const auto type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_BOOL});
    QUIRE_FUZZ_ADD(*b, attn_mask, Role::input, type, shape);
    if (type != QUIRE_BOOL && source.chance(64))
        QUIRE_FUZZ_ADD(*b, attn_mask_slopes, Role::input, QUIRE_F32, {H});
}

void add_options(Source& source, const Batch& batch, int64_t H, Attention* b) {
    quire_attention_desc& d = b->desc;
    d.is_causal = source.chance(128);
    d.is_alibi = source.chance(64);
    d.has_window = source.chance(64);
    d.window_left = int32_t(source.between(-1, 4));
    d.window_right = int32_t(source.between(-1, 4));
    d.logits_soft_cap = source.chance(64) ? 3.f : 0.f;
    d.causal_corner = source.chance(64);
    d.precision = quire_precision(source.between(0, 2));
    d.scale = source.chance(64) ? 0.3f : 0.f;
    std::vector<int64_t> at, begins, ends;
    for (int64_t b_ = 0; b_ < batch.B(); ++b_) {
        const int64_t T = batch.keys[size_t(b_)];
        at.push_back(source.between(-3, T + 3));
        begins.push_back(source.between(0, T));
        ends.push_back(source.between(0, T));
    }
    const int64_t B = batch.B();
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, query_positions, Role::input, QUIRE_INT64, {B}, at);
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, key_begin, Role::input, QUIRE_INT64, {B}, begins);
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, key_end, Role::input, QUIRE_INT64, {B}, ends);
    if (source.chance(96)) add_mask(source, batch, H, b);
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, sinks, Role::input, QUIRE_F32, {H});
    if (source.chance(48)) {
        const int64_t words = (batch.longest_queries() + 63) / 64 + source.between(0, 1);
        QUIRE_FUZZ_ADD(*b, tree_mask, Role::input, QUIRE_INT64, {batch.n(), words});
    }
    b->args.decoding_batches = source.between(0, B);
    b->scalar(b->args.decoding_batches);
}

}  // namespace

Call make_attention(Source& source) {
    Attention b(quire_attention_desc_init);
    const Heads heads = draw_heads(source);
    const int64_t H = heads.H, Hk = heads.Hk, D = heads.D, Dv = draw_size(source, heads.small);
    b.desc.num_heads = int32_t(H);
    b.desc.num_kv_heads = int32_t(Hk);
    b.desc.head_dim = int32_t(D);
    b.desc.value_head_dim = int32_t(Dv);
    b.desc.type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    b.desc.key_format = draw_format(source, D, Blocks::any);
    b.desc.value_format = draw_format(source, Dv, Blocks::any);

    const int64_t grid = grid_of(b.desc.key_format, b.desc.value_format);
    const bool batched = source.chance(96), batched_keys = grid == 1 && batched && source.chance(128);
    Batch batch = draw_batch(source, heads.small, batched, batched_keys, false);
    const bool single = batch.B() == 1 && !batched && source.chance(128);
    const int64_t B = batch.B(), n = batch.n(), S = batched ? batch.queries[0] : 0;
    const auto tokens = [&](int64_t dim) {
        return batched ? std::vector<int64_t>{B, S, H, dim} : std::vector<int64_t>{n, H, dim};
    };
    QUIRE_FUZZ_ADD(b, query, Role::input, b.desc.type, tokens(D));
    if (!batched && !single) QUIRE_FUZZ_ADD(b, seqstarts, Role::input, QUIRE_INT64, {B + 1}, batch.seqstarts);
    if (batched_keys) {
        add_cache(&b, {B, batch.keys[0]}, Hk, D, Dv, Role::input);
    } else {
        const auto placement =
            grid > 1 ? source.pick<Placement>({Placement::offsets, Placement::pages})
                     : source.pick<Placement>({Placement::dense, Placement::offsets, Placement::pages});
        place_rows(source, placement, &batch, grid);
        if (placement == Placement::pages) b.desc.page_size = int32_t(batch.page_size);
        const bool no_starts = single && placement == Placement::dense && source.chance(128);
        add_cache(&b, {no_starts ? batch.keys[0] : batch.slots}, Hk, D, Dv, Role::input);
        if (!no_starts) QUIRE_FUZZ_ADD(b, kvstarts, Role::input, QUIRE_INT64, {B + 1}, batch.kvstarts);
        if (placement != Placement::dense)
            QUIRE_FUZZ_ADD(b, cachestarts, Role::input, QUIRE_INT64, batch.table_shape(), batch.cachestarts);
    }
    add_options(source, batch, H, &b);
    QUIRE_FUZZ_ADD(b, output, Role::written, b.desc.type, tokens(Dv));
    std::vector<int64_t> lse_shape = tokens(Dv);
    lse_shape.pop_back();
    if (source.chance(128)) QUIRE_FUZZ_ADD(b, lse, Role::written, QUIRE_F32, lse_shape);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(attention));
}

namespace {

// A rotary embedding, or none. `tokens` is the shape of the positions, `keys` how many there are at least.
template <typename B>
void add_rotary(Source& source, B* b, int64_t D, const std::vector<int64_t>& tokens, int64_t keys,
                bool positions, bool needed) {
    if (D < 2 || (!needed && source.chance(128))) return;
    b->desc.rotary = source.pick<quire_rotary>({QUIRE_ROTARY_HALVES, QUIRE_ROTARY_INTERLEAVED});
    const int64_t R = source.between(1, D / 2) * 2, rows = std::max<int64_t>(keys, 1) + source.between(0, 2);
    b->desc.rotary_dim = int32_t(R);
    QUIRE_FUZZ_ADD(*b, rotary_cos, Role::input, QUIRE_F32, {rows, R / 2});
    QUIRE_FUZZ_ADD(*b, rotary_sin, Role::input, QUIRE_F32, {rows, R / 2});
    if (!positions) return;
    int64_t count = 1;
    for (int64_t length : tokens) count *= length;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(source.between(0, rows - 1));
    QUIRE_FUZZ_ADD(*b, positions, Role::input, QUIRE_INT64, tokens, values);
}

}  // namespace

Call make_rotate(Source& source) {
    Rotate b(quire_rotate_desc_init);
    const Heads heads = draw_heads(source);
    const int64_t D = std::max<int64_t>(heads.D, 2);
    b.desc.num_heads = int32_t(heads.Hk);
    b.desc.head_dim = int32_t(D);
    b.desc.type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    std::vector<int64_t> tokens = {source.between(0, 9)};
    if (source.chance(96)) tokens.push_back(source.between(0, 4));
    std::vector<int64_t> shape = tokens;
    shape.insert(shape.end(), {heads.Hk, D});
    QUIRE_FUZZ_ADD(b, input, Role::input, b.desc.type, shape);
    QUIRE_FUZZ_ADD(b, output, Role::written, b.desc.type, shape);
    add_rotary(source, &b, D, tokens, 5, true, D % 2 != 0);
    b.desc.hadamard = D % 2 == 0 && (b.desc.rotary == QUIRE_ROTARY_NONE || source.chance(128));
    return b.finish(QUIRE_FUZZ_FUNCTIONS(rotate));
}

Call make_append(Source& source) {
    Append b(quire_append_desc_init);
    const Heads heads = draw_heads(source);
    const int64_t Hk = heads.Hk, D = heads.D, Dv = draw_size(source, heads.small);
    b.desc.num_kv_heads = int32_t(Hk);
    b.desc.head_dim = int32_t(D);
    b.desc.value_head_dim = int32_t(Dv);
    b.desc.type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    b.desc.key_format = draw_format(source, D, Blocks::of_tokens);
    b.desc.value_format = draw_format(source, Dv, Blocks::of_tokens);

    const bool batched = source.chance(96), batched_rows = source.chance(64), one = source.chance(64);
    const int64_t grid = grid_of(b.desc.key_format, b.desc.value_format);
    Batch batch = draw_batch(source, heads.small, batched, one, true);
    const int64_t B = batch.B();
    std::vector<int64_t> tokens = {batch.n(), Hk, D};
    if (batched) tokens = {B, batch.queries[0], Hk, D};
    QUIRE_FUZZ_ADD(b, new_key, Role::input, b.desc.type, tokens);
    tokens.back() = Dv;
    QUIRE_FUZZ_ADD(b, new_value, Role::input, b.desc.type, tokens);
    if (!batched) QUIRE_FUZZ_ADD(b, seqstarts, Role::input, QUIRE_INT64, {B + 1}, batch.seqstarts);
    if (batched_rows) {
        const int64_t T = batch.longest_keys() + source.between(0, 2);
        add_cache(&b, {B, (T + grid - 1) / grid * grid}, Hk, D, Dv, Role::written);
    } else {
        place_rows(source, source.pick<Placement>({Placement::offsets, Placement::pages}), &batch, grid);
        b.desc.page_size = int32_t(batch.page_size);
        add_cache(&b, {batch.slots}, Hk, D, Dv, Role::written);
        QUIRE_FUZZ_ADD(b, cachestarts, Role::input, QUIRE_INT64, batch.table_shape(), batch.cachestarts);
    }
    const bool same = batch.same_start();
    if (same && one)
        QUIRE_FUZZ_ADD(b, start_pos, Role::input, QUIRE_INT64, {}, {batch.start_pos(0)});
    else
        QUIRE_FUZZ_ADD(b, start_pos, Role::input, QUIRE_INT64, {B}, batch.start_positions());
    tokens.resize(tokens.size() - 2);
    add_rotary(source, &b, D, tokens, batch.longest_keys(), source.chance(128), false);
    b.desc.hadamard_keys = D % 2 == 0 && source.chance(64);
    b.desc.hadamard_values = Dv % 2 == 0 && source.chance(64);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(append));
}

// ---- quire_merge_states, which has no structs ----

namespace {

struct MergeDesc {
    size_t struct_size;
};
struct MergeArgs {
    size_t struct_size;
    const quire_tensor *output_a, *lse_a, *output_b, *lse_b, *output, *lse;
};

quire_status merge(const quire_plan*, const void* args) {
    const MergeArgs& a = *static_cast<const MergeArgs*>(args);
    return quire_merge_states(nullptr, a.output_a, a.lse_a, a.output_b, a.lse_b, a.output, a.lse);
}

}  // namespace

Call make_merge_states(Source& source) {
    Builder<MergeDesc, MergeArgs> b([](MergeDesc* desc) { desc->struct_size = sizeof *desc; });
    const int64_t n = source.between(0, 12), H = source.between(0, 5), Dv = draw_size(source, true);
    const auto type = source.pick<quire_type>({QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    QUIRE_FUZZ_ADD(b, output_a, Role::input, type, {n, H, Dv});
    QUIRE_FUZZ_ADD(b, lse_a, Role::input, QUIRE_F32, {n, H});
    QUIRE_FUZZ_ADD(b, output_b, Role::input, type, {n, H, Dv});
    QUIRE_FUZZ_ADD(b, lse_b, Role::input, QUIRE_F32, {n, H});
    QUIRE_FUZZ_ADD(b, output, Role::written, type, {n, H, Dv});
    if (source.chance(192)) QUIRE_FUZZ_ADD(b, lse, Role::written, QUIRE_F32, {n, H});
    return b.finish({"merge_states", nullptr, merge, nullptr});
}

}  // namespace quire::fuzz
