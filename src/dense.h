// A dense layer's weights, packed once, and products with them: y = x W^T + bias in float32. Only dense.cc
// knows oneDNN.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace quire {

class DenseWeights {
public:
    // A product is one of a block of rows and a block of columns of the result. A result depends neither on
    // the other rows of its block nor on how many there are.
    static constexpr int kRows = 32, kColumns = 256;

    // weight [outputs][inputs], bias [outputs]; read only here. `plain`: loops in double precision in place
    // of oneDNN. They are what there is, too, where oneDNN fails: its generated code needs pages that are
    // writable and executable at once, which some systems refuse.
    static std::shared_ptr<const DenseWeights> pack(int inputs, int outputs, const float* weight,
                                                    const float* bias, bool plain);
    virtual ~DenseWeights() = default;

    int inputs() const { return inputs_; }
    int outputs() const { return outputs_; }
    int column_blocks() const { return (outputs_ + kColumns - 1) / kColumns; }
    int columns(int block) const {
        return block + 1 < column_blocks() ? kColumns : outputs_ - block * kColumns;
    }

    // Of multiply(), for any block.
    size_t scratch_floats() const { return scratch_floats_; }
    // y[rows][columns(block)] from x[rows][inputs]. Both have room for kRows rows; x, y and scratch are
    // aligned to 64 bytes, and the rows after `rows` are overwritten.
    virtual void multiply(int block, int rows, float* x, float* y, float* scratch) const = 0;

    // How products are made, for quire_plan_explain.
    virtual std::string explain() const = 0;
    // Why oneDNN failed; empty where it did not.
    const std::string& failure() const { return failure_; }

protected:
    DenseWeights(int inputs, int outputs) : inputs_(inputs), outputs_(outputs) {}
    size_t scratch_floats_ = 0;
    std::string failure_;

private:
    int inputs_, outputs_;
};

}  // namespace quire
