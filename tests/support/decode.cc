#include "tests/support/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/qk_fours.h"
#include "jit/scaled_amx.h"
#include "jit/token_weights.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/rounded_query.h"
#include "tests/support/run.h"
#include "tests/support/weighted_row.h"

namespace quire::test {
namespace {

constexpr int kBlock = jit::kBlock;
constexpr float kCap = 3;  // in log2 units

jit::Products key_products(const DecodeSetup& setup) {
    if (setup.products == jit::Products::scaled_words) return jit::Products::floats;  // of values alone
    return can_be(setup.keys, *setup.target, setup.products) ? setup.products : jit::Products::floats;
}

jit::RowKey value_key(const DecodeSetup& setup) {
    jit::RowKey key{setup.target, setup.values.format, setup.values.dim, setup.rows};
    const bool of_digits = setup.products == jit::Products::three_bytes;
    if (is_of_tiles(setup.products)) {
        key.products = setup.products;
        if (!jit::takes_value_amx(key)) key.products = jit::Products::floats;
        return key;
    }
    if (of_digits && jit::has_value_fours(key)) key.products = setup.products;
    if (!of_digits && setup.products != jit::Products::floats && can_be_words(setup.values.format))
        key.products = jit::Products::words;
    if (setup.products == jit::Products::bytes && jit::has_value_bytes(key)) key.products = setup.products;
    if (setup.products == jit::Products::scaled_words && jit::has_scaled_words(key))
        key.products = setup.products;
    return key;
}

// Queries against two blocks of keys, the second one not full.
class Decode {
public:
    explicit Decode(const DecodeSetup& setup, Flush flush)
        : setup_(setup),
          flush_(flush),
          key_{setup.target, setup.keys.format, setup.keys.dim, setup.rows, key_products(setup)},
          value_(value_key(setup)),
          random_(setup.rows, uint64_t(setup.keys.dim)),
          keys_(key_, kBlock + kSecond, &random_, flush),
          values_(value_, kBlock + kSecond, &random_, flush, Side::value) {
        for (jit::DecodeKernels* kernels : {&kernels_, &of_runs_}) {
            const jit::Placement placement =
                kernels == &of_runs_ ? jit::Placement::runs : jit::Placement::adjacent;
            const Status made =
                make_decode_kernels(test_code_cache(), key_, value_, setup.scores, placement, kernels);
            EXPECT_TRUE(made.ok()) << setup.name() << ": " << made.message();
        }
        const size_t R = size_t(setup_.rows), V = size_t(key_.padded());
        query_ = array(R * V, 0.f, flush);
        for (size_t r = 0; r < R; ++r)
            for (size_t d = 0; d < size_t(key_.dim); ++d)
                query_.as<float>()[r * V + d] = random_.normal() / std::sqrt(float(key_.dim));
        rounded_ = rounded_query(key_, setup.rows, query_.as<float>(), flush);
        bias_ = array(2 * R * kBlock, 0.f, flush);
        for (size_t i = 0; i < 2 * R * kBlock; ++i)
            bias_.as<float>()[i] = random_.below(9) == 0 ? -INFINITY : random_.normal();
    }

    struct Result {
        std::vector<uint8_t> output, max, sum;
        bool operator==(const Result& o) const { return output == o.output && max == o.max && sum == o.sum; }
    };

    Result run(const Surroundings& around) {
        const size_t R = size_t(setup_.rows);
        GuardedBuffer output = array(R * size_t(value_.padded()), 0.f, flush_),
                      max = array(whole(R), -INFINITY, flush_), sum = array(whole(R), 0.f, flush_);
        attend_block(0, kBlock, around, output, max, sum);
        attend_block(kBlock, kSecond, around, output, max, sum);
        const auto of_rows = [&](const GuardedBuffer& b) {
            std::vector<uint8_t> bytes = b.bytes();
            bytes.resize(R * 4);
            return bytes;
        };
        return {output.bytes(), of_rows(max), of_rows(sum)};
    }

