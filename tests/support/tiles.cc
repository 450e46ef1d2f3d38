#include "tests/support/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "jit/kernels_make.h"
#include "src/half.h"
#include "tests/support/rounded_tile_query.h"
#include "tests/support/run.h"
#include "tests/support/tile_packing.h"

namespace quire::test {
namespace {

constexpr float kCap = 3;  // in log2 units

// A panel of query rows against a full tile of keys and one that is not full.
class Tiles {
public:
    Tiles(const TileSetup& setup, Flush flush)
        : setup_(setup),
          flush_(flush),
          key_{setup.target, setup.keys.format, setup.keys.dim, 0},
          value_{setup.target, setup.values.format, setup.values.dim, 0},
          lanes_(setup.vecs * setup.target->lanes()),
          rows_(setup.few > 0 ? setup.few : lanes_),
          random_(setup.vecs, uint64_t(setup.keys.dim)),
          keys_(key_, kKeys, &random_, flush),
          values_(value_, kKeys, &random_, flush) {
        key_.products = key_products(key_, setup.products);
        value_.products = value_products(value_, setup.products);
        make_kernels();
        query_ = array(size_t(key_.dim * lanes_), 0.f, flush);
        for (int i = 0; i < key_.dim * lanes_; ++i)
            query_.as<float>()[i] = random_.normal() / std::sqrt(float(key_.dim));
        if (key_.products != jit::Products::floats) {
            const RoundedTileQuery rounded = round_tile_query(key_, query_.as<float>(), lanes_);
            rounded_ = GuardedBuffer::of(rounded.lanes, flush);
            factors_ = GuardedBuffer::of(rounded.factors, flush);
        }
        for (int i = 0; i < kKeys * lanes_; ++i)
            bias_.push_back(random_.below(9) == 0 ? -INFINITY : random_.normal());
        for (int r = 0; r < lanes_; ++r) slope_.push_back(0.02f * float(r % 7));
    }

    struct Result {
        std::vector<uint8_t> output, max, sum;
        bool operator==(const Result& o) const { return output == o.output && max == o.max && sum == o.sum; }
    };

    Result run(const Surroundings& around) {
        runs_ = GuardedBuffer::of(
            std::vector<jit::LineRun>{
                {4096 + jit::kWritten, 4096 + 300}, {8192 + jit::kSecondLevel, 8192 + 3}, {0, 0}},
            flush_);
        ahead_ = GuardedBuffer::of(
            std::vector<jit::LinesAhead>{{64, 100, runs_.as<jit::LineRun>(), jit::kLineBytes}}, flush_);
        GuardedBuffer output = array(
                          size_t(of_few() ? rows_ * value_.padded()
                                          : packing_->value_panels() * packing_->panel_values() * lanes_),
                          NAN, flush_),
                      max = array(size_t(lanes_), -INFINITY, flush_),
                      sum = array(size_t(lanes_), 0.f, flush_);
        relative_ = false;
        if (tiles_.begin) poisoned_call<jit::NoArgs>(tiles_.begin, {}, around.entry);
        attend_tile(0, kFirst, around, output, max, sum);
        check_ahead();
        attend_tile(kFirst, kSecond, around, output, max, sum);
        attend_tile(kFirst + kSecond, kThird, around, output, max, sum);
        if (tiles_.end) poisoned_call<jit::NoArgs>(tiles_.end, {}, around.entry);
        return {output.bytes(), max.bytes(), sum.bytes()};
    }

