// Takes the place of ggml's function. All threads of a graph call it for the same tensor, each with its own
// number (ith of nth), and meet in a barrier before the next one. The first to come prepares the call and
// decides for all who computes it; the others wait for that, which is shorter than a barrier; the last to
// leave clears up.
#include <sched.h>

#include <atomic>

#include "gather.h"
#include "host.h"
#include "problem.h"
#include "stats.h"

namespace quire_ggml {
namespace {

// ---- waiting ----

// Short: threads come within microseconds. A machine with more threads than processors gets its processor
// back.
class Wait {
public:
    void again() {
        if (++turns_ < 4000)
            __builtin_ia32_pause();
        else
            sched_yield();
    }

private:
    int turns_ = 0;
};

// ---- what the threads of one call share ----

struct alignas(64) Slot {
    std::atomic<const Tensor*> tensor{nullptr};  // null: free
    std::atomic<bool> prepared{false};
    std::atomic<int> left{0};       // threads that have done their part
    std::atomic<int> arrived{0};    // at barriers, counted on over all of them
    std::atomic<int64_t> ended{0};  // of the last thread; where times are wanted
    quire_run* run = nullptr;       // null: ggml computes it
    Problem problem;
    Gather gather;
    int64_t began = 0;
    int count = 0;
    // How ComputeParams is laid out shows in the first call: the threads' numbers are 0 .. nth - 1, each
    // once.
    bool trial = false;
    std::atomic<uint64_t> numbers[kMaxThreads / 64];
};

// Tensors that share a slot by chance wait for each other: the threads of the other one are at work.
constexpr size_t kSlots = 256;
Slot* const slots = new Slot[kSlots];  // for ever: calls may come while a process ends

Slot& slot_of(const Tensor* tensor) {
    const auto bits = reinterpret_cast<uintptr_t>(tensor);
    return slots[(bits >> 4) * 0x9e3779b97f4a7c15u >> 56];
}
static_assert(kSlots == 256, "of 8 bits");

// True for the first thread.
bool enter(Slot& slot, const Tensor* tensor) {
    for (Wait wait;; wait.again()) {
        const Tensor* holder = nullptr;
        if (slot.tensor.compare_exchange_strong(holder, tensor, std::memory_order_acq_rel)) return true;
        if (holder == tensor) return false;
    }
}

void barrier(void* user) {
    Slot& slot = *static_cast<Slot*>(user);
    const int number = slot.arrived.fetch_add(1, std::memory_order_acq_rel);
    const int all = (number / slot.count + 1) * slot.count;
    for (Wait wait; slot.arrived.load(std::memory_order_acquire) < all;) wait.again();
}

// ---- one call ----

Reason decide(Host& host, const ComputeParams& params, const Tensor& dst, Slot& slot) {
    if (host.params == Host::unknown) {
        slot.trial = true;
        for (auto& word : slot.numbers) word.store(0, std::memory_order_relaxed);
        return {"the first call, which shows how it is called"};
    }
    if (host.has_use_ref && params.use_ref) return {"ggml's reference was asked for"};
    if (const Reason reason = read_problem(dst, &slot.problem)) return reason;
    Reason reason;
    slot.run = prepare(slot.problem, &slot.gather, &reason);
    return reason;
}

void prepare_slot(Host& host, const ComputeParams& params, const Tensor& dst, Slot& slot) {
    if (is_verbose()) slot.began = now();
    slot.trial = false;
    slot.run = nullptr;
    slot.count = params.nth;
    slot.left.store(0, std::memory_order_relaxed);
    slot.arrived.store(0, std::memory_order_relaxed);
    const Reason reason = decide(host, params, dst, slot);
    if (reason && is_verbose()) count_original(reason);
    slot.prepared.store(true, std::memory_order_release);
}

// By the last thread, when no other is in the call any more.
void clear(Host& host, Slot& slot) {
    if (slot.run != nullptr) {
        if (is_verbose()) count_run(slot.problem, slot.run, now() - slot.began);
        quire_run_release(slot.run);
    }
    if (slot.trial) {
        bool each_once = true;
        for (int i = 0; i < slot.count; ++i) each_once &= slot.numbers[i / 64].load() >> (i % 64) & 1;
        host.params = each_once ? Host::trusted : Host::refused;
        if (!each_once)
            say("not used, attention is computed by ggml's own function: its threads have other numbers");
    }
    slot.prepared.store(false, std::memory_order_relaxed);
    slot.tensor.store(nullptr, std::memory_order_release);
}

bool may_take(Host& host, const ComputeParams* params, const Tensor* dst) {
    if (!host.proved || host.params == Host::refused) return false;
    if (dst->op != host.op) return false;  // also in versions whose second parameter is the query
    if (params->nth >= 1 && params->nth <= kMaxThreads && params->ith >= 0 && params->ith < params->nth)
        return true;
    host.params = Host::refused;
    say("not used, attention is computed by ggml's own function: thread %d of %d", params->ith, params->nth);
    return false;
}

}  // namespace
}  // namespace quire_ggml

using namespace quire_ggml;

extern "C" __attribute__((visibility("default"))) void ggml_compute_forward_flash_attn_ext(
    const ComputeParams* params, Tensor* dst, void* a, void* b, void* c, void* d) {
    Host& host = host_of(__builtin_return_address(0));
    if (!may_take(host, params, dst)) return host.original(params, dst, a, b, c, d);
    Slot& slot = slot_of(dst);
    if (enter(slot, dst)) {
        prepare_slot(host, *params, *dst, slot);
    } else {
        for (Wait wait; !slot.prepared.load(std::memory_order_acquire);) wait.again();
    }
    if (slot.trial) slot.numbers[params->ith / 64].fetch_or(uint64_t(1) << (params->ith % 64));
    if (slot.run == nullptr)
        host.original(params, dst, a, b, c, d);
    else
        quire_run_slice(slot.run, params->ith, params->nth, barrier, &slot);
    if (slot.left.fetch_add(1, std::memory_order_acq_rel) + 1 == slot.count) clear(host, slot);
}
