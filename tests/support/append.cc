#include "tests/support/append.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quire::test {
namespace {

enum Stream : uint64_t { kNewKey = 200, kNewValue, kSpoil };

// Numbers of one group, `max_code` 127 or 7.
void spoil_group(Random* random, float max_code, std::vector<float>* group) {
    const int kind = int(random->below(10));
    const size_t at = size_t(random->below(int64_t(group->size())));
    const float huge = random->chance(0.5) ? 3e38f : 6e4f;
    for (float& x : *group) {
        if (kind == 0) x = random->chance(0.5) ? 0.f : -0.f;
        if (kind == 1) x *= huge / 4;                              // may be Inf in f16
        if (kind == 2) x *= random->chance(0.5) ? 1e-40f : 1e-7f;  // subnormal in f32, or in f16
        if (kind == 3) x *= 1e-3f;                                 // around the smallest scale
        // Scale 1 or a power of two: every quotient lies on a tie or is a whole number.
        if (kind == 4 || kind == 5)
            x = (float(random->between(-int(max_code) * 2, int(max_code) * 2)) / 2) *
                (kind == 4 ? 1.f : 0.125f);
    }
    if (kind == 4) (*group)[at] = max_code;
    if (kind == 5) (*group)[at] = -max_code * 0.125f;
    if (kind == 6) (*group)[at] = random->chance(0.5) ? NAN : -NAN;
    if (kind == 7) (*group)[at] = random->chance(0.5) ? INFINITY : -INFINITY;
    if (kind == 8) (*group)[at] = huge;
}

std::vector<uint8_t>& bytes_of(Append::Bytes& bytes, bool value, bool scales) {
    return bytes[(value ? 1 : 0) + (scales ? 2 : 0)];
}

}  // namespace

Append::Append(const Case& c) : tensors(c) {
    key_numbers_ = fill(&new_key, c.D, kNewKey);
    value_numbers_ = fill(&new_value, c.Dv, kNewValue);
    const int64_t B = c.B();
    start_pos = quire_tensor_of(nullptr, QUIRE_INT64, 1, &B);
    starts_ = tensors.allocate(&start_pos);
    for (int64_t b = 0; b < B; ++b) {
        const int64_t first = c.sequences[size_t(b)].keys - c.sequences[size_t(b)].queries;
        std::memcpy(element(start_pos, b, 0), &first, sizeof first);
    }
}

GuardedBuffer Append::fill(quire_tensor* view, int dim, uint64_t stream) const {
    const Case& c = tensors.spec;
    *view = tensors.rows_of_heads(c.type, c.n(), c.Hk, dim);
    GuardedBuffer buffer = tensors.allocate(view);
    for (int64_t b = 0; b < c.B(); ++b) {
        Random random(c.seed, stream, c.id(b));
        for (int64_t token = tensors.first_token(b); token < tensors.first_token(b + 1); ++token)
            for (int head = 0; head < c.Hk; ++head)
                for (int d = 0; d < dim; ++d)
                    store_number(c.type, element(*view, token, head), d, random.normal());
    }
    return buffer;
}

void Append::spoil(const quire_tensor& view, const quire_format& format, Random* random) const {
    const int dim = int(view.shape[2]), length = is_quantised(format) ? format.quant_group : std::min(dim, 4);
    for (int64_t token = 0; token < view.shape[0]; ++token)
        for (int64_t head = 0; head < view.shape[1]; ++head)
            for (int begin = 0; begin < dim; begin += length) {
                void* row = element(view, token, head);
                std::vector<float> group(size_t(std::min(length, dim - begin)));
                for (size_t i = 0; i < group.size(); ++i)
                    group[i] = load_number(view.type, row, begin + int64_t(i));
                spoil_group(random, is_quantised(format) ? float(format_info(format.type)->max_code) : 127.f,
                            &group);
                for (size_t i = 0; i < group.size(); ++i)
                    store_number(view.type, row, begin + int64_t(i), group[i]);
            }
}

void Append::spoil() {
    Random random(tensors.spec.seed, kSpoil);
    spoil(new_key, row_format(tensors.spec.key_format), &random);
    spoil(new_value, row_format(tensors.spec.value_format), &random);
}

