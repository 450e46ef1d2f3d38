// oneDNN's matmul gives a row other bits in another place of its block, and with other rows beside it. Its
// 1x1 convolution, a row being a pixel, does not, is faster, and packs its weights (docs/decisions).
#include "src/dense.h"

#include <algorithm>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
extern "C" {  // omp.h belongs to one compiler; the runtime that oneDNN brings is the same for all
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}
#endif

namespace quire {
namespace {

// Products run in threads of quire's (or of its caller's), one product in one thread: oneDNN, built with
// OpenMP, must start none of its own beside them. The setting is this thread's alone, and is put back.
class OneThread {
public:
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
    OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
    ~OneThread() { omp_set_num_threads(before_); }

private:
    int before_;
#else
    OneThread() {}
#endif
public:
    OneThread(const OneThread&) = delete;
};

dnnl::engine& cpu() {
    static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

class PackedWeights : public DenseWeights {
public:
    PackedWeights(int inputs, int outputs, const float* weight, const float* bias);
    void multiply(int block, int rows, float* x, float* y, float* scratch) const override;
    std::string explain() const override;

private:
    // One for each number of rows that is multiplied at once: calls with fewer rows fill up with zeros.
    static constexpr int kSizes[] = {1, 8, kRows};
    static constexpr int kNumSizes = 3;
    using Description = dnnl::convolution_forward::primitive_desc;

    struct Block {
        dnnl::convolution_forward products[kNumSizes];
        dnnl::memory::desc x[kNumSizes], y[kNumSizes], scratch;
        dnnl::memory weight, bias;
    };
    Description describe(int rows, int columns, const dnnl::memory::desc& weights) const;
    void pack_block(Block* block, int columns, const float* weight, const float* bias);

    std::vector<Block> blocks_;
    std::string implementation_;
};

PackedWeights::Description PackedWeights::describe(int rows, int columns,
                                                   const dnnl::memory::desc& weights) const {
    const dnnl::memory::desc x({1, inputs(), 1, rows}, kFloat, Tag::nhwc), bias({columns}, kFloat, Tag::a),
        y({1, columns, 1, rows}, kFloat, Tag::nhwc);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return Description({dnnl::prop_kind::forward_inference,
                        dnnl::algorithm::convolution_direct,
                        x,
                        weights,
                        bias,
                        y,
                        {1, 1},
                        {0, 0},
                        {0, 0}},
                       attributes, cpu());
}

void PackedWeights::pack_block(Block* block, int columns, const float* weight, const float* bias) {
    const dnnl::memory::dims shape = {columns, inputs(), 1, 1};
    const Description widest = describe(kRows, columns, {shape, kFloat, Tag::any});
    implementation_ = widest.impl_info_str();
    // The layout that suits most rows serves all.
    for (int i = 0; i < kNumSizes; ++i) {
        const Description description = describe(kSizes[i], columns, widest.weights_desc());
        block->products[i] = dnnl::convolution_forward(description);
        block->x[i] = description.src_desc();
        block->y[i] = description.dst_desc();
        scratch_floats_ = std::max(scratch_floats_, description.scratchpad_desc().get_size() / 4 + 1);
        if (description.scratchpad_desc().get_size() > block->scratch.get_size())
            block->scratch = description.scratchpad_desc();
    }
    dnnl::stream stream(cpu());
    dnnl::memory plain({shape, kFloat, Tag::oihw}, cpu(), const_cast<float*>(weight));
    block->weight = dnnl::memory(widest.weights_desc(), cpu());
    dnnl::reorder(plain, block->weight).execute(stream, plain, block->weight);
    block->bias = dnnl::memory({{columns}, kFloat, Tag::a}, cpu());
    stream.wait();
    std::copy(bias, bias + columns, static_cast<float*>(block->bias.get_data_handle()));
}

PackedWeights::PackedWeights(int inputs, int outputs, const float* weight, const float* bias)
    : DenseWeights(inputs, outputs) {
    const OneThread one_thread;
    blocks_.resize(size_t(column_blocks()));
    for (int i = 0; i < column_blocks(); ++i)
        pack_block(&blocks_[size_t(i)], columns(i), weight + size_t(i) * kColumns * size_t(inputs),
                   bias + i * kColumns);
}

void PackedWeights::multiply(int index, int rows, float* x, float* y, float* scratch) const {
    const OneThread one_thread;
    const Block& block = blocks_[size_t(index)];
    int size = 0;
    while (kSizes[size] < rows) ++size;
    std::fill(x + size_t(rows) * size_t(inputs()), x + size_t(kSizes[size]) * size_t(inputs()), 0.f);
    dnnl::stream stream(cpu());
    block.products[size].execute(stream,
                                 {{DNNL_ARG_SRC, dnnl::memory(block.x[size], cpu(), x)},
                                  {DNNL_ARG_WEIGHTS, block.weight},
                                  {DNNL_ARG_BIAS, block.bias},
                                  {DNNL_ARG_DST, dnnl::memory(block.y[size], cpu(), y)},
                                  {DNNL_ARG_SCRATCHPAD, dnnl::memory(block.scratch, cpu(), scratch)}});
    stream.wait();
}

std::string PackedWeights::explain() const {
    const dnnl_version_t* version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch) + ", " + implementation_;
}

// The definition.
class PlainWeights : public DenseWeights {
public:
    PlainWeights(int inputs, int outputs, const float* weight, const float* bias, const std::string& failure)
        : DenseWeights(inputs, outputs),
          weight_(weight, weight + size_t(inputs) * size_t(outputs)),
          bias_(bias, bias + outputs) {
        failure_ = failure;
    }

    void multiply(int block, int rows, float* x, float* y, float*) const override {
        const auto width = size_t(columns(block)), length = size_t(inputs());
        for (size_t row = 0; row < size_t(rows); ++row) {
            for (size_t column = 0; column < width; ++column) {
                const size_t output = size_t(block) * kColumns + column;
                double sum = double(bias_[output]);
                for (size_t i = 0; i < length; ++i)
                    sum += double(x[row * length + i]) * double(weight_[output * length + i]);
                y[row * width + column] = float(sum);
            }
        }
    }
    std::string explain() const override {
        return failure().empty() ? "portable" : "portable, oneDNN declined: " + failure();
    }

private:
    std::vector<float> weight_, bias_;
};

}  // namespace

std::shared_ptr<const DenseWeights> DenseWeights::pack(int inputs, int outputs, const float* weight,
                                                       const float* bias, bool plain) {
    if (plain) return std::make_shared<PlainWeights>(inputs, outputs, weight, bias, "");
    try {
        return std::make_shared<PackedWeights>(inputs, outputs, weight, bias);
    } catch (const dnnl::error& error) {
        if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
        return std::make_shared<PlainWeights>(inputs, outputs, weight, bias, error.what());
    }
}

}  // namespace quire
