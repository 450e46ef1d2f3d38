#include "jit/weights_runs.h"

#include <algorithm>
#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/weights_emitter.h"

namespace quire::jit {
namespace {

// for each run of keys:
//   for each set of groups:
//     top[g] = max over keys of scale[key][g]; NaN if one of them is                  emit_set
//     words[key][g] = round(scale[key][g] / top[g] * kScaleOfOne)
//   for each four rows:                                                               emit_rows
//     top[r] = max over keys of p[r]
//     factors[r][g] = top[r] * top[g] / 255 * the row's of the block                  emit_factors
//     p[r] = words round(p[r] / top[r] * kWordOfOne)
//     for r: weights[r][key][g] = max(round(p[r][key] * words[key][g] / 2^15), 0)     emit_weights
class WeightsRuns : public WeightsEmitter {
public:
    explicit WeightsRuns(const RowKey& key)
        : WeightsEmitter(key),
          form_(key),
          signs_(vec("signs")),
          least_(vec("least top")),
          order_(vec("order of tokens")) {
        begin();
        mov(weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        mov(blocks_, weights_);
        emit_blocks();
        zero(signs_);
        vmovups(least_, splat(kLeastTop));
        if (of_tokens()) vmovups(order_, constant(tokens_of_fours()));
        mov(scales_,
            ptr[args() + (reads_ ? offsetof(WeightsArgs, stored_scales) : offsetof(WeightsArgs, scales))]);
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        emit_run();
        add(scales_, reads_ ? ValueRuns::kRun * key_.scale_bytes()
                            : (of_tokens() ? key_.groups() : key_.scales_stride()) * vec_bytes());
        add(probabilities_, vec_bytes());
        add(weights_, ValueRuns::kBytes);
        sub(count_, ValueRuns::kRun);
        jnz(each, T_NEAR);
        write_signs();
        end();
    }

private:
    static constexpr int kSet = ValueRuns::kSet, kFour = ValueRuns::kFour;

    // Which of four rows each lane of their factors is of.
    static std::vector<uint32_t> rows_of_factors() {
        std::vector<uint32_t> rows;
        for (uint32_t i = 0; i < kFour * kSet; ++i) rows.push_back(i / kSet);
        return rows;
    }

    // What all factors of a row have in common. Codes of four bits are the upper bits of a byte.
    void emit_blocks() {
        stage("blocks");
        const float of_codes = is_of_nibbles(row_format(key_.format)) ? 1 / 16.f : 1;
        const Gpr block = gpr("block");
        Temp v(*this, "block"), rows(*this, "rows");
        mov(block, ptr[args() + offsetof(WeightsArgs, block)]);
        vmovups(rows, constant(rows_of_factors()));
        for (int row = 0; row < key_.rows; row += kFour) {
            vmovups(Xbyak::Xmm((*v).getIdx()), ptr[block + row * 4]);
            vpermps(z(v), z(rows), z(v));
            vmulps(v, v, splat(of_codes / ValueRuns::kLargest));
            vmovups(ptr[weights_ + form_.blocks_at(row)], *v);
        }
        free(block);
    }

    void emit_run() {
        std::vector<Vec> tops, words;
        for (int set = 0; set < form_.sets; ++set)
            of_tokens() ? emit_token_set(set, &tops, &words) : emit_set(set, &tops, &words);
        for (int row = 0; row < key_.rows; row += kFour) emit_rows(tops, words, row);
        free(tops);
        free(words);
    }

    int stride() const { return std::min(key_.scales_stride(), kSet); }  // of a set's scales
    int vectors() const { return stride(); }                             // of a run of them
    int groups_of(int set) const { return std::min(kSet, key_.groups() - set * kSet); }

    // The set's scales of the run, [keys][stride].
    std::vector<Vec> load_scales(int set) {
        const std::vector<Vec> v = vecs("scales", vectors());
        const int key_bytes = key_.scales_stride() * 4;
        for (int i = 0; i < vectors(); ++i) {
            if (form_.sets == 1) {
                reads_ ? load_half_lists(v[size_t(i)], scales_ + i * lanes() / stride() * key_.scale_bytes(),
                                         key_.groups(), stride())
                       : vmovups(v[size_t(i)], ptr[scales_ + i * vec_bytes()]);
                continue;
            }
            if (reads_) {
                std::vector<int> index;  // of the scales of four keys
                for (int lane = 0; lane < lanes(); ++lane)
                    index.push_back(lane / kSet * key_.groups() +
                                    std::min(set * kSet + lane % kSet, key_.groups() - 1));
                load_half_lanes(v[size_t(i)], scales_ + 4 * i * key_.scale_bytes(), index, 4 * key_.groups());
                continue;
            }
            std::vector<RegExp> at;
            for (int key = 4 * i; key < 4 * i + 4; ++key)
                at.push_back(scales_ + key * key_bytes + set * kSet * 4);
            load_quarters(v[size_t(i)], at);
        }
        return v;
    }

    // tops += those of the set's groups, in each 128 bits; words += words of its scales relative to them:
    // [4 fours of keys][2 groups][4 keys], of the first two groups, and the others.
    void emit_set(int set, std::vector<Vec>* tops, std::vector<Vec>* words) {
        stage("scales from group " + std::to_string(set * kSet));
        const std::vector<Vec> v = load_scales(set);
        const Vec top = vec("tops of groups");
        emit_top_scales(top, v, set);
        Temp inverse(*this, "inverse");
        emit_inverse_of(inverse, top, kScaleOfOne);
        for (const Vec& scale : v) {
            vmulps(scale, scale, inverse);
            vcvtps2dq(scale, scale);
        }
        for (int i = 0; i < vectors(); i += 2) vpackusdw(v[size_t(i)], v[size_t(i)], v[size_t(i + 1)]);
        for (int first = 0; first < groups_of(set); first += 2) {
            const Vec of_two = vec("words of scales");
            vmovups(of_two, constant(words_of_two(first)));
            vpermi2w(of_two, v[0], v[vectors() > 2 ? 2 : 0]);
            words->push_back(of_two);
        }
        tops->push_back(top);
        free(v);
    }

    // The same, where each group has a vector of scales.
    void emit_token_set(int set, std::vector<Vec>* tops, std::vector<Vec>* words) {
        stage("scales from group " + std::to_string(set * kSet));
        const int groups = groups_of(set);
        const std::vector<Vec> v = vecs("scales", groups);
        for (int g = 0; g < groups; ++g) {
            vpermps(z(v[size_t(g)]), z(order_), ptr[scales_ + (set * kSet + g) * vec_bytes()]);
            vpord(signs_, signs_, v[size_t(g)]);
        }
        const Vec top = vec("tops of groups");
        emit_top_of_each(top, v,
                         [&](const Xbyak::Xmm& to, const Xbyak::Xmm& from) { vpmaxsd(to, to, from); });
        Temp inverse(*this, "inverse");
        emit_inverse_of(inverse, top, kScaleOfOne);
        for (int g = 0; g < groups; ++g) {
            Temp of_group(*this, "of the group");
            vpermilps(of_group, inverse, uint8_t(g * 0x55));
            vmulps(v[size_t(g)], v[size_t(g)], of_group);
            vcvtps2dq(v[size_t(g)], v[size_t(g)]);
        }
        tops->push_back(top);
        for (int g = 0; g < groups; g += 2) {
            const Vec of_two = vec("words of scales");
            vpackusdw(of_two, v[size_t(g)], v[size_t(std::min(g + 1, groups - 1))]);
            words->push_back(of_two);
        }
        free(v);
    }

    // Where the packed words of two groups are.
    std::vector<uint32_t> words_of_two(int first) const {
        const int keys = lanes() / stride(), of_quarter = 4 / stride();  // of a vector
        const auto place = [&](int key, int group) {
            const int vector = key / keys, quarter = key % keys / of_quarter;
            return uint32_t(vector / 2 * 32 + quarter * 8 + vector % 2 * 4 + key % of_quarter * stride() +
                            group);
        };
        std::vector<uint32_t> index;
        for (int i = 0; i < lanes(); ++i) {
            const int key = i / 4 * 4 + i % 2 * 2, group = first + i % 4 / 2;
            index.push_back(place(key, group) | place(key + 1, group) << 16);
        }
        return index;
    }

    // As integers, bits of larger numbers are larger, and those of NaN the largest.
    void emit_top_scales(const Vec& top, const std::vector<Vec>& v, int set) {
        Temp other(*this, "other");
        vmovaps(top, least_);
        for (const Vec& scale : v) {
            vpmaxsd(top, top, scale);
            if (groups_of(set) < stride()) {
                vpandd(other, scale, constant(groups_mask(set)));
                vpord(signs_, signs_, other);
            } else {
                vpord(signs_, signs_, scale);
            }
        }
        for (int distance = stride(); distance < lanes(); distance *= 2) {
            swap_lanes(other, top, distance);
            vpmaxsd(top, top, other);
        }
    }

    // What lies behind the last group is none.
    std::vector<uint32_t> groups_mask(int set) const {
        std::vector<uint32_t> mask;
        for (int i = 0; i < lanes(); ++i) mask.push_back(i % stride() < groups_of(set) ? 0xffffffff : 0);
        return mask;
    }

    // inverse = one / top, of which all 128 bits are alike.
    void emit_inverse_of(const Vec& inverse, const Vec& top, float one) {
        vmovups(x(inverse), splat(one));
        vdivps(x(inverse), x(inverse), x(top));
        vshuff32x4(z(inverse), z(inverse), z(inverse), 0);
    }

    void emit_rows(const std::vector<Vec>& tops, const std::vector<Vec>& words, int row) {
        stage("rows from " + std::to_string(row));
        const int rows = std::min(kFour, key_.rows - row);
        const std::vector<Vec> p = vecs("p", rows);
        for (int r = 0; r < rows; ++r) {
            const Address at = ptr[row_at(row + r)];
            of_tokens() ? vpermps(z(p[size_t(r)]), z(order_), at) : vmovups(p[size_t(r)], at);
        }
        Temp top(*this, "tops of rows"), inverse(*this, "inverse");
        emit_top_of_each(top, p,
                         [&](const Xbyak::Xmm& to, const Xbyak::Xmm& from) { vpmaxud(to, to, from); });
        emit_factors(top, tops, row);
        emit_inverse_of(inverse, top, kWordOfOne);
        for (int r = 0; r < rows; ++r) {
            const Vec& v = p[size_t(r)];
            {
                Temp of_row(*this, "of the row");
                vpermilps(of_row, inverse, uint8_t(r * 0x55));
                vmulps(v, v, of_row);
            }
            vcvtps2dq(v, v);
            vpackusdw(v, v, v);  // each four keys twice, as scales have two groups of them
            for (int set = 0; set < form_.sets; ++set) emit_weights(words, v, set, row + r);
        }
        free(p);
    }

    // Lane i of each 128 bits: the largest of of[i], or of the last one; not below kLeastTop.
    void emit_top_of_each(const Vec& top, const std::vector<Vec>& of, const FoldInto& into) {
        std::vector<Vec> v = vecs("folded", 3);
        v.insert(v.begin(), top);
        for (size_t i = 0; i < v.size(); ++i) vmovaps(v[i], of[std::min(i, of.size() - 1)]);
        fold_four(v.data(), into);
        into(top, least_);
        v.erase(v.begin());
        free(v);
    }

    void emit_factors(const Vec& top, const std::vector<Vec>& tops, int row) {
        Temp of_rows(*this, "of rows"), factors(*this, "factors");
        vmovups(of_rows, constant(rows_of_factors()));
        vpermps(z(of_rows), z(of_rows), z(top));
        vmulps(of_rows, of_rows, ptr[blocks_ + form_.blocks_at(row)]);
        for (int set = 0; set < form_.sets; ++set) {
            vmulps(factors, of_rows, tops[size_t(set)]);
            vmovups(ptr[weights_ + form_.factors_at(set, row)], *factors);
        }
    }

    void emit_weights(const std::vector<Vec>& words, const Vec& p, int set, int row) {
        constexpr int kPairs = kSet / 2;
        Temp w(*this, "weights"), last(*this, "of the last groups");
        const bool two = groups_of(set) > kPairs;
        vpmulhrsw(w, p, words[size_t(set * kPairs)]);
        if (two) vpmulhrsw(last, p, words[size_t(set * kPairs + 1)]);
        vpackuswb(w, w, two ? last : w);
        vmovups(ptr[weights_ + form_.weights_at(set, row)], *w);
    }

    void write_signs() {
        const Gpr negative = gpr("negative");
        mov(negative, ptr[args() + offsetof(WeightsArgs, negative)]);
        vpmovd2m(k1, z(signs_));
        kmovw(eax, k1);
        mov(ptr[negative], eax);
        free(negative);
    }

    static Xbyak::Xmm x(const Vec& v) { return Xbyak::Xmm(v.getIdx()); }
    static Xbyak::Zmm z(const Vec& v) { return Xbyak::Zmm(v.getIdx()); }

    const ValueRuns form_;
    const bool reads_ = reads_value_scales(key_);
    const Vec signs_, least_, order_;
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), blocks_ = gpr("of blocks");
};

}  // namespace

// All elements of a step are of one group. Not ggml's of nibbles, half of whose scales are negative.
bool has_value_runs(const RowKey& values) {
    const int elements = ValueRuns::kVecs * values.target->lanes(), group = scale_group(values.format);
    if (token_block_info(values.format.type))
        return values.target->vnni && values.target->lanes() == ValueRuns::kRun &&
               values.dim % values.target->lanes() == 0 && values.groups() <= ValueRuns::kMostTokenGroups;
    const bool has_signs = block_info(values.format.type) && is_of_nibbles(values.format);
    return values.target->vbmi && values.target->vnni && values.target->lanes() == ValueRuns::kRun &&
           has_bytes(values.format) && !has_signs && values.dim % elements == 0 && group % elements == 0 &&
           values.scales_stride() <= values.target->lanes() / 2;
}

Status generate_weights_runs(const RowKey& key, std::vector<uint8_t>* code) {
    return WeightsRuns(key).finish(code);
}

}  // namespace quire::jit
