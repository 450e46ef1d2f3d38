#include "bench/model.h"

#include <algorithm>
#include <map>

#include "bench/call.h"
#include "bench/generated.h"
#include "bench/pipes.h"
#include "bench/steps.h"

namespace bench {
namespace {

// Two lengths, of whole blocks of keys: their difference is what a key takes, without what a call does once.
constexpr int64_t kShort = 128, kLong = 384;
constexpr char kLibrary[] = "library";

Workload shortened(Workload w, int64_t keys) {
    w.batch = w.threads = 1;
    w.window = 0;
    w.warm = true;
    w.kv_len = keys;
    if (w.layout < 3) return w;  // the distance of rows is that of its kv heads
    w.heads /= w.kv_heads;
    w.kv_heads = 1;
    return w;
}

std::map<uintptr_t, int64_t> counts_of(const Workload& w) {
    keep_caches_of({w});
    const std::unique_ptr<Call> call = make_call(w);
    call->run(0);  // generates the code
    return count_steps([&] { call->run(0); });
}

std::shared_ptr<Model> without(const std::string& why_not) {
    auto model = std::make_shared<Model>();
    model->why_not = why_not;
    return model;
}

ModelPart part_of(const std::string& name, const Work& work) {
    return {name, work.instructions(), work.loads(), work.stores(), work.cycles(), work.bound_by()};
}

std::shared_ptr<Model> make_model(const Workload& workload) {
    const Processor* processor = this_processor();
    if (!processor) return without("pipes of this processor are not known");
    if (!workload.is_decode()) return without("not of decode");
    const Workload w = shortened(workload, kLong);
    std::map<uintptr_t, int64_t> counts = counts_of(w);
    for (const auto& [address, times] : counts_of(shortened(workload, kShort))) counts[address] -= times;

    const std::map<uintptr_t, GeneratedKernel> kernels = generated_kernels();
    const double keys = double((kLong - kShort) * w.kv_heads);
    std::map<std::string, Work> works;
    bool any = false;
    for (const auto& [address, times] : counts) {
        auto at = kernels.upper_bound(address);
        const GeneratedKernel* kernel = at == kernels.begin() ? nullptr : &std::prev(at)->second;
        if (kernel && address >= kernel->address + kernel->size) kernel = nullptr;
        Work& work = works.try_emplace(kernel ? kernel->name : kLibrary, *processor).first->second;
        if (!kernel) {
            work.add_unknown(double(times) / keys);
            continue;
        }
        const std::map<uintptr_t, std::string>& instructions = instructions_of(*kernel);
        const auto instruction = instructions.find(address - kernel->address);
        if (instruction == instructions.end()) return without("listings have no instructions");
        work.add(instruction->second, double(times) / keys);
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

}  // namespace

std::shared_ptr<const Model> model_of(const Workload& workload) {
    static std::map<std::string, std::shared_ptr<const Model>> models;
    Workload key = shortened(workload, kLong);
    std::shared_ptr<const Model>& model = models[key.name()];
    if (!model) model = make_model(workload);
    return model;
}

std::unique_ptr<Result> modelled(const Result& r) {
    if (!r.model || !r.model->why_not.empty()) return nullptr;
    const Workload& w = r.workload;
    const double threads = r.limits.apart > 0 ? std::min(r.limits.apart, double(w.threads)) : w.threads;
    const double compute =
        r.model->cycles * double(w.keys_read() * w.kv_heads) / (r.limits.cycles_per_s * threads);
    const double rate =
        r.limits.pages_bytes_per_s > 0 ? r.limits.pages_bytes_per_s : r.limits.read_bytes_per_s;
    const double memory = w.is_cold() ? w.cache_bytes() / rate : 0;
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