    void check(const Result& result) const {
        // Far above rounding, far below any mistake. Keys, queries and values as bfloat16 are those that the
        // definition takes too; a probability then is off by 5e-3 of it at most (jit/bfloat_exp2.h), and so
        // is their sum, here in log2. Sums of bytes are rounded to some units of the products.
        const bool words = key_.words() || key_.query_bytes() == 2 || value_.words();
        const double tolerance = key_.bytes() ? 5e-3 : words ? 5e-4 : 2e-5;
        const double of_probabilities = has_pairs() ? 5.1e-3 : 0, of_sums = has_pairs()      ? 7.3e-3
                                                                            : value_.bytes() ? 1e-3
                                                                                             : 0;
        const auto* output = reinterpret_cast<const float*>(result.output.data());
        const auto* max = reinterpret_cast<const float*>(result.max.data());
        const auto* sum = reinterpret_cast<const float*>(result.sum.data());
        const std::vector<double> largest = largest_values();
        for (int r = 0; r < rows_; ++r) {
            std::vector<double> wanted(size_t(value_.dim)), magnitude(size_t(value_.dim)), scores;
            for (int t = 0; t < kKeys; ++t) scores.push_back(score(r, t));
            const double top = *std::max_element(scores.begin(), scores.end());
            if (top == -INFINITY) {  // nothing of it is seen
                ASSERT_TRUE(max[r] == -INFINITY && sum[r] == 0) << setup_.name() << " row " << r;
                continue;
            }
            // One score, of which the sum takes the mean with others.
            ASSERT_NEAR(double(max[r]), expected_max(scores), 2 * tolerance) << setup_.name() << " row " << r;
            double total = 0, of_weights = 0;
            for (int t = 0; t < kKeys; ++t) {
                const double weight = std::exp2(scores[size_t(t)] - top);
                total += weight;
                if (value_.bytes()) of_weights += kOfWeight * run_weight(scores, t, top) * largest[size_t(t)];
                for (int d = 0; d < value_.dim; ++d) {
                    const double value = double(number(value_, values_.values(t)[size_t(d)]));
                    wanted[size_t(d)] += weight * value;
                    magnitude[size_t(d)] += weight * std::fabs(value);
                }
            }
            ASSERT_NEAR(double(max[r]) + std::log2(double(sum[r])), top + std::log2(total),
                        tolerance + of_sums)
                << setup_.name();
            for (int d = 0; d < value_.dim; ++d)
                ASSERT_NEAR(
                    double(output[of_few() ? r * value_.padded() + d : d * lanes_ + r]) / double(sum[r]),
                    wanted[size_t(d)] / total,
                    tolerance + (of_weights + of_probabilities * magnitude[size_t(d)]) / total)
                    << setup_.name() << " row " << r << " element " << d;
        }
    }

    bool takes_lists() const {
        if (!packing_->kernels().value_lists) return false;
        for (int t = 0; t < kKeys; ++t)
            for (int g = 0; g < value_.groups(); ++g)
                if (std::signbit(values_.scale(t, g))) return false;
        return true;
    }

private:
    // A whole tile, one of whole steps, as kernels of QK with softmax take it, and one of others.
    static constexpr int kFirst = jit::kTileKeys, kSecond = 2 * jit::kKeyPadding, kThird = 21,
                         kKeys = kFirst + kSecond + kThird;

    bool of_few() const { return setup_.few > 0; }
    void make_kernels() {
        jit::CodeCache& cache = test_code_cache();
        const jit::ScoreKey& scores = setup_.scores;
        packing_.emplace(key_, value_, of_few(), setup_.name(), flush_);
        const Status made = of_few() ? make_few_kernels(cache, key_, value_, scores, rows_, &kernels_)
                                     : make_tile_kernels(cache, key_, value_, scores, setup_.vecs, &kernels_);
        EXPECT_TRUE(made.ok()) << setup_.name();
        EXPECT_TRUE(!setup_.target->amx || make_amx_tiles(cache, *setup_.target, &tiles_).ok());
    }

    int panels() const { return (value_.dim + jit::kValuePanel - 1) / jit::kValuePanel; }

    // What tiles hold of a number.
    static float number(const jit::RowKey& key, float x) {
        return key.bfloats() ? bfloat_to_float(float_to_bfloat(x)) : x;
    }

    // The products have gone on from line to line, and stay with the last one: a tile has more steps than
    // these lines.
    void check_ahead() const {
        EXPECT_EQ(ahead_.as<jit::LinesAhead>()->line, 8192u + jit::kSecondLevel) << setup_.name();
        EXPECT_EQ(ahead_.as<jit::LinesAhead>()->step, 0u) << setup_.name();
        EXPECT_EQ(ahead_.as<jit::LinesAhead>()->next, runs_.as<jit::LineRun>() + 2) << setup_.name();
    }