    // Against double; `tolerance` is far above rounding and far below any mistake.
    void check(const Result& result) const {
        const bool words = key_.words() || value_.words() || key_.products == jit::Products::two_bytes ||
                           setup_.products == jit::Products::two_digit_tiles ||
                           setup_.products == jit::Products::scaled_tiles;
        // Scaled words have 12 bits. Bytes: of the rounded query.
        const double tolerance = value_.scales_words() ? 1e-3 : words ? 5e-4 : 2e-5;
        const auto* output = reinterpret_cast<const float*>(result.output.data());
        const auto* max = reinterpret_cast<const float*>(result.max.data());
        const auto* sum = reinterpret_cast<const float*>(result.sum.data());
        for (int r = 0; r < setup_.rows; ++r) {
            WeightedRow wanted(value_, values_);
            double total = 0, top = -INFINITY;
            for (int t = 0; t < kBlock + kSecond; ++t) top = std::max(top, score(r, t));
            for (const auto& [first, count] : {std::pair(0, kBlock), std::pair(kBlock, kSecond)}) {
                std::vector<double> weights;
                for (int t = first; t < first + count; ++t) {
                    weights.push_back(std::exp2(score(r, t) - top));
                    total += weights.back();
                }
                wanted.add(first, weights);
            }
            ASSERT_NEAR(double(max[r]) + std::log2(double(sum[r])), top + std::log2(total), tolerance)
                << setup_.name();
            for (int d = 0; d < value_.padded(); ++d) {
                const double got = double(output[r * value_.padded() + d]) / double(sum[r]);
                ASSERT_NEAR(got, d < value_.dim ? wanted.value(d) / total : 0,
                            tolerance + (d < value_.dim ? wanted.unsure(d) / total : 0))
                    << setup_.name() << " row " << r << " element " << d;
            }
        }
    }

private:
    static constexpr int kSecond = 37;

    // Keys that row r sees, and its ALiBi constants.
    jit::RowBounds bounds(int r, int first, int count) const {
        jit::RowBounds b = {};
        b.begin = std::clamp(2 * r - first, 0, count);
        b.end = std::clamp(kBlock + kSecond - 3 * r - first, 0, count);
        b.slope = 0.02f * float(r + 1);
        b.distance = float(first - 90 - r);
        return b;
    }

    double score(int r, int t) const {
        const int first = t < kBlock ? 0 : kBlock, count = t < kBlock ? kBlock : kSecond;
        const jit::RowBounds b = bounds(r, first, count);
        if (t - first < b.begin || t - first >= b.end) return -INFINITY;
        double s = 0;
        for (int d = 0; d < key_.dim; ++d)
            s += double(query_.as<float>()[r * key_.padded() + d]) * double(keys_.values(t)[size_t(d)]);
        if (setup_.scores.soft_cap) s = kCap * std::tanh(s);
        if (setup_.scores.alibi) s += double(b.slope) * double(b.distance + float(t - first));
        if (setup_.scores.bias) s += double(bias_of(first)[r * kBlock + t - first]);
        return s;
    }
    const float* bias_of(int first) const {
        return bias_.as<float>() + (first > 0 ? setup_.rows * kBlock : 0);
    }

    // Query rows in whole vectors.
    size_t whole(size_t rows) const {
        const size_t lanes = size_t(setup_.target->lanes());
        return (rows + lanes - 1) / lanes * lanes;
    }

