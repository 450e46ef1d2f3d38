#include "bench/model.h"

#include <algorithm>
#include <map>

#include "bench/generated.h"
#include "bench/model_counts.h"
#include "bench/pipes.h"

namespace bench {
namespace {

constexpr char kLibrary[] = "library";

std::shared_ptr<Model> without(const std::string& why_not) {
    auto model = std::make_shared<Model>();
    model->why_not = why_not;
    return model;
}

ModelPart part_of(const std::string& name, const Work& work) {
    return {name,          work.instructions(), work.loads(),  work.stores(),
            work.cycles(), work.bound_by(),     work.started()};
}

std::shared_ptr<Model> make_model(const Workload& workload) {
    const Processor* processor = processor_of_model();
    if (!processor) return without("pipes of this processor are not known");
    const UnitCounts counts = counts_a_unit(workload);
    if (!counts.why_not.empty()) return without(counts.why_not);

    const std::map<uintptr_t, GeneratedKernel> kernels = generated_kernels();
    std::map<std::string, Work> works;
    bool any = false;
    for (const auto& [address, times] : counts.of) {
        auto at = kernels.upper_bound(address);
        const GeneratedKernel* kernel = at == kernels.begin() ? nullptr : &std::prev(at)->second;
        if (kernel && address >= kernel->address + kernel->size) kernel = nullptr;
        Work& work = works.try_emplace(kernel ? kernel->name : kLibrary, *processor).first->second;
        if (!kernel) {
            work.add_unknown(times);
            continue;
        }
        const std::map<uintptr_t, std::string>& instructions = instructions_of(*kernel);
        const auto instruction = instructions.find(address - kernel->address);
        if (instruction == instructions.end()) return without("listings have no instructions");
        work.add(instruction->second, times);
        any = true;
    }
    if (!any) return without("no generated code was seen");
    auto model = std::make_shared<Model>();
    for (const auto& [name, work] : works)
        if (work.instructions() > 0.005) model->parts.push_back(part_of(name, work));
    std::sort(model->parts.begin(), model->parts.end(),
              [](const ModelPart& a, const ModelPart& b) { return a.cycles > b.cycles; });
    for (const ModelPart& part : model->parts) model->cycles += part.cycles;
    return model;
}

// To read the cache, in decode's order where that is measured.
double memory_seconds(const Result& r) {
    const Limits& limits = r.limits;
    return r.workload.cache_bytes() /
           (limits.pages_bytes_per_s > 0 ? limits.pages_bytes_per_s : limits.read_bytes_per_s);
}

}  // namespace

std::shared_ptr<const Model> model_of(const Workload& workload) {
    static std::map<std::string, std::shared_ptr<const Model>> models;
    std::shared_ptr<const Model>& model = models[counted_name(workload)];
    if (!model) model = make_model(workload);
    return model;
}

double memory_cycles(const Result& r) {
    const Workload& w = r.workload;
    return w.is_cold() ? memory_seconds(r) * r.limits.cycles_per_s * w.threads / units_of(w) : 0;
}

std::unique_ptr<Result> modelled(const Result& r) {
    if (!r.model || !r.model->why_not.empty() || !is_of_this_machine()) return nullptr;
    const Workload& w = r.workload;
    const double threads = r.limits.apart > 0 ? std::min(r.limits.apart, double(w.threads)) : w.threads;
    const double compute = r.model->cycles * units_of(w) / (r.limits.cycles_per_s * threads);
    const double memory = w.is_cold() ? memory_seconds(r) : 0;
    auto result = std::make_unique<Result>(r);
    result->time_ms = std::max(compute, memory) * 1e3;
    const double faster = r.time_ms / result->time_ms;
    for (double* speed : {&result->cache_gb_per_s, &result->gflop_per_s, &result->dram_share,
                          &result->pages_share, &result->peak_share, &result->roofline_share})
        *speed *= faster;
    result->cycles /= faster;
    return result;
}

}  // namespace bench