    // A weight that is a byte is off by half a unit, or a little more, of the largest of its run's.
    static constexpr double kOfWeight = .6 / jit::kLargestByte;
    static int run_begin(int t) { return t / jit::kWeightRun * jit::kWeightRun; }
    static int run_end(int t) { return std::min(run_begin(t) + jit::kWeightRun, kKeys); }
    static double run_weight(const std::vector<double>& scores, int t, double top) {
        return std::exp2(*std::max_element(scores.begin() + run_begin(t), scores.begin() + run_end(t)) - top);
    }
    // Of each key's run: what its largest scale makes of the largest code.
    std::vector<double> largest_values() const {
        std::vector<double> list;
        for (int t = 0; t < kKeys; ++t) {
            double largest = 0;
            for (int i = run_begin(t); i < run_end(t); ++i)
                for (int d = 0; d < value_.dim; ++d)
                    largest = std::max(largest, std::fabs(double(values_.values(i)[size_t(d)])));
            list.push_back(largest);
        }
        return list;
    }

    // Keys that row r sees of the tile at `first`. Each vector of rows sees more than the one before.
    void bounds(int r, int first, int count, int32_t* begin, int32_t* end) const {
        const int later = (kThird + 1) / 2 * (setup_.vecs - 1 - r / setup_.target->lanes());
        *begin = setup_.masked ? std::clamp(3 * (r % 50) - first, 0, count) : 0;
        *end = setup_.masked ? std::clamp(kKeys - 2 * (r % 9) - later - first, 0, count) : count;
    }
    // What each vector's rows see at most, in whole steps.
    jit::SeenKeys seen(int first, int count, int step) const {
        jit::SeenKeys keys{};
        for (int r = 0; r < lanes_; ++r) {
            int32_t begin = 0, end = 0;
            bounds(r, first, count, &begin, &end);
            for (size_t w = size_t(r / setup_.target->lanes()); w < keys.size(); ++w)
                keys[w] = std::max<int64_t>(keys[w], (end + step - 1) / step * step);
        }
        return keys;
    }
    static float distance(int r, int first) { return float(first - 200 - r); }

    double score(int r, int t) const {
        const int first = t < kFirst ? 0 : t < kFirst + kSecond ? kFirst : kFirst + kSecond;
        int32_t begin = 0, end = 0;
        bounds(r, first, first == 0 ? kFirst : first == kFirst ? kSecond : kThird, &begin, &end);
        if (t - first < begin || t - first >= end) return -INFINITY;
        double s = 0;
        for (int d = 0; d < key_.dim; ++d)
            s +=
                double(query_.as<float>()[d * lanes_ + r]) * double(number(key_, keys_.values(t)[size_t(d)]));
        if (setup_.scores.soft_cap) s = kCap * std::tanh(s);
        if (setup_.scores.alibi)
            s += double(slope_[size_t(r)]) * double(distance(r, first) + float(t - first));
        if (setup_.scores.bias) s += double(bias_[size_t(t * lanes_ + r)]);
        return s;
    }

    // Of `length` keys, the last of which nobody sees.
    std::vector<float> bias_of(int first, int count, int length) const {
        std::vector<float> bias(bias_.begin() + first * lanes_, bias_.begin() + (first + count) * lanes_);
        bias.resize(size_t(length * lanes_), NAN);
        return bias;
    }

    // Whether QK with softmax is tried with the second tile.
    bool takes_relative() const { return kernels_.qk_softmax && !setup_.masked; }
    bool has_pairs() const { return packing_->kernels().probability_pairs; }

    // How far scores of the second tile exceed the largest of their row in the first one.
    double growth() const {
        double most = -INFINITY;
        for (int r = 0; r < rows_; ++r) {
            double before = -INFINITY, now = -INFINITY;
            for (int t = 0; t < kFirst; ++t) before = std::fmax(before, score(r, t));
            for (int t = kFirst; t < kFirst + kSecond; ++t) now = std::fmax(now, score(r, t));
            most = std::fmax(most, now - before);
        }
        return most;
    }