void Append::for_each_new_row(const std::function<void(int64_t, int64_t, int)>& body) const {
    const Case& c = tensors.spec;
    for (int64_t b = 0; b < c.B(); ++b) {
        const Lengths& s = c.sequences[size_t(b)];
        for (int64_t i = 0; i < s.queries; ++i)
            for (int head = 0; head < c.Hk; ++head)
                body(tensors.first_token(b) + i, tensors.slot(b, s.keys - s.queries + i), head);
    }
}

void Append::forget() {
    for_each_new_row([&](int64_t, int64_t slot, int head) {
        for (CacheSide* side : {&tensors.key, &tensors.value})
            side->store(slot, head, std::vector<float>(size_t(side->dim), 1e4f));
    });
}

Append::Bytes Append::cache_bytes() const {
    return {tensors.key.rows.bytes(), tensors.value.rows.bytes(), tensors.key.scales.bytes(),
            tensors.value.scales.bytes()};
}

Append::Bytes Append::expected() const {
    Bytes bytes = cache_bytes();
    for_each_new_row([&](int64_t token, int64_t slot, int head) {
        for (bool value : {false, true}) {
            const CacheSide& side = value ? tensors.value : tensors.key;
            const quire_tensor& input = value ? new_value : new_key;
            const auto inside = [&](const GuardedBuffer& buffer, void* at, bool scales) {
                return bytes_of(bytes, value, scales).data() + (static_cast<char*>(at) - buffer.as<char>());
            };
            TokenPlace to = side.at(slot, head);
            to.row = inside(side.rows, to.row, false);
            if (to.scales) to.scales = inside(side.scales, to.scales, true);
            encode_token(side.format, side.side, side.dim, tensors.spec.type, element(input, token, head),
                         to);
        }
    });
    return bytes;
}

quire_append_desc Append::desc() const {
    const Case& c = tensors.spec;
    quire_append_desc d;
    quire_append_desc_init(&d);
    d.num_kv_heads = c.Hk;
    d.head_dim = c.D;
    d.value_head_dim = c.Dv;
    d.type = c.type;
    d.key_format = c.key_format;
    d.value_format = c.value_format;
    d.page_size = c.placement == Placement::pages ? c.page_size : 0;
    return d;
}

quire_append_args Append::args() const {
    const quire_attention_args attention = tensors.args();
    quire_append_args a = {};
    a.struct_size = sizeof a;
    a.new_key = &new_key;
    a.new_value = &new_value;
    a.key = attention.key;
    a.value = attention.value;
    a.key_scale = attention.key_scale;
    a.value_scale = attention.value_scale;
    a.seqstarts = attention.seqstarts;
    a.start_pos = &start_pos;
    a.cachestarts = attention.cachestarts;
    return a;
}

void Append::run(const Way& way) {
    const quire_append_desc description = desc();
    const quire_append_args arguments = args();
    quire_plan* plan = nullptr;
    ASSERT_EQ(quire_append_plan(context_of(way.target, way.threads), &description, &plan), QUIRE_OK)
        << quire_last_error();
    for (GuardedBuffer* input : {&key_numbers_, &value_numbers_, &starts_}) input->forbid_writes();
    if (way.slices == 0) {
        EXPECT_EQ(quire_append(plan, &arguments), QUIRE_OK) << quire_last_error();
    } else {
        quire_run* prepared = nullptr;
        EXPECT_EQ(quire_prepare_append(plan, &arguments, &prepared), QUIRE_OK) << quire_last_error();
        if (prepared != nullptr) run_slices(way.slices, prepared);
        quire_run_release(prepared);
    }
    for (GuardedBuffer* input : {&key_numbers_, &value_numbers_, &starts_}) input->allow_access();
    quire_plan_destroy(plan);
}

testing::AssertionResult Append::same(const Bytes& wanted) const {
    const Bytes got = cache_bytes();
    const char* names[] = {"key", "value", "key scales", "value scales"};
    for (size_t i = 0; i < got.size(); ++i) {
        const auto differ = std::mismatch(got[i].begin(), got[i].end(), wanted[i].begin());
        if (differ.first == got[i].end()) continue;
        return testing::AssertionFailure()
               << names[i] << " differ in byte " << (differ.first - got[i].begin()) << " of " << got[i].size()
               << ": " << int(*differ.first) << ", not " << int(*differ.second) << " of " << tensors.spec;
    }
    return testing::AssertionSuccess();
}

}  // namespace quire::test
