// The same problem in another form: what must not change a bit, and what must not change more than rounding
// does.
#include <cmath>
#include <cstring>

#include "tests/support/append.h"
#include "tests/support/property.h"

namespace quire::test {
namespace {

// Kernels are fast, and long sequences are cut into ranges of keys.
Draw long_draw(const Way& way) {
    Draw draw;
    draw.long_sequences = find_target(way.target)->jit();
    draw.most_multiplications = draw.long_sequences ? 4e7 : 4e5;
    return draw;
}

Outcome run_case(const Case& c, const Way& way) {
    Tensors tensors(c);
    return run(tensors, way);
}

// Rows of `count` tokens of a case's outcome.
Outcome rows(const Case& c, const Outcome& all, int64_t first, int64_t count) {
    const auto cut = [&](const auto& from, int64_t row) {
        using List = std::decay_t<decltype(from)>;
        return from.empty() ? List() : List(from.begin() + first * row, from.begin() + (first + count) * row);
    };
    const int64_t row = c.H * c.Dv;
    return {cut(all.output_bytes, row * type_bits(c.type) / 8), cut(all.lse_bytes, c.H * 4),
            cut(all.output, row), cut(all.lse, c.H)};
}

Outcome rows_of_sequence(const Case& c, const Outcome& all, int64_t b) {
    int64_t first = 0;
    for (int64_t i = 0; i < b; ++i) first += c.sequences[size_t(i)].queries;
    return rows(c, all, first, c.sequences[size_t(b)].queries);
}

// ---- not a bit ----

QUIRE_PROPERTY(PropertySame, SequencesPermuted, 150) {
    const Way way = *ways();
    Case c = *cases(long_draw(way));
    c.decoding_batches = 0;  // the first ones, whichever they are
    Case permuted = c;
    Random(*rc::gen::inRange<uint64_t>(0, 1000)).shuffle(permuted.sequences);
    const Outcome in_order = run_case(c, way), got = run_case(permuted, way);
    for (int64_t b = 0; b < permuted.B(); ++b)
        RC_ASSERT(rows_of_sequence(permuted, got, b) ==
                  rows_of_sequence(c, in_order, int64_t(permuted.id(b)) - 1));
}

// The first sequences in one call, the others in another.
QUIRE_PROPERTY(PropertySame, BatchSplit, 150) {
    const Way way = *ways();
    const Case c = *cases(long_draw(way));
    const int64_t middle = *rc::gen::inRange<int64_t>(0, c.B() + 1);
    Case left = c, right = c;
    left.sequences.resize(size_t(middle));
    right.sequences.erase(right.sequences.begin(), right.sequences.begin() + middle);
    left.decoding_batches = std::min(c.decoding_batches, middle);
    right.decoding_batches = c.decoding_batches - left.decoding_batches;
    const Outcome whole = run_case(c, way);
    RC_ASSERT(run_case(left, way) == rows(c, whole, 0, left.n()));
    RC_ASSERT(run_case(right, way) == rows(c, whole, left.n(), right.n()));
}

// Pages in another order and of another size, offsets, dense keys; strides, gaps and alignment.
QUIRE_PROPERTY(PropertySame, Memory, 150) {
    const Way way = *ways();
    const Case c = *cases(long_draw(way));
    Case moved = c;
    move_in_memory(&moved);
    RC_LOG() << moved.name() << "\n";
    RC_ASSERT(run_case(moved, way) == run_case(c, way));
}

QUIRE_PROPERTY(PropertySame, Threads, 150) {
    const Way way = *ways();
    const Case c = *cases(long_draw(way));
    Way alone;
    alone.target = way.target;
    RC_ASSERT(run_case(c, way) == run_case(c, alone));
}

// ---- no more than rounding ----

void near(const Case& c, const Outcome& got, const Outcome& wanted) {
    // Two roundings to the type of averages of normal numbers; float32 sums in another order.
    const float added = c.precision == QUIRE_PRECISION_HIGHEST ? 0
                        : c.precision == QUIRE_PRECISION_HIGH  ? 2e-3f
                                                               : 2e-2f;
    const float output = (c.type == QUIRE_F32 ? 2e-5f : c.type == QUIRE_F16 ? 4e-3f : 4e-2f) + added;
    const auto check = [](const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
        RC_ASSERT(a.size() == b.size());
        for (size_t i = 0; i < a.size(); ++i) {
            if (a[i] == b[i]) continue;
            RC_ASSERT(std::fabs(a[i] - b[i]) <= tolerance * std::max(1.f, std::fabs(b[i])));
        }
    };
    check(got.output, wanted.output, output);
    check(got.lse, wanted.lse, 2e-5f + added);
}

// A prompt in two calls: its first tokens over the keys up to them, then the others over all.
QUIRE_PROPERTY(PropertySame, ChunkedPrefill, 150) {
    const Way way = *ways();
    Draw draw = long_draw(way);
    draw.cached = true;
    draw.by_token = false;
    draw.most_sequences = 1;
    Case c = *cases(draw);
    RC_PRE(c.B() == 1);
    c.causal = true;
    const Lengths whole = c.sequences[0];
    const int64_t first = *rc::gen::inRange<int64_t>(0, whole.queries + 1);
    Tensors all(c);
    const Outcome wanted = run(all, way);
    Case chunk = c;
    chunk.sequences = {{first, whole.keys - whole.queries + first, 1}};
    near(chunk, run_case(chunk, way), rows(c, wanted, 0, first));
    chunk.sequences = {{whole.queries - first, whole.keys, 1}};
    Tensors second(chunk);
    for (int64_t i = first; i < whole.queries; ++i)
        for (int h = 0; h < c.H; ++h)
            std::memcpy(element(second.query_view, i - first, h), element(all.query_view, i, h),
                        size_t(c.D * type_bits(c.type) / 8));
    near(chunk, run(second, way), rows(c, wanted, first, whole.queries - first));
}

// Runs attention on keys begin .. end of every sequence.
Outcome run_range(Tensors& tensors, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                  const Way& way) {
    for (int64_t b = 0; b < tensors.spec.B(); ++b) {
        std::memcpy(element(tensors.key_begin_view, b, 0), &begin[size_t(b)], 8);
        std::memcpy(element(tensors.key_end_view, b, 0), &end[size_t(b)], 8);
    }
    return run(tensors, way);
}

// quire_merge_states; `in_place` writes over the first part.
Outcome merge(const Case& c, Outcome a, Outcome b, bool in_place) {
    const int64_t shape[] = {c.n(), c.H, c.Dv};
    Outcome merged = a;
    Outcome& to = in_place ? a : merged;
    quire_tensor views[6];
    Outcome* states[] = {&a, &b, &to};
    for (int i = 0; i < 3; ++i) {
        views[2 * i] = quire_tensor_of(states[i]->output_bytes.data(), c.type, 3, shape);
        views[2 * i + 1] = quire_tensor_of(states[i]->lse_bytes.data(), QUIRE_F32, 2, shape);
    }
    RC_ASSERT(quire_merge_states(nullptr, &views[0], &views[1], &views[2], &views[3], &views[4], &views[5]) ==
              QUIRE_OK);
    for (size_t i = 0; i < to.output.size(); ++i)
        to.output[i] = load_number(c.type, to.output_bytes.data(), int64_t(i));
    for (size_t i = 0; i < to.lse.size(); ++i)
        to.lse[i] = load_number(QUIRE_F32, to.lse_bytes.data(), int64_t(i));
    return to;
}

QUIRE_PROPERTY(PropertySame, KeyRangesMerged, 150) {
    const Way way = *ways();
    Case c = *cases(long_draw(way));
    c.key_ranges = c.lse = true;
    c.sinks = false;  // they would count twice
    std::vector<int64_t> zero(size_t(c.B()), 0), middle, end;
    for (const Lengths& s : c.sequences) {
        middle.push_back(*rc::gen::inRange<int64_t>(0, s.keys + 1));
        end.push_back(s.keys);
    }
    Tensors tensors(c);
    const Outcome whole = run_range(tensors, zero, end, way), left = run_range(tensors, zero, middle, way),
                  right = run_range(tensors, middle, end, way);
    const Outcome merged = merge(c, left, right, false);
    RC_ASSERT(merge(c, left, right, true) == merged);
    near(c, merged, whole);
}

// What was appended, one call after the other, is attended to as the same keys that were always there: they
// are the same bytes, so not a bit differs.
QUIRE_PROPERTY(PropertySame, AppendThenAttend, 150) {
    const Way way = *ways();
    Draw draw = long_draw(way);
    draw.cached = true;
    const Case c = *cases(draw);
    Append append(c);
    append.forget();
    append.run(way);
    const Outcome got = run(append.tensors, way);

    Tensors concatenated(c);
    for (int64_t b = 0; b < c.B(); ++b) {
        const Lengths& s = c.sequences[size_t(b)];
        for (int64_t i = 0; i < s.queries; ++i)
            for (int head = 0; head < c.Hk; ++head)
                for (const bool value : {false, true}) {
                    CacheSide& side = value ? concatenated.value : concatenated.key;
                    const quire_tensor& from = value ? append.new_value : append.new_key;
                    const int64_t slot = concatenated.slot(b, s.keys - s.queries + i);
                    encode_token(side.format, side.side, side.dim, c.type,
                                 element(from, concatenated.first_token(b) + i, head), side.at(slot, head));
                }
    }
    RC_ASSERT(run(concatenated, way) == got);
}

}  // namespace
}  // namespace quire::test