    void attend_block(int first, int count, const Surroundings& around, GuardedBuffer& output,
                      GuardedBuffer& max, GuardedBuffer& sum) {
        const size_t R = size_t(setup_.rows);
        const int padded = padded_keys(count);
        const GuardedBuffer next = KernelRows::nowhere(kBlock);
        const jit::Placement placement = kernels_.side_by_side.qk ? around.placement : jit::Placement::listed;
        const jit::DecodeKernels& of = placement == jit::Placement::runs ? of_runs_ : kernels_;
        const jit::BlockKernels& kernels = placement == jit::Placement::listed ? of.listed : of.side_by_side;
        const Rows rows = placed_rows(placement, first, count, padded);
        const int scales = jit::makes_scales(key_) ? padded + jit::kScalesAhead : padded;
        GuardedBuffer key_scales = array(size_t(key_.scales_floats(scales)), around.scratch, flush_),
                      value_scales = array(size_t(value_.scales_floats(padded)), around.scratch, flush_),
                      scores = array(R * kBlock + size_t(setup_.target->lanes()), around.scratch, flush_),
                      rescale = array(whole(R), around.scratch, flush_),
                      numbers =
                          array(jit::kMostNumbers * size_t(setup_.target->lanes()), around.scratch, flush_);
        std::vector<jit::RowBounds> list;
        for (int r = 0; r < setup_.rows; ++r) list.push_back(bounds(r, first, count));
        const GuardedBuffer bounds_array = GuardedBuffer::of(list, flush_);
        std::vector<float> added(bias_of(first), bias_of(first) + R * kBlock);
        const GuardedBuffer bias = GuardedBuffer::of(added, flush_),
                            block = array(kernels_.of_block ? whole(R) : 0, around.scratch, flush_),
                            tops = array(whole(R), around.scratch, flush_),
                            totals = array(whole(R), around.scratch, flush_);

        const auto address = [](const GuardedBuffer& b) { return b.as<const char*>(); };
        const WithTiles tiles{kernels_};
        if (kernels.key_scales)
            poisoned_call<jit::ScalesArgs>(
                kernels.key_scales, {address(rows.key_scales), key_scales.as<float>(), padded}, around.entry);
        poisoned_call<jit::QkArgs>(
            kernels.qk,
            {rounded_.query.data(),
             rounded_.factors.as<float>(),
             rounded_.starts.as<int32_t>(),
             address(rows.keys),
             key_scales.as<float>(),
             scores.as<float>(),
             padded,
             {address(next), address(next)},
             numbers.as<float>(),
             jit::reads_scales(of_placement(key_, placement)) ? address(rows.key_scales)[0] : nullptr},
            around.entry);
        poisoned_call<jit::SoftmaxArgs>(
            kernels_.softmax,
            {scores.as<float>(), bias.as<float>(), bounds_array.as<jit::RowBounds>(), max.as<float>(),
             sum.as<float>(), rescale.as<float>(), block.as<float>(), tops.as<float>(), totals.as<float>(),
             setup_.rows, padded, kCap},
            around.entry);
        const auto make_value_scales = [&] {
            poisoned_call<jit::ScalesArgs>(kernels.value_scales,
                                           {address(rows.value_scales), value_scales.as<float>(), padded},
                                           around.entry);
        };
        if (kernels.value_scales && !kernels.reads_value_scales) make_value_scales();
        const bool tokens = token_block_info(value_.format.type) != nullptr;
        GuardedBuffer last_scales;
        std::vector<const char*> stored;
        if (tokens && kernels.reads_value_scales)
            stored = stored_blocks(address(rows.values), count, &last_scales);
        else if (tokens)
            clear_dead(count, value_scales.as<float>());
        // As pairs of words; blocks of tokens may have floats.
        const bool folded = tokens && jit::token_weights_fold(value_),
                   digits = value_.products == jit::Products::three_bytes;
        const int stride = value_.bytes()                 ? jit::value_bytes_stride(value_, int(R))
                           : value_.scales_tiles()        ? jit::ScaledValueAmx::weight_stride(value_, int(R))
                           : jit::takes_value_amx(value_) ? jit::ValueAmx::weight_stride(value_)
                           : digits                       ? jit::ValueFours::weight_stride(value_)
                           : value_.scales_words()        ? jit::ScaledWords::weight_stride(value_, int(R))
                           : folded && value_.words()     ? jit::TokenWords(value_).weight_stride()
                           : folded                       ? value_.groups() * 2
                           : tokens                       ? 0
                           : jit::folds_scales(value_)    ? 2 * value_.scales_stride()
                                                          : value_.weight_stride();
        const size_t room = tokens ? 0 : size_t(setup_.target->lanes());  // a vector more may be read
        // Behind the last row there is no line that pads it.
        const size_t weights_length = R * size_t(jit::weight_row_bytes(2 * stride)) - jit::kWeightsPad;
        GuardedBuffer weights = array(stride ? weights_length / 4 + room : 0, around.scratch, flush_),
                      factors = array(R * size_t(stride) + room, around.scratch, flush_);
        const GuardedBuffer negative =
            GuardedBuffer::of(std::vector<uint32_t>(value_.bytes() ? 1 : 0), flush_);
        if (kernels_.minima)
            poisoned_call<jit::MinimaArgs>(
                kernels_.minima,
                {scores.as<float>(), value_scales.as<float>() + kernels_.minima_at, block.as<float>(),
                 rescale.as<float>(), output.as<float>(), padded, numbers.as<float>()},
                around.entry);
        const auto add_values = [&](const jit::Kernel<jit::WeightsArgs>& of_values) {
            if (of_values)
                poisoned_call<jit::WeightsArgs>(
                    of_values,
                    {scores.as<float>(), value_scales.as<float>(), weights.as<int16_t>(), factors.as<float>(),
                     padded, block.as<float>(), negative.as<uint32_t>(),
                     !kernels.reads_value_scales ? nullptr
                     : tokens                    ? static_cast<const void*>(stored.data())
                                                 : address(rows.value_scales)[0]},
                    around.entry);
            poisoned_call<jit::PvArgs>(kernels.pv,
                                       {kernels.weights ? weights.data() : scores.data(),
                                        address(rows.values),
                                        kernels.weights ? factors.as<float>() : value_scales.as<float>(),
                                        rescale.as<float>(),
                                        output.as<float>(),
                                        padded,
                                        {address(next), address(next)},
                                        numbers.as<float>()},
                                       around.entry);
        };
        add_values(kernels.weights);
        if (!value_.bytes() || *negative.as<uint32_t>() == 0) return;
        if (kernels.reads_value_scales) make_value_scales();
        // As src/attend_values.cc: magnitudes of the negative scales.
        for (int i = 0; i < padded * (tokens ? value_.groups() : value_.scales_stride()); ++i)
            value_scales.as<float>()[i] = std::max(0.f, -value_scales.as<float>()[i]);
        for (size_t r = 0; r < R; ++r) block.as<float>()[r] *= -1, rescale.as<float>()[r] = 1;
        add_values(of.listed.weights);
    }

