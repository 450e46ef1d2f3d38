#include "jit/weights_bytes.h"

#include <algorithm>
#include <cstddef>

#include "jit/weights_bytes_emitter.h"
#include "jit/weights_runs.h"

namespace quire::jit {

void WeightsBytesEmitter::generate() {
    begin();
    mov(weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
    for (int set = 0; set < form_.sets; ++set) {
        stage("groups from " + std::to_string(set * ValueBytes::kSet));
        Temp top(*this, "top");
        emit_top(top, set);
        vmovups(ptr[weights_ + form_.tops_at(set)], x(top));
        lea(words_, ptr[weights_ + form_.scales_at(set)]);
        emit_scales(top, set);
    }
    for (int row = 0; row < key_.rows; row += kTransposed) {
        const int rows = std::min(kTransposed, key_.rows - row);
        form_.by_fours() ? emit_probabilities_by_fours(row, rows) : emit_probabilities(row, rows);
    }
    for (int set = 0; set < form_.sets; ++set) emit_rows(set);
    end();
}

void WeightsBytesEmitter::emit_probabilities(int row, int rows) {
    stage("probabilities from row " + std::to_string(row));
    const Gpr runs = gpr("runs");
    mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
    if (row > 0) add(probabilities_, row * kBlock * 4);
    lea(runs, ptr[weights_ + form_.runs_at(row, 0)]);
    hold_order();
    mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
    Label each;
    L(each);
    emit_tops(rows);
    for (int r = 0; r < rows; ++r) {
        const RegExp run = runs + r * ValueBytes::kRowBytes;
        Temp inverse(*this, "inverse"), factor(*this, "factor"), p(*this, "p");
        broadcast(inverse, ptr[inverse_at(r)]);
        broadcast(factor, ptr[run_factor_at(r)]);
        for (int turn = 0; turn < kTurns; ++turn) {
            const int at = turn * ValueBytes::kTurnBytes;
            load_ordered(p, row_at(r) + turn * kTurn * 4);
            store_words_of(p, inverse, run + form_.probabilities_at(0) - form_.runs_at(0, 0) + at);
            vmovups(ptr[run + at], *factor);
        }
    }
    add(probabilities_, ValueBytes::kOfNibbles.run * 4);
    add(runs, kTurns * ValueBytes::kTurnBytes);
    sub(count_, ValueBytes::kOfNibbles.run);
    jnz(each, T_NEAR);
    drop_order();
    free(runs);
}

// Changes p.
void WeightsBytesEmitter::store_words_of(const Vec& p, const Vec& inverse, const RegExp& to) {
    vmulps(p, p, inverse);
    vcvtps2dq(p, p);
    vpackssdw(p, p, p);  // each four keys twice, as scales have two groups of them
    vmovups(ptr[to], p);
}

// Of up to four rows side by side.
void WeightsBytesEmitter::emit_tops(int rows) {
    const std::vector<Vec> top = vecs("top", kTransposed);
    for (int r = 0; r < kTransposed; ++r) {
        const RegExp row = row_at(std::min(r, rows - 1));
        vmovups(top[size_t(r)], ptr[row]);
        for (int turn = 1; turn < kTurns; ++turn)
            vmaxps(top[size_t(r)], top[size_t(r)], ptr[row + turn * kTurn * 4]);
    }
    fold_quarters(top.data(), [&](const Vec& to, const Vec& from) { vmaxps(to, to, from); });
    const Xbyak::Xmm of_rows = x(top[0]), other = x(top[1]), factor = x(top[2]);
    vextractf128(other, y(top[0]), 1);
    vmaxps(of_rows, of_rows, other);
    vmaxps(of_rows, of_rows, splat(kLeastTop));
    vmulps(factor, of_rows, splat(float(form_.form.most_factor)));
    vmovups(other, splat(of_probability()));
    vdivps(other, other, of_rows);
    vmovups(ptr[inverse_at(0)], other);
    vcvtps2dq(factor, factor);
    vpslld(other, factor, 16);
    vpor(factor, factor, other);
    vmovups(ptr[run_factor_at(0)], factor);
    free(top);
}

void WeightsBytesEmitter::write_signs(const Vec& signs, int set, uint32_t lanes) {
    const Gpr negative = gpr("negative");
    mov(negative, ptr[args() + offsetof(WeightsArgs, negative)]);
    vmovmskps(eax, y(signs));
    and_(eax, lanes);
    set == 0 ? mov(ptr[negative], eax) : or_(ptr[negative], eax);
    free(negative);
}

void WeightsBytesEmitter::emit_rows(int set) {
    stage("weights from group " + std::to_string(set * ValueBytes::kSet));
    const Gpr of_set = gpr("of set"), probabilities = gpr("words of probabilities"), factors = gpr("factors"),
              block = gpr("block"), left = gpr("rows"), at = gpr("at");
    lea(of_set, ptr[weights_ + form_.weights_at(0, set)]);
    lea(probabilities, ptr[weights_ + form_.probabilities_at(0)]);
    lea(words_, ptr[weights_ + form_.scales_at(set)]);
    mov(factors, ptr[args() + offsetof(WeightsArgs, factors)]);
    if (set > 0) add(factors, form_.factor_at(0, set));
    mov(block, ptr[args() + offsetof(WeightsArgs, block)]);
    mov(left, key_.rows);
    Label each_row, each;
    L(each_row);
    mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
    xor_(at, at);
    L(each);
    for (int i = 0; i < kTogether / kTurn; ++i) {
        Temp low(*this, "low"), high(*this, "high");
        const RegExp turn = at + i * ValueBytes::kTurnBytes;
        vmovups(high, ptr[probabilities + turn]);
        vpmulhrsw(low, high, ptr[words_ + at * 2 + 2 * i * vec_bytes()]);
        vpmulhrsw(high, high, ptr[words_ + at * 2 + (2 * i + 1) * vec_bytes()]);
        vpackuswb(low, low, high);
        vmovups(ptr[of_set + turn], *low);
    }
    add(at, kTogether / kTurn * ValueBytes::kTurnBytes);
    sub(count_, kTogether);
    jnz(each, T_NEAR);
    {
        Temp factor(*this, "factor");
        broadcast(x(factor), ptr[block]);
        const int largest = form_.form.most_weight * form_.form.most_factor;
        vmulps(x(factor), x(factor), splat(1.f / float(largest)));
        vmulps(x(factor), x(factor), ptr[weights_ + form_.tops_at(set)]);
        vmovups(ptr[factors], x(factor));
    }
    add(probabilities, ValueBytes::kRowBytes);
    add(of_set, form_.weights_at(1, 0));
    add(factors, form_.factor_at(1, 0));
    add(block, 4);
    dec(left);
    jnz(each_row, T_NEAR);
    for (const Gpr& r : {of_set, probabilities, factors, block, left, at}) free(r);
}

namespace {

class RowWeightsBytes : public WeightsBytesEmitter {
public:
    explicit RowWeightsBytes(const RowKey& key)
        : WeightsBytesEmitter(key), signs_(gpr("signs")), shares_(gpr("shares")) {
        generate();
    }

private:
    void load_ordered(const Vec& v, const RegExp& at) override { vmovups(v, ptr[at]); }

    // body() for the keys of each turn.
    template <typename Body>
    void for_each_turn(int set, const Body& body) {
        for_each_scales(kTurn, set * ValueBytes::kSet * 4, kTurn * key_.scales_stride() * 4, body);
    }
    // The set's scales of two keys. (Of fewer groups also what follows them, which nothing is made of.)
    void load_scales(const Vec& v, int first, int second) {
        const int stride = key_.scales_stride() * 4;
        if (stride == vec_bytes() / 2 && second == first + 1)
            return vmovups(v, ptr[scales_ + first * stride]);
        vmovups(x(v), ptr[scales_ + first * stride]);
        vinsertf128(y(v), y(v), ptr[scales_ + second * stride], 1);
    }

    // As integers, bits of larger numbers are larger, and those of NaN the largest.
    void emit_top(const Vec& top, int set) override {
        Temp signs(*this, "signs"), scale(*this, "scale");
        vmovups(top, splat(kLeastTop));
        zero(signs);
        for_each_turn(set, [&] {
            for (int key = 0; key < kTurn; key += 2) {
                load_scales(scale, key, key + 1);
                form_.signs ? vpand(scale, scale, splat_bits(0x7fffffff)) : vpor(signs, signs, scale);
                vpmaxsd(top, top, scale);
            }
        });
        swap_lanes(scale, top, 4);
        vpmaxsd(top, top, scale);
        write_signs(signs, set, ((1u << groups_of(set)) - 1) * 0x11);
    }

    std::vector<uint32_t> groups_mask(int set) const {
        std::vector<uint32_t> lanes;
        for (int lane = 0; lane < 8; ++lane) lanes.push_back(lane % 4 < groups_of(set) ? 0xffffffff : 0);
        return lanes;
    }

    void emit_scales(const Vec& top, int set) override {
        Temp inverse(*this, "inverse");
        vmovups(inverse, splat(of_scale()));
        vdivps(inverse, inverse, top);
        if (form_.signs) mov(signs_, weights_);
        if (form_.by_fours()) lea(shares_, ptr[weights_ + form_.shares_at()]);
        for_each_turn(set, [&] {
            const std::vector<Vec> scales = vecs("scales", 4), words = vecs("words", 4);
            for (int key = 0; key < 4; ++key) {
                const Vec& v = scales[size_t(key)];
                load_scales(v, key, key + 4);
                vmulps(v, v, inverse);
                vcvtps2dq(words[size_t(key)], v);
            }
            if (form_.by_fours()) emit_shares(scales.data(), set);
            const Vec &pairs = words[0], &others = words[2], &last = words[3];
            join_words(pairs, pairs, words[1]);
            join_words(others, others, last);
            vpunpckhdq(last, pairs, others);
            vpunpckldq(pairs, pairs, others);
            if (form_.signs) take_signs(pairs, last, others, set);
            vmovups(ptr[words_], pairs);
            vmovups(ptr[words_ + vec_bytes()], last);
            add(words_, 2 * vec_bytes());
            free(scales);
            free(words);
        });
    }
    // Of eight keys; changes them.
    void emit_shares(const Vec* scales, int set) {
        const Vec& share = scales[0];
        for (int i = 0; groups_of(set) < ValueBytes::kSet && i < 4; ++i)
            vandps(scales[i], scales[i], constant(groups_mask(set)));
        fold_quarters(scales, [&](const Vec& to, const Vec& from) { vmaxps(to, to, from); });
        if (set > 0) vmaxps(share, share, ptr[shares_]);
        vmaxps(share, share, splat(least_share()));
        vmovups(ptr[shares_], share);
        add(shares_, kTurn * 4);
    }
    // As weights are packed.
    void take_signs(const Vec& first, const Vec& second, const Vec& signs, int set) {
        Temp other(*this, "other signs");
        vpsraw(signs, first, 15);
        vpsraw(other, second, 15);
        vpacksswb(signs, signs, other);
        vpor(signs, signs, splat_bits(0x01010101));
        vmovups(ptr[signs_ + form_.signs_at(set)], signs);
        add(signs_, ValueBytes::kTurnBytes);
        for (const Vec* v : {&first, &second}) vpabsw(*v, *v);
    }

    const Gpr signs_, shares_;
};

}  // namespace

// Of rows all elements of a step are of one group: 16 nibbles, read with what surrounds them, or 32 bytes.
bool has_value_bytes(const RowKey& values) {
    constexpr int kLeast = 32;
    if (has_value_runs(values)) return true;
    if (values.target->vector_bits != 256 || values.target->vnni) return false;
    switch (values.format.type) {
        case QUIRE_INT4_B16:
        case QUIRE_Q4_0:
        case QUIRE_Q8_0: return true;
        case QUIRE_INT4:
        case QUIRE_INT8: break;
        default: return false;
    }
    const int elements = values.format.type == QUIRE_INT8 ? 32 : 16;
    return values.dim >= kLeast && values.dim % elements == 0 && scale_group(values.format) % elements == 0;
}

int value_bytes_stride(const RowKey& values, int rows) {
    return has_value_runs(values) ? ValueRuns::weight_stride(values, rows)
                                  : ValueBytes::weight_stride(values, rows);
}

Status generate_weights_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    if (has_value_runs(key)) return generate_weights_runs(key, code);
    return RowWeightsBytes(key).finish(code);
}

}  // namespace quire::jit
