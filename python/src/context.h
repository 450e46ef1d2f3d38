// quire.Context: a quire_context, the plans made with it, and how its calls run.
#pragma once
#include <nanobind/nanobind.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/src/error.h"
#include "quire/quire.h"

namespace quire_python {

namespace nb = nanobind;

using Plan = std::shared_ptr<const quire_plan>;

// The descriptor with its defaults, padding bytes included, so that equal descriptors are equal bytes.
template <typename Desc, void (*init)(Desc*)>
Desc default_desc() {
    static const Desc defaults = [] {
        Desc desc;
        std::memset(&desc, 0, sizeof desc);
        init(&desc);
        return desc;
    }();
    Desc desc;
    std::memcpy(&desc, &defaults, sizeof desc);
    return desc;
}

// Plans of one operator by descriptor. A descriptor holds no length, so there are few; but it does hold
// floats (scale, soft cap), hence the bound. Plans in use survive being dropped.
template <typename Desc, quire_status (*make)(quire_context*, const Desc*, quire_plan**)>
class PlanCache {
public:
    Plan find_or_make(quire_context* context, const Desc& desc) {
        const std::string_view bytes(reinterpret_cast<const char*>(&desc), sizeof desc);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto found = plans_.find(bytes);
            if (found != plans_.end()) return found->second->plan;
        }
        // Not under the lock, nor under the GIL: code is generated here.
        auto entry = std::make_unique<Entry>(Entry{std::string(bytes), make_plan(context, desc)});
        std::lock_guard<std::mutex> lock(mutex_);
        if (plans_.size() >= kMaxPlans) plans_.clear();
        const std::string_view key = entry->key;
        return plans_.try_emplace(key, std::move(entry)).first->second->plan;
    }

    void explain_into(bool json, std::vector<std::string>* texts) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto explain = json ? quire_plan_explain_json : quire_plan_explain;
        for (auto& [key, entry] : plans_) texts->emplace_back(check(explain(entry->plan.get())));
    }

private:
    static constexpr size_t kMaxPlans = 1024;

    struct Entry {
        std::string key;  // the map's key views it
        Plan plan;
    };

    static Plan make_plan(quire_context* context, const Desc& desc) {
        quire_plan* plan = nullptr;
        quire_status status;
        {
            nb::gil_scoped_release unlocked;
            status = make(context, &desc, &plan);
        }
        check(status);
        return Plan(plan, [](const quire_plan* p) { quire_plan_destroy(const_cast<quire_plan*>(p)); });
    }

    std::mutex mutex_;
    std::unordered_map<std::string_view, std::unique_ptr<Entry>> plans_;
};

class Context {
public:
    Context() = default;  // the library's default context
    Context(nb::handle target, nb::handle num_threads, nb::handle slices);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // The context argument of a call: a quire.Context, or None for the default one.
    static Context& of(nb::handle object);

    quire_context* handle() const { return handle_; }
    int32_t slices() const { return slices_; }
    std::vector<std::string> explain(bool json);

    PlanCache<quire_attention_desc, quire_attention_plan> attention;
    PlanCache<quire_append_desc, quire_append_plan> append;
    PlanCache<quire_rotate_desc, quire_rotate_plan> rotate;
    PlanCache<quire_pmx_dynamic_multi_head_cache_attention_desc,
              quire_pmx_dynamic_multi_head_cache_attention_plan>
        pmx_dynamic_multi_head_cache_attention;
    PlanCache<quire_pmx_dynamic_multi_head_attention_desc, quire_pmx_dynamic_multi_head_attention_plan>
        pmx_dynamic_multi_head_attention;
    PlanCache<quire_pmx_dynamic_key_value_cache_desc, quire_pmx_dynamic_key_value_cache_plan>
        pmx_dynamic_key_value_cache;
    PlanCache<quire_pmx_multi_head_cache_attention_desc, quire_pmx_multi_head_cache_attention_plan>
        pmx_multi_head_cache_attention;
    PlanCache<quire_pmx_multi_head_attention_desc, quire_pmx_multi_head_attention_plan>
        pmx_multi_head_attention;
    PlanCache<quire_pmx_key_value_cache_desc, quire_pmx_key_value_cache_plan> pmx_key_value_cache;
    PlanCache<quire_directml_multihead_attention1_desc, quire_directml_multihead_attention1_plan>
        directml_multihead_attention1;

private:
    quire_context* handle_ = nullptr;
    int32_t slices_ = 0;  // 0: the library's own threads
};

void bind_context(nb::module_& module);

}  // namespace quire_python