    struct WithTiles {
        explicit WithTiles(const jit::DecodeKernels& decode) : kernels(decode) {
            if (kernels.tiles.begin) poisoned_call<jit::NoArgs>(kernels.tiles.begin, {}, Entry::nan);
        }
        ~WithTiles() {
            if (kernels.tiles.end) poisoned_call<jit::NoArgs>(kernels.tiles.end, {}, Entry::nan);
        }
        const jit::DecodeKernels& kernels;
    };

    static jit::RowKey of_placement(jit::RowKey key, jit::Placement placement) {
        key.placement = placement;
        return key;
    }

    struct Rows {
        GuardedBuffer keys, key_scales, values, value_scales;  // lists, of adjacent rows of one address each
        std::vector<GuardedBuffer> buffers;                    // of rows side by side
    };
    Rows placed_rows(jit::Placement placement, int first, int count, int padded) const {
        Rows rows;
        const auto list = [&](const KernelRows& of, bool scales) {
            return of.placed(placement, first, count, padded, scales, &rows.buffers);
        };
        rows.keys = list(keys_, false);
        if (placement != jit::Placement::adjacent) rows.keys = KernelRows::and_soon(rows.keys);
        rows.key_scales = list(keys_, true);
        rows.values = list(values_, false);
        if (placement != jit::Placement::adjacent) rows.values = KernelRows::and_soon(rows.values);
        rows.value_scales = list(values_, true);
        return rows;
    }

    // As src/attend_values.cc: what is past the last key has weight 0.
    void clear_dead(int count, float* scales) const {
        for (int t = count; t < padded_keys(count); ++t)
            for (int g = 0; g < value_.groups(); ++g)
                scales[(t / kBlockTokens * value_.groups() + g) * kBlockTokens + t % kBlockTokens] = 0;
    }

    // The same of blocks whose scales are read where they are: the last one's are copied.
    std::vector<const char*> stored_blocks(const char* const* values, int count, GuardedBuffer* last) const {
        const int codes = token_block_info(value_.format.type)->code_bytes(value_.dim),
                  groups = value_.groups();
        std::vector<const char*> stored;
        for (int t = 0; t < padded_keys(count); t += kBlockTokens) stored.push_back(values[t] + codes);
        if (count % kBlockTokens == 0) return stored;
        std::vector<uint16_t> scales(size_t(groups * kBlockTokens));
        std::memcpy(scales.data(), stored.back(), scales.size() * 2);
        for (int g = 0; g < groups; ++g)
            std::fill(scales.begin() + g * kBlockTokens + count % kBlockTokens,
                      scales.begin() + (g + 1) * kBlockTokens, uint16_t());
        *last = GuardedBuffer::of(scales, flush_);
        stored.back() = last->as<const char>();
        return stored;
    }

    const DecodeSetup setup_;
    const Flush flush_;
    const jit::RowKey key_, value_;
    Random random_;
    const KernelRows keys_, values_;
    GuardedBuffer query_, bias_;
    RoundedQuery rounded_;
    jit::DecodeKernels kernels_, of_runs_;
};

}  // namespace

void check_decode(const DecodeSetup& setup) {
    for (const Flush flush : {Flush::end, Flush::begin}) {
        Decode decode(setup, flush);
        Surroundings around;
        around.scratch = NAN;
        const Decode::Result poisoned = decode.run(around);
        decode.check(poisoned);
        around.entry = Entry::zero;
        around.scratch = 0;
        EXPECT_TRUE(decode.run(around) == poisoned)
            << setup.name() << ": registers or scratch show in the result";
        around.entry = Entry::nan;
        for (const jit::Placement placement : {jit::Placement::runs, jit::Placement::adjacent}) {
            around.placement = placement;
            EXPECT_TRUE(decode.run(around) == poisoned)
                << setup.name() << ": rows" << placement_name(placement) << " give another result";
        }
    }
}

}  // namespace quire::test
