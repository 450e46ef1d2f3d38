// QK by AMX: scores of sixteen keys out of vectors whose lanes are keys, query rows and groups.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "jit/emitter.h"
#include "jit/qk_amx.h"

namespace quire::jit {

class AmxScores : public Emitter {
protected:
    explicit AmxScores(const RowKey& key) : Emitter(*key.target), form_(key) {}

    static Xbyak::Zmm z(const Vec& v) { return Xbyak::Zmm(v.getIdx()); }
    int vectors() const { return form_.lanes(); }  // of sixteen keys' sums
    int keys_a_vector() const { return 16 / form_.lanes(); }

    // scores[r] = sums of the lanes of groups, times factors[r]; frees acc.
    //
    // Each step takes bit 0 of the lanes, or bit 2, out of two vectors: where it is one of a group both are
    // added up, where it is one of a row there are two vectors again. Bit 1, or 3, takes its place, and that
    // by which the two vectors differed that one's.
    void emit_scores(const std::vector<Vec>& acc) {
        stage("scores");
        const int of_lanes = log2(form_.lanes()), of_groups = log2(form_.together);
        std::array<Bit, 4> bits;
        for (int i = 0; i < 4; ++i)
            bits[size_t(i)] = i < of_groups  ? Bit{Bit::group, i}
                              : i < of_lanes ? Bit{Bit::row, i - of_groups}
                                             : Bit{Bit::key, i - of_lanes};
        std::vector<Vec> list = acc;  // [rows so far][keys left]
        for (int i = 0, rows = 1; i < of_lanes; ++i) {
            const size_t low = i < 2 ? 0 : 2;
            const Bit taken = bits[low];
            // In place of bits that are gone the other pair's have come.
            list = taken.of == Bit::group ? add_pairs(list, rows, low) : part_pairs(list, rows, low);
            if (taken.of == Bit::row) rows *= 2;
            bits[low] = bits[low + 1];
            bits[low + 1] = {Bit::key, log2(keys_a_vector()) + i};
        }
        const std::vector<uint32_t> order = order_of(bits);
        for (int r = 0; r < form_.rows; ++r) store_scores(list[size_t(r)], r, order);
        free(list);
    }

    const KeyAmx form_;
    const Gpr scores_ = gpr("scores");

private:
    // What the bits of a lane's number, or of a vector's, say: the lowest first.
    struct Bit {
        enum { group, row, key } of;
        int bit;
    };

    static int log2(int n) { return n > 1 ? 1 + log2(n / 2) : 0; }

    void take(const Vec& d, const Vec& a, const Vec& b, size_t low, bool upper) {
        const uint8_t which = upper ? 0xdd : 0x88;
        low == 0 ? vshufps(z(d), z(a), z(b), which) : vshuff32x4(z(d), z(a), z(b), which);
    }
    std::vector<Vec> add_pairs(const std::vector<Vec>& list, int rows, size_t low) {
        std::vector<Vec> sums;
        const int of_row = int(list.size()) / rows;
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < of_row; i += 2) {
                const Vec &a = list[size_t(r * of_row + i)], &b = list[size_t(r * of_row + i + 1)];
                Temp upper(*this, "upper");
                take(upper, a, b, low, true);
                take(a, a, b, low, false);
                vaddps(a, a, *upper);
                free(b);
                sums.push_back(a);
            }
        return sums;
    }
    // Row bits are taken from the lowest on: the new one is above those before.
    std::vector<Vec> part_pairs(const std::vector<Vec>& list, int rows, size_t low) {
        const int of_row = int(list.size()) / rows;
        std::vector<Vec> parts(list.size());
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < of_row; i += 2) {
                const Vec &a = list[size_t(r * of_row + i)], &b = list[size_t(r * of_row + i + 1)];
                const Vec upper = vec("upper");
                take(upper, a, b, low, true);
                take(a, a, b, low, false);
                free(b);
                parts[size_t(r * of_row / 2 + i / 2)] = a;
                parts[size_t((rows + r) * of_row / 2 + i / 2)] = upper;
            }
        return parts;
    }
    // Where key i is.
    static std::vector<uint32_t> order_of(const std::array<Bit, 4>& bits) {
        std::vector<uint32_t> order(16);
        for (uint32_t lane = 0; lane < 16; ++lane) {
            uint32_t key = 0;
            for (uint32_t i = 0; i < 4; ++i) key |= (lane >> i & 1) << bits[i].bit;
            order[key] = lane;
        }
        return order;
    }
    void store_scores(const Vec& scores, int row, const std::vector<uint32_t>& order) {
        if (!std::is_sorted(order.begin(), order.end())) permute(scores, order);
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        vmulps(z(scores), z(scores), ptr_b[rax + row * 4]);
        vmovups(ptr[scores_ + row * kBlock * 4], scores);
    }
};

}  // namespace quire::jit
