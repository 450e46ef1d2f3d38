// Names of kernels, each once, in the order in which they came.
#pragma once
#include <set>
#include <string>

#include "src/plan.h"

namespace quire {

class KernelNames {
public:
    template <typename Args>
    void add(const jit::Kernel<Args>& kernel) {
        if (kernel && seen_.insert(kernel.code().name).second)
            text_ += (text_.empty() ? "" : " ") + kernel.code().name;
    }
    void add(const jit::DecodeKernels& k, bool side_by_side) {
        add(k.query_row);
        add(k.listed, k);
        if (side_by_side) add(k.side_by_side, k);
    }
    void add(const jit::PackKernels& k) {
        add(k.key_rows);
        add(k.value_rows);
        add(k.key_scales);
        add(k.keys);
        add(k.value_scales);
        add(k.relate);
        add(k.values);
    }
    void add(const jit::TileKernels& k) {
        static_assert(sizeof k == 7 * sizeof k.qk, "one is not named here");
        add(k.qk);
        add(k.qk_softmax);
        add(k.softmax);
        add(k.softmax_masked);
        add(k.weights);
        add(k.pv);
        add(k.pv_lists);
    }
    void add(const jit::PanelKernels& k, bool outputs = true) {
        add(k.rows);
        add(k.query);
        if (!outputs) return;
        add(k.output);
        add(k.states);
    }
    void add(const jit::BiasKernels& k) {
        add(k.f32);
        add(k.f16);
        add(k.bf16);
    }
    void add(const jit::ReadKernels& k) {
        add(k.taken);
        add(k.scales);
        add(k.rows);
        add(k.store);
    }
    void add(const AppendPlan& plan) {
        add(plan.key);
        add(plan.key_place);
        add(plan.value);
        add(plan.value_place);
    }
    void add(const ReadPlan& plan) {
        add(plan.key);
        add(plan.value);
    }
    // "name name ..."
    const std::string& text() const { return text_; }

private:
    void add(const jit::BlockKernels& k, const jit::DecodeKernels& beside) {
        add(k.key_scales);
        add(k.qk);
        add(beside.softmax);
        add(k.value_scales);
        add(k.weights);
        add(k.pv);
    }

    std::set<std::string> seen_;
    std::string text_;
};

}  // namespace quire