    // Of a row of these scores, as kernels leave it.
    double expected_max(const std::vector<double>& scores) const {
        const auto largest = [&](int from, int count) {
            return *std::max_element(scores.begin() + from, scores.begin() + from + count);
        };
        const double first = largest(0, kFirst), second = largest(kFirst, kSecond),
                     third = largest(kFirst + kSecond, kThird), above = double(jit::kHeadroom);
        if (key_.bfloats() && value_.bfloats() && setup_.target->amx) {  // TileSoftmaxKey::goes_above
            double max = -INFINITY;
            for (const double score : {first, second, third}) max = score > max ? score + above : max;
            return max;
        }
        return std::fmax(!relative_ ? std::fmax(first, second) : first + (has_pairs() ? above : 0), third);
    }

    // False, and max and sum are as they were: scores exceed those before by more than kHeadroom.
    bool score_relative(jit::TileQkArgs qk, const Surroundings& around, GuardedBuffer& max,
                        GuardedBuffer& sum, GuardedBuffer& rescale) {
        const size_t L = size_t(lanes_);
        const std::vector<uint8_t> max_before = max.bytes(), sum_before = sum.bytes();
        GuardedBuffer scaled = array(L, around.scratch, flush_), total = array(L, around.scratch, flush_),
                      top = array(L, -INFINITY, flush_);
        const std::vector<jit::RelativeTops> tops{{max.as<float>(), top.as<float>(), sum.as<float>(),
                                                   rescale.as<float>(), scaled.as<float>(), total.as<float>(),
                                                   -1}};
        GuardedBuffer relative = GuardedBuffer::of(tops, flush_);
        qk.relative = relative.as<jit::RelativeTops>();
        poisoned_call<jit::TileQkArgs>(kernels_.qk_softmax, qk, around.entry);
        relative_ = qk.relative->fails == 0;
        const double over = growth() - double(jit::kHeadroom);
        if (std::fabs(over) > .01) {
            EXPECT_EQ(relative_, over < 0) << setup_.name() << ", by " << over;
        }
        if (!relative_) {
            EXPECT_TRUE(max.bytes() == max_before && sum.bytes() == sum_before) << setup_.name();
        }
        return relative_;
    }

