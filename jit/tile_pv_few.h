// PV of few query rows with values taken from the rows of the cache: what words and numbers have in common.
// With few query rows packing values costs as much as it saves, and a value's element as the broadcast
// operand is a load for each product: so the lanes are elements.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "jit/emitter.h"
#include "jit/kernel_key.h"
#include "jit/tile_product.h"

namespace quire::jit {

// emit_begin
// for each group, for each step() elements of it:
//   for each pass over R' query rows: output[r][elements] = output * rescale[r] + what it adds     emit_pass
//   emit_next_group
class TilePvFew : public Emitter {
public:
    static int elements_a_step(const Target& target) { return kVecs * target.lanes(); }

protected:
    static constexpr int kVecs = 2;  // of elements, of one group

    // most_rows: of a pass.
    explicit TilePvFew(const RowKey& key, int most_rows = 8)
        : Emitter(*key.target), key_(key), most_rows_(most_rows), ahead_(*this, *key.target) {}

    void generate() {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(left_, key_.groups());
        xor_(at_, at_);
        emit_begin();
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_step;
        L(each_group);
        mov(steps_, scale_group(key_.format) / step());
        L(each_step);
        emit_passes();
        add(at_, int(bytes_of(key_.format.type, step())));
        add(output_, step() * 4);
        dec(steps_);
        jnz(each_step, T_NEAR);
        emit_next_group();
        dec(left_);
        jnz(each_group, T_NEAR);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

    virtual void emit_begin() = 0;  // of pointers, and what the first group needs
    virtual void emit_pass(int row, int rows, bool is_last) = 0;
    virtual void emit_next_group() = 0;

    int step() const { return elements_a_step(*key_.target); }

    // acc[r][kVecs], whose vector i of a row is vector vec_at(i) of the step. Clobbers rows_.
    template <typename VecAt>
    void emit_output(const std::vector<Vec>& acc, int first_row, const VecAt& vec_at) {
        const auto row_of = [&](size_t i) { return first_row + int(i) / kVecs; };
        const auto at = [&](size_t i) {
            return ptr[output_ + (row_of(i) * key_.padded() + vec_at(int(i % kVecs)) * lanes()) * 4];
        };
        const auto rescaled = [&] {
            Temp rescale(*this, "rescale");
            for (size_t i = 0; i < acc.size(); ++i) {
                if (i % kVecs == 0) broadcast(rescale, ptr[rows_ + row_of(i) * 4]);
                vfmadd231ps(acc[i], rescale, at(i));
            }
        };
        with_rescale(*this, rows_, rescaled, [] {});
        for (size_t i = 0; i < acc.size(); ++i) vmovups(at(i), acc[i]);
    }

    const RowKey key_;
    const int most_rows_;
    TileAhead ahead_;
    // output_: of the step's first element. left_: groups, from all to 1. at_: bytes of a row before the
    // step.
    const Gpr output_ = gpr("output"), left_ = gpr("groups left"), at_ = gpr("at"), rows_ = gpr("rows"),
              weights_ = gpr("weights"), count_ = gpr("count");

private:
    void emit_passes() {
        const int passes = (key_.rows + most_rows_ - 1) / most_rows_;
        for (int i = 0, row = 0; i < passes; ++i) {
            const int rows = (key_.rows - row + passes - i - 1) / (passes - i);
            stage("pass from row " + std::to_string(row));
            emit_pass(row, rows, i + 1 == passes);
            row += rows;
        }
    }

    const Gpr steps_ = gpr("steps left");
};

}  // namespace quire::jit
