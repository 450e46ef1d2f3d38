#include "tests/support/run.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <algorithm>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace quire::test {
namespace {

// Returns when `count` threads have called it; used again and again.
class Barrier {
public:
    explicit Barrier(int count) : count_(count) {}
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const int round = round_;
        if (++waiting_ == count_) {
            waiting_ = 0;
            ++round_;
            all_.notify_all();
        } else {
            all_.wait(lock, [&] { return round_ != round; });
        }
    }
    static void call(void* user) { static_cast<Barrier*>(user)->wait(); }

private:
    const int count_;
    int waiting_ = 0, round_ = 0;
    std::mutex mutex_;
    std::condition_variable all_;
};

std::vector<const Target*> find_targets() {
    const Target* cap = nullptr;
    if (!resolve_target(nullptr, &cap).ok()) return {find_target("portable")};
    // Those that are slower on this machine, too, unless QUIRE_TARGET leaves them out.
    const char* const named = std::getenv("QUIRE_TARGET");
    if (named == nullptr || *named == 0) cap = machine_target();
    std::vector<const Target*> found;
    int count = 0;
    const Target* table = target_table(&count);
    for (const Target* t = table; t <= cap; ++t) {
        const Target* got = nullptr;
        if (resolve_target(t->name, &got).ok() && got == t) found.push_back(t);
    }
    return found;
}

void append_bytes(const void* from, size_t bytes, std::vector<uint8_t>* to) {
    const uint8_t* begin = static_cast<const uint8_t*>(from);
    to->insert(to->end(), begin, begin + bytes);
}

Outcome collect(const Tensors& tensors) {
    const Case& c = tensors.spec;
    Outcome outcome;
    for (int64_t token = 0; token < c.n(); ++token)
        for (int h = 0; h < c.H; ++h) {
            append_bytes(element(tensors.output_view, token, h), size_t(c.Dv * type_bits(c.type) / 8),
                         &outcome.output_bytes);
            for (int d = 0; d < c.Dv; ++d) outcome.output.push_back(tensors.output_at(token, h, d));
            if (!c.lse) continue;
            append_bytes(element(tensors.lse_view, token, h), sizeof(float), &outcome.lse_bytes);
            outcome.lse.push_back(tensors.lse_at(token, h));
        }
    return outcome;
}

}  // namespace

const std::vector<const Target*>& targets() {
    static const std::vector<const Target*> found = find_targets();
    return found;
}

std::vector<const Target*> jit_targets() {
    std::vector<const Target*> found;
    for (const Target* t : targets())
        if (t->jit()) found.push_back(t);
    return found;
}

std::vector<const Target*> targets_with(bool Target::*feature) {
    std::vector<const Target*> list = jit_targets();
    list.erase(std::remove_if(list.begin(), list.end(), [&](const Target* t) { return !(t->*feature); }),
               list.end());
    return list;
}

// What is not asked for a target runs on.
const Target& best_target() {
    const Target* best = nullptr;
    return resolve_target(nullptr, &best).ok() ? *best : *find_target("portable");
}

std::string Way::name() const {
    return target + (slices > 0 ? ", " + std::to_string(slices) + " slices"
                                : ", " + std::to_string(threads) + " threads");
}

quire_context* context_of(const std::string& target, int threads) {
    struct Destroy {
        void operator()(quire_context* context) const { quire_context_destroy(context); }
    };
    // As many threads as a context asks for, also where the machine has fewer processors.
    static const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 8);
    static std::map<std::pair<std::string, int>, std::unique_ptr<quire_context, Destroy>> contexts;
    auto& context = contexts[{target, threads}];
    if (!context) {
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.target = target.c_str();
        options.num_threads = threads;
        quire_context* made = nullptr;
        EXPECT_EQ(quire_context_create(&options, &made), QUIRE_OK) << quire_last_error();
        context.reset(made);
    }
    return context.get();
}

quire_plan* make_plan(const Case& c, const Way& way) {
    const quire_attention_desc desc = desc_of(c);
    quire_plan* plan = nullptr;
    const quire_status status = quire_attention_plan(context_of(way.target, way.threads), &desc, &plan);
    EXPECT_EQ(status, QUIRE_OK) << quire_last_error() << "\n" << c << " on " << way.name();
    if (plan == nullptr) return nullptr;
    const std::string wanted = "attention: " + way.target + "\n";
    EXPECT_NE(std::string(quire_plan_explain(plan)).find(wanted), std::string::npos)
        << quire_plan_explain(plan);
    return plan;
}

void run_slices(int count, quire_run* run) {
    Barrier barrier(count);
    const auto slice = [&](int index) {
        EXPECT_EQ(quire_run_slice(run, index, count, Barrier::call, &barrier), QUIRE_OK)
            << quire_last_error();
    };
    std::vector<std::thread> others;
    for (int index = 1; index < count; ++index) others.emplace_back(slice, index);
    slice(0);
    for (std::thread& thread : others) thread.join();
}

Outcome run(Tensors& tensors, const Way& way) {
    const Case& c = tensors.spec;
    quire_plan* plan = make_plan(c, way);
    if (plan == nullptr) return {};
    tensors.prepare_run();
    const quire_attention_args args = tensors.args();
    if (way.slices == 0) {
        EXPECT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error() << "\n" << c;
    } else {
        quire_run* run = nullptr;
        EXPECT_EQ(quire_prepare_attention(plan, &args, &run), QUIRE_OK) << quire_last_error() << "\n" << c;
        if (run != nullptr) run_slices(way.slices, run);
        quire_run_release(run);
    }
    tensors.allow_writes();
    quire_plan_destroy(plan);
    EXPECT_TRUE(tensors.gaps_intact())
        << "written between the rows of output or lse: " << c << " on " << way.name();
    return collect(tensors);
}

}  // namespace quire::test
