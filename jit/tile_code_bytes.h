// Scores of keys that are bytes, with query rows in the lanes: what queries of one, two and three digits have
// in common.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/byte_loader.h"
#include "jit/tile_codes.h"

namespace quire::jit {

// for key in 0..count step n:
//   scores[key + n][w] = 0
//   for each part of the row's groups:
//     scores[key + n][w] += what its bytes are, times scale[key + n][group]         emit_part
//
// The bytes of a part are a run for each digit in the query, and one in the keys.
class TileQkBytes : public TileQkCodes {
protected:
    TileQkBytes(const RowKey& key, int digits, int spare = 0, int kept = 2)
        : TileQkCodes(key, spare, kept), form_(key.format, digits, *key.target) {}

    virtual void emit_part(int first) = 0;

    void emit_numbers_at() { lea(numbers_, ptr[query_ + form_.digits * key_.dim / 4 * panel_bytes()]); }

    // Four elements added to sums[n][w]: in the query at `row`, in the first of the keys at `element`.
    void emit_four(const std::vector<Vec>& sums, const RegExp& row, const RegExp& element) {
        emit_step(
            sums, row, [&](int n) { return element + n * key_.tile_lanes() * 4; },
            [&](const Vec& sum, const Vec& codes, const Xbyak::Operand& query) {
                dot_bytes(sum, codes, query);
            });
    }

    // Number i of the part. One load for all keys; moves between registers cost no pipe.
    void emit_start(const std::vector<Vec>& sums, int first, int i) {
        for (int w = 0; w < vecs_; ++w) {
            vmovups(rows_[0], number_at(first, i, w));
            for (int n = 0; n < n_; ++n) vmovaps(sums[size_t(n * vecs_ + w)], rows_[0]);
        }
    }

    // scores += sums * the group's scale * units, where sums[i] is a number once to_number(i) is emitted.
    template <typename ToNumber>
    void add_scaled(const std::vector<Vec>& scores, const std::vector<Vec>& sums, int group, float units,
                    const ToNumber& to_number) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            if (units != 1) vmulps(scale, scale, splat(units));
            for (size_t i = size_t(n * vecs_); i < size_t((n + 1) * vecs_); ++i) {
                to_number(i);
                vfmadd231ps(scores[i], sums[i], scale);
            }
        }
    }

    // Scores that are in registers, into memory.
    void store_scores(const std::vector<Vec>& scores) {
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[score_at(n, w)], scores[size_t(n * vecs_ + w)]);
        emit_new_max(scores);
    }
    // The same times the rows' factors.
    void store_scaled(const std::vector<Vec>& scores) {
        stage("factors");
        mov(rax, ptr[args() + offsetof(TileQkArgs, factors)]);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, ptr[rax + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n)
                vmulps(scores[size_t(n * vecs_ + w)], scores[size_t(n * vecs_ + w)], factor);
        }
        store_scores(scores);
    }

    Address number_at(int first, int i, int w) const {
        return ptr[numbers_ + (first / form_.part * form_.numbers + i) * panel_bytes() + w * vec_bytes()];
    }

    const ByteTileForm form_;
    const Gpr numbers_ = gpr("numbers");
    // Of the query; where keys are packed, of the cache.
    const Gpr row_ = key_.query_bytes() > 1 || key_.packs_keys ? gpr("row") : Gpr();

private:
    static constexpr int kLeastTurn = 32;

    void emit_packing(int keys) override {
        stage("packing");
        const auto loader = ByteLoader::make(*this, key_.format, key_.dim);
        for (int n = 0; n < keys; ++n) {
            mov(row_, ptr[keys_ + n * int(sizeof(const char*))]);
            loader->store_in_tile(row_, room_ + n * key_.tile_lanes() * 4);
        }
    }

    int group() const { return scale_group(key_.format); }
    // A row of one group has no next scale.
    int turn() const override {
        if (key_.groups() == 1) return form_.part;
        return std::max(1, kLeastTurn / group()) * group();
    }

    void emit_elements(int count) override {
        for (int first = 0; first < count; first += form_.part) {
            stage("elements from " + std::to_string(first));
            emit_part(first);
        }
    }

    void emit_next() override {
        add(query_, form_.digits * turn() / 4 * panel_bytes());
        add(element_, turn());  // a byte each
        add(numbers_, turn() / form_.part * form_.numbers * panel_bytes());
        if (key_.groups() > 1) add(scale_, turn() / group() * 4);
    }
};

}  // namespace quire::jit
