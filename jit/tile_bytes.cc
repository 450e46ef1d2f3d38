#include "jit/tile_bytes.h"

#include <numeric>

#include "jit/byte_loader.h"
#include "jit/tile_codes.h"

namespace quire::jit {
namespace {

// for key in 0..count step n:
//   scores[key + n][w] = 0
//   for each part of the row's groups:
//     part[n][w] = zero[part][w]
//     for each span of it:
//       acc[n][w] = start[span][w] + dot products of its bytes                       emit_span
//       part[n][w] += acc[n][w], read as a number, * factor[span][w]                 emit_factors
//     scores[key + n][w] += part[n][w] * scale[key + n][group]                      emit_scaled
//
// Starts make the codes signed, and sums the bits of numbers (args.h: kByteTileZero), which zeros take out
// again: so a sum costs an FMA, and no conversion.
class TileQkBytes : public TileQkCodes {
public:
    explicit TileQkBytes(const RowKey& key) : TileQkCodes(key, 0, 2), parts_(vecs("part", n_ * vecs_)) {
        generate();
    }

private:
    int fours() const { return byte_parts(key_.format); }  // of a lane
    int group() const { return scale_group(key_.format); }
    int chunk() const { return fours() * 4 * lanes(); }
    // A row of one group has no next scale.
    int turn() const override { return std::lcm(key_.groups() == 1 ? part_ : group(), chunk()); }
    const Vec& part(int n, int w) const { return parts_[size_t(n * vecs_ + w)]; }

    void emit_begin() override { lea(numbers_, ptr[query_ + key_.dim / 4 * panel_bytes()]); }

    void emit_elements(int count) override {
        for (int first = 0; first < count; first += part_) {
            stage("elements from " + std::to_string(first));
            emit_start(parts_, first, 0);
            for (int span = 0; span < part_ / kByteTileSpan; ++span) {
                emit_span(first, span);
                emit_factors(first, span);
            }
            emit_scaled(first / group());
        }
    }

    void emit_next() override {
        add(query_, turn() / 4 * panel_bytes());
        add(element_, turn());  // a byte each
        add(numbers_, turn() / part_ * byte_tile_numbers(key_.format) * panel_bytes());
        if (key_.groups() > 1) add(scale_, turn() / group() * 4);
    }

    // Four `i` of the query's order, in a packed key.
    RegExp element_at(int n, int i) const {
        const int lane = i / fours(), vec = lane / lanes() * fours() + i % fours();
        return element_ + n * key_.tile_lanes() * 4 + vec * vec_bytes() + lane % lanes() * 4;
    }
    // Of the part from element `first` on.
    Address number_at(int first, int i, int w) const {
        return ptr[numbers_ + (first / part_ * byte_tile_numbers(key_.format) + i) * panel_bytes() +
                   w * vec_bytes()];
    }

    // One load for all keys; moves between registers cost no pipe.
    void emit_start(const std::vector<Vec>& sums, int first, int i) {
        for (int w = 0; w < vecs_; ++w) {
            vmovups(rows_[0], number_at(first, i, w));
            for (int n = 0; n < n_; ++n) vmovaps(sums[size_t(n * vecs_ + w)], rows_[0]);
        }
    }

    void emit_span(int first, int span) {
        emit_start(acc_, first, 1 + 2 * span);
        const int begin = (first + span * kByteTileSpan) / 4;
        for (int i = begin; i < begin + kByteTileSpan / 4; ++i)
            emit_step(
                query_ + i * panel_bytes(), [&](int n) { return element_at(n, i); },
                [&](const Vec& sum, const Vec& codes, const Xbyak::Operand& row) {
                    dot_bytes(sum, codes, row);
                });
    }

    void emit_factors(int first, int span) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, number_at(first, 2 + 2 * span, w));
            for (int n = 0; n < n_; ++n) vfmadd231ps(part(n, w), acc(n, w), factor);
        }
    }

    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                vfmadd213ps(part(n, w), scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], part(n, w));
            }
        }
    }

    const int part_ = byte_tile_part(key_.format);
    const std::vector<Vec> parts_;
    const Gpr numbers_ = gpr("numbers");
};

}  // namespace

bool has_tile_key_bytes(const RowKey& key) {
    return key.target->vnni && has_bytes(key.format, *key.target) &&
           scale_group(key.format) % kByteTileSpan == 0;
}

Status generate_tile_qk_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return TileQkBytes(key).finish(code);
}

}  // namespace quire::jit