    void attend_tile(int first, int count, const Surroundings& around, GuardedBuffer& output,
                     GuardedBuffer& max, GuardedBuffer& sum) {
        auto* const ahead = ahead_.as<jit::LinesAhead>();
        TilePacking::Packed tile = packing_->pack(keys_, values_, first, count, around, ahead);
        const int padded = padded_keys(count);
        const size_t L = size_t(lanes_);
        GuardedBuffer scores = array(size_t(padded) * L, around.scratch, flush_),
                      rescale = array(L, around.scratch, flush_);
        std::vector<int32_t> begin(L), end(L);
        std::vector<float> away(L);
        for (int r = 0; r < lanes_; ++r) {
            bounds(r, first, count, &begin[size_t(r)], &end[size_t(r)]);
            away[size_t(r)] = distance(r, first);
        }
        const auto guarded = [&](const auto& list) { return GuardedBuffer::of(list, flush_); };
        const GuardedBuffer begins = guarded(begin), ends = guarded(end), slopes = guarded(slope_),
                            distances = guarded(away),
                            bias = guarded(bias_of(first, count, has_pairs() ? padded : count));
        // QK finds the maximum of whole steps.
        const bool masked = setup_.masked || (has_pairs() && padded != count) || count % jit::kTileStep != 0;
        GuardedBuffer new_max = array(L, around.scratch, flush_);
        const int64_t plain = setup_.masked ? 0 : count - 1;
        GuardedBuffer packed = array(size_t(2 * jit::kTileStep * key_.tile_lanes()), around.scratch, flush_);
        const jit::TileQkArgs qk{key_.products == jit::Products::floats ? query_.data() : rounded_.data(),
                                 packing_->kernels().keys ? tile.keys.data() : tile.key_rows.data(),
                                 scores.as<float>(),
                                 (count + jit::kTileStep - 1) / jit::kTileStep * jit::kTileStep,
                                 tile.key_scales.as<float>(),
                                 factors_.as<float>(),
                                 new_max.as<float>(),
                                 ahead,
                                 seen(first, count, jit::kTileStep),
                                 nullptr,
                                 packed.data()};
        const bool tries = takes_relative() && first == kFirst;
        if (!tries || !score_relative(qk, around, max, sum, rescale)) {
            std::copy_n(max.as<float>(), L, new_max.as<float>());
            poisoned_call<jit::TileQkArgs>(kernels_.qk, qk, around.entry);
            poisoned_call<jit::TileSoftmaxArgs>(
                masked ? kernels_.softmax_masked : kernels_.softmax,
                {scores.as<float>(), bias.as<float>(), begins.as<int32_t>(), ends.as<int32_t>(),
                 slopes.as<float>(), distances.as<float>(), max.as<float>(), new_max.as<float>(),
                 sum.as<float>(), rescale.as<float>(), has_pairs() ? padded : count, plain, kCap},
                around.entry);
        }
        const float* const rescaling = first == 0 ? nullptr : rescale.as<float>();
        const bool of_numbers = of_few() && !kernels_.weights;
        if ((kernels_.weights || of_numbers) && !has_pairs())
            std::fill(scores.as<float>() + count * lanes_, scores.as<float>() + padded * lanes_, 0.f);
        if (!kernels_.weights) {
            GuardedBuffer weights =
                array(of_numbers ? size_t(2 * jit::kTileKeys * lanes_) : 0, around.scratch, flush_);
            return poisoned_call<jit::TilePvArgs>(
                kernels_.pv,
                {scores.as<float>(), of_numbers ? tile.value_rows.data() : tile.values.data(), rescaling,
                 output.as<float>(), of_numbers || has_pairs() ? padded : count, panels(), nullptr, nullptr,
                 ahead, tile.value_scales.as<float>(), weights.data(),
                 seen(first, count, has_pairs() ? 2 : 1)},
                around.entry);
        }
        const bool bytes = value_.bytes();
        const size_t groups = size_t(value_.groups()), factor_rows = bytes ? groups * jit::kWeightRuns : 1;
        const int stride = bytes ? jit::tile_byte_weight_stride(lanes_) : jit::tile_weight_stride(lanes_);
        GuardedBuffer weights = array(groups * size_t(stride), around.scratch, flush_),
                      factors = array(factor_rows * L, around.scratch, flush_);
        const GuardedBuffer tops = packing_->relate(tile.value_scales, padded, around.entry);
        poisoned_call<jit::TileWeightsArgs>(kernels_.weights,
                                            {scores.as<float>(), tile.value_scales.as<float>(),
                                             weights.data(), factors.as<float>(), tops.as<float>(), padded},
                                            around.entry);
        GuardedBuffer room =
            array(takes_lists() ? size_t(jit::kTileKeys * lanes_ / 2) : 0, around.scratch, flush_);
        const bool lists = takes_lists() || !packing_->kernels().values;
        poisoned_call<jit::TilePvArgs>(takes_lists() ? kernels_.pv_lists : kernels_.pv,
                                       {weights.data(),
                                        lists ? tile.value_rows.data() : tile.values.data(),
                                        rescaling,
                                        output.as<float>(),
                                        padded,
                                        panels(),
                                        factors.as<float>(),
                                        tops.as<float>(),
                                        ahead,
                                        nullptr,
                                        room.data(),
                                        {}},
                                       around.entry);
    }

    const TileSetup setup_;
    const Flush flush_;
    jit::RowKey key_, value_;
    const int lanes_, rows_;
    Random random_;
    const KernelRows keys_, values_;
    GuardedBuffer query_, rounded_, factors_, runs_, ahead_;
    bool relative_ = false;  // the second tile was one of QK with softmax
    std::vector<float> bias_, slope_;
    std::optional<TilePacking> packing_;
    jit::AmxTiles tiles_;
    jit::TileKernels kernels_;
};

}  // namespace

bool check_tiles(const TileSetup& setup) {
    bool lists = false;
    for (const Flush flush : {Flush::end, Flush::begin}) {
        Tiles tiles(setup, flush);
        Surroundings around;
        const Tiles::Result poisoned = tiles.run(around);
        tiles.check(poisoned);
        around.entry = Entry::zero;
        around.scratch = 0;
        EXPECT_TRUE(tiles.run(around) == poisoned)
            << setup.name() << ": registers or scratch show in the result";
        lists = lists || tiles.takes_lists();
    }
    return lists;
}

}  // namespace quire::test
