// Valid calls of DML_MULTIHEAD_ATTENTION1.
#include "tests/fuzz/batch.h"

namespace quire::fuzz {
namespace {

using Directml = Builder<quire_directml_multihead_attention1_desc, quire_directml_multihead_attention1_args>;

struct Lengths {
    int64_t B, S, N, past;
    int64_t T() const { return past + N; }
};

std::vector<int64_t> draw_indices(Source& source, int64_t count, int64_t most) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(source.between(0, most));
    return values;
}

// Up to five dimensions, with leading 1s.
std::vector<int64_t> wide(Source& source, std::vector<int64_t> shape, int least) {
    const auto rank = size_t(source.between(std::max(least, int(shape.size())), 5));
    if (source.chance(64)) shape.insert(shape.begin(), rank - shape.size(), 1);
    return shape;
}

void add_tokens(Source& source, const Lengths& l, quire_type T, Directml* b) {
    const auto& d = b->desc;
    const int64_t H = d.query_head_count, Hk = d.key_value_head_count, D = d.head_size,
                  Dv = d.value_head_size;
    const auto rows = [&](int64_t tokens, int64_t size) { return wide(source, {l.B, tokens, size}, 3); };
    const bool alike = H == Hk, one_size = D == Dv, same = l.S == l.N;
    const int64_t form = source.between(0, 3);
    if (form == 0 && alike && one_size && same) {
        QUIRE_FUZZ_ADD(*b, stacked_query_key_value_tensor, Role::input, T, {l.B, l.S, H, 3, D});
    } else if (form == 1 && alike && same) {
        QUIRE_FUZZ_ADD(*b, stacked_query_key_tensor, Role::input, T, {l.B, l.S, H, 2, D});
        QUIRE_FUZZ_ADD(*b, value_tensor, Role::input, T, rows(l.N, Hk * Dv));
    } else {
        QUIRE_FUZZ_ADD(*b, query_tensor, Role::input, T, rows(l.S, H * D));
        if (l.N == 0) return;
        if (form == 2 && one_size) {
            QUIRE_FUZZ_ADD(*b, stacked_key_value_tensor, Role::input, T, {l.B, l.N, Hk, 2, D}).alone = true;
        } else {
            QUIRE_FUZZ_ADD(*b, key_tensor, Role::input, T, rows(l.N, Hk * D));
            QUIRE_FUZZ_ADD(*b, value_tensor, Role::input, T, rows(l.N, Hk * Dv));
        }
    }
}

void add_mask(Source& source, const Lengths& l, Directml* b) {
    const int64_t B = l.B, T = l.T();
    std::vector<int64_t> shape;
    switch (b->desc.mask_type) {
        case QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH: shape = {1, B}; break;
        case QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START: shape = {2, B}; break;
        case QUIRE_DIRECTML_MASK_KEY_QUERY_SEQUENCE_LENGTH_START_END: shape = {3 * B + 2}; break;
        case QUIRE_DIRECTML_MASK_BOOLEAN: shape = {B, b->desc.query_head_count, l.S, T}; break;
        default: return;
    }
    if (b->desc.mask_type == QUIRE_DIRECTML_MASK_BOOLEAN)
        for (int64_t& length : shape)
            if (source.chance(64)) length = 1;
    int64_t count = 1;
    for (int64_t length : shape) count *= length;
    QUIRE_FUZZ_ADD(*b, mask_tensor, Role::input, QUIRE_INT32, wide(source, shape, 1),
                   draw_indices(source, std::min<int64_t>(count, 64), T + 1));
}

}  // namespace

Call make_directml_multihead_attention1(Source& source) {
    Directml b(quire_directml_multihead_attention1_desc_init);
    const Heads heads = draw_heads(source);
    const int64_t Hk = heads.Hk, D = heads.D;
    const int64_t Dv = source.chance(128) ? D : draw_size(source, heads.small);
    const quire_type T = source.pick<quire_type>({QUIRE_F32, QUIRE_F16});
    b.desc.scale = 0.25f;
    b.desc.query_head_count = int32_t(heads.H);
    b.desc.key_value_head_count = int32_t(Hk);
    b.desc.head_size = int32_t(D);
    b.desc.value_head_size = int32_t(Dv);
    b.desc.data_type = T;
    b.desc.mask_type = quire_directml_mask_type(source.between(0, 4));
    b.desc.precision = quire_precision(source.between(0, 2));

    Lengths l{source.between(1, 3), source.between(1, heads.small && source.chance(48) ? 40 : 5), 0, 0};
    l.N = source.chance(96) ? l.S : source.between(0, 20);
    if (l.N == 0 || source.chance(96)) l.past = source.between(1, 20);
    add_tokens(source, l, T, &b);
    if (l.past > 0) {
        QUIRE_FUZZ_ADD(b, past_key_tensor, Role::input, T, wide(source, {l.B, Hk, l.past, D}, 4));
        QUIRE_FUZZ_ADD(b, past_value_tensor, Role::input, T, wide(source, {l.B, Hk, l.past, Dv}, 4));
        if (source.chance(96))
            QUIRE_FUZZ_ADD(b, past_sequence_lengths_tensor, Role::input, source.chance(128) ? T : QUIRE_INT32,
                           wide(source, {l.B}, 1), draw_indices(source, l.B, l.past));
    }
    if (source.chance(96))
        QUIRE_FUZZ_ADD(b, bias_tensor, Role::input, T, wide(source, {heads.H * D + Hk * (D + Dv)}, 1));
    add_mask(source, l, &b);
    if (source.chance(64)) {
        std::vector<int64_t> shape = {l.B, heads.H, l.S, l.T()};
        for (int64_t& length : shape)
            if (source.chance(64)) length = 1;
        QUIRE_FUZZ_ADD(b, relative_position_bias_tensor, Role::input, T, wide(source, shape, 4));
    }
    QUIRE_FUZZ_ADD(b, output_tensor, Role::written, T, wide(source, {l.B, l.S, heads.H * Dv}, 3));
    if (source.chance(128))
        QUIRE_FUZZ_ADD(b, output_present_key_tensor, Role::written, T, wide(source, {l.B, Hk, l.T(), D}, 4));
    if (source.chance(128))
        QUIRE_FUZZ_ADD(b, output_present_value_tensor, Role::written, T,
                       wide(source, {l.B, Hk, l.T(), Dv}, 4));
    return b.finish(QUIRE_FUZZ_FUNCTIONS(directml_multihead_attention1));
}

}  // namespace quire::fuzz
