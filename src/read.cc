#include "src/read.h"

#include <algorithm>

#include "src/portable.h"
#include "src/token_rows.h"

namespace quire {
namespace {

constexpr int64_t kKeys = jit::kTileKeys;  // positions of an item

// Keys or values of the positions in `rows`.
struct Source {
    const jit::ReadKernels& kernels;
    const quire_format& format;
    int dim;
    const char* const* rows;
    const char* const* scales;
    const RowView& to;
};

void read_side(const ReadPlan& plan, const ReadProblem& p, int64_t b, int kv_head, const RowAddresses& block,
               Source side, TakenRows& taken, float* values, float* scales) {
    const jit::ReadKernels& kernels = side.kernels;
    taken.take(kernels.taken, side.format, side.dim, block, &side.rows, &side.scales);
    if (kernels.scales) kernels.scales({side.scales, scales, block.padded()});
    if (kernels.rows) kernels.rows({side.rows, scales, values, block.count, nullptr});
    for (int64_t i = 0; i < block.count; ++i) {
        const char* from =
            kernels.rows ? reinterpret_cast<const char*>(values + i * kernels.stride) : side.rows[i];
        for (int r = 0; r < plan.spec.repeat; ++r) {
            char* to = side.to.at(b, p.row_of(b, block.begin + i), int64_t(kv_head) * plan.spec.repeat + r);
            const jit::AppendRow row{from, to, nullptr, nullptr, nullptr};
            kernels.store({&row, 1, nullptr});
        }
    }
}

size_t taken_floats(const ReadPlan& plan) {
    return std::max(TakenRows::floats(plan.spec.key_format, plan.spec.D),
                    TakenRows::floats(plan.spec.value_format, plan.spec.Dv));
}

}  // namespace

size_t scratch_floats(const ReadPlan& plan) {
    const size_t addresses = sizeof(RowAddresses) / sizeof(float);
    return size_t(kKeys) * size_t(plan.row_stride() + plan.scale_stride) + addresses + taken_floats(plan) +
           256;
}

void Reader::build(const ReadPlan& plan, const ReadProblem& problem) {
    plan_ = &plan;
    problem_ = &problem;
    items_ = 0;
    first_items_.clear();
    for (int64_t b = 0; b < problem.B; ++b) {
        first_items_.push_back(items_);
        items_ += (problem.keys(b) + kKeys - 1) / kKeys * plan.spec.Hk;
    }
}

void Reader::run_item(int64_t index, Scratch& scratch) const {
    const ReadPlan& plan = *plan_;
    const ReadProblem& p = *problem_;
    const auto after = std::upper_bound(first_items_.begin(), first_items_.end(), index);
    const int64_t b = after - first_items_.begin() - 1, local = index - first_items_[size_t(b)];
    const int kv_head = int(local % plan.spec.Hk);
    const int64_t begin = local / plan.spec.Hk * kKeys, count = std::min(kKeys, p.keys(b) - begin);
    if (!plan.target->jit()) {
        for (int64_t t = begin; t < begin + count; ++t) portable::read_row(p, b, t, kv_head);
        return;
    }
    scratch.reset();
    RowAddresses& block = *scratch.array<RowAddresses>(1);
    float* values = scratch.floats(size_t(kKeys * plan.row_stride()));
    float* scales = scratch.floats(size_t(kKeys * plan.scale_stride) + 16);
    block.set(p.cache, b, kv_head, begin, count, 0);
    TakenRows taken(taken_floats(plan), scratch);
    const ReadSpec& spec = plan.spec;
    read_side(plan, p, b, kv_head, block,
              {plan.key, spec.key_format, spec.D, block.key, block.key_scale, p.key}, taken, values, scales);
    read_side(plan, p, b, kv_head, block,
              {plan.value, spec.value_format, spec.Dv, block.value, block.value_scale, p.value}, taken,
              values, scales);
}

}  // namespace quire
