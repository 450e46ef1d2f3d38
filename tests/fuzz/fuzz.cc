// libFuzzer's target: one input is one call of one operator, on one of the machine's targets, in one of the
// ways to run it. Half of the calls are valid and must succeed; the others hold a mistake or a few, and may.
//   - nothing is read or written outside the tensors and structs (guard pages, AddressSanitizer);
//   - a failed call leaves all memory as it was, a successful one all but what it is to write;
//   - a failed call says why.
// QUIRE_FUZZ_VERBOSE=1 prints each call before it is made.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "tests/fuzz/call.h"

namespace quire::fuzz {
namespace {

using Make = Call (*)(Source&);
constexpr Make kOperators[] = {make_attention,
                               make_append,
                               make_rotate,
                               make_merge_states,
                               make_pmx_dynamic_multi_head_cache_attention,
                               make_pmx_dynamic_multi_head_attention,
                               make_pmx_dynamic_key_value_cache,
                               make_pmx_multi_head_cache_attention,
                               make_pmx_multi_head_attention,
                               make_pmx_key_value_cache,
                               make_directml_multihead_attention1,
                               make_mindspore_multi_head_attention};
constexpr int kOperatorCount = int(sizeof kOperators / sizeof *kOperators);

struct Counts {
    long calls = 0, succeeded = 0, refused = 0, refused_plans = 0;
};
std::map<std::string, Counts> counts;
long too_large = 0;

[[noreturn]] void fail(const Call& call, const std::string& what) {
    std::fprintf(stderr, "quire_fuzz: %s\n%s", what.c_str(), describe(call).c_str());
    std::abort();
}

// ---- contexts: one for each target of this machine and 1 or 2 threads ----

std::vector<quire_context*> make_contexts() {
    std::vector<quire_context*> contexts;
    for (const char* name : {"portable", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_vnni_vbmi",
                             "avx512_vnni_bf16", "avx512_vnni_bf16_amx"})
        for (int threads = 1; threads <= 2; ++threads) {
            quire_context_options options = {};
            options.struct_size = sizeof options;
            options.target = name;
            options.num_threads = threads;
            options.code_memory_limit = 8 << 20;
            options.log = [](void*, const char*) {};
            quire_context* context = nullptr;
            if (quire_context_create(&options, &context) != QUIRE_OK) {
                std::fprintf(stderr, "quire_fuzz: %s: %s\n", name, quire_last_error());
                std::abort();
            }
            if (std::strcmp(quire_target_name(context), name) == 0)
                contexts.push_back(context);
            else
                quire_context_destroy(context);
        }
    return contexts;
}

quire_context* draw_context(Source& source) {
    static const auto& contexts = *new std::vector<quire_context*>(make_contexts());  // until the end
    return contexts[size_t(source.between(0, int64_t(contexts.size()) - 1))];
}

// ---- running a plan ----

// Two slices; the barrier counts arrivals.
class TwoSlices {
public:
    explicit TwoSlices(quire_run* run) : run_(run) {}
    quire_status run() {
        std::thread other([&] { slice(1); });
        const quire_status status = slice(0);
        other.join();
        return status;
    }

private:
    quire_status slice(int32_t index) {
        return quire_run_slice(
            run_, index, 2, [](void* self) { static_cast<TwoSlices*>(self)->wait(); }, this);
    }
    void wait() {
        const int round = arrived_++ / 2;
        while (arrived_.load() < 2 * (round + 1)) std::this_thread::yield();
    }
    quire_run* run_;
    std::atomic<int> arrived_{0};
};

enum class Way { now, slice, two_slices, never };

quire_status run_prepared(const Call& call, const quire_plan* plan, const void* args, Way way) {
    quire_run* run = nullptr;
    const quire_status status = call.functions.prepare(plan, args, &run);
    if (status != QUIRE_OK) {
        if (run != nullptr) fail(call, "a failed prepare gave a run");
        return status;
    }
    if (quire_run_slice(run, -1, 1, nullptr, nullptr) == QUIRE_OK ||
        quire_run_slice(run, 1, 1, nullptr, nullptr) == QUIRE_OK ||
        quire_run_slice(run, 0, 0, nullptr, nullptr) == QUIRE_OK ||
        quire_run_slice(run, 0, 2, nullptr, nullptr) == QUIRE_OK)
        fail(call, "a wrong slice was run");
    quire_status ran = QUIRE_OK;
    if (way == Way::slice) ran = quire_run_slice(run, 0, 1, nullptr, nullptr);
    if (way == Way::two_slices) ran = TwoSlices(run).run();
    if (ran != QUIRE_OK) fail(call, "a prepared run failed");
    quire_run_release(run);
    return status;
}

Way draw_way(Source& source) {
    const uint8_t drawn = source.byte();
    return drawn < 192 ? Way::now : drawn < 224 ? Way::slice : drawn < 240 ? Way::two_slices : Way::never;
}

// ---- one input ----

void check_refusal(const Call& call, const Memory& memory, quire_status status) {
    if (call.mistakes.empty()) fail(call, std::string("a valid call was refused: ") + quire_last_error());
    if (status != QUIRE_INVALID_ARGUMENT && status != QUIRE_UNSUPPORTED)
        fail(call, "status " + std::to_string(status) + ": " + quire_last_error());
    if (quire_last_error()[0] == '\0') fail(call, "refused without a message");
    const int piece = memory.changed({});
    if (piece >= 0) fail(call, "a refused call changed piece " + std::to_string(piece));
}

void check_success(const Call& call, const Memory& memory, const Placed& placed, Way way) {
    if (call.functions.plan && (call.null_args || call.null_plan)) fail(call, "NULL was taken");
    const int piece =
        memory.changed(way == Way::never ? std::vector<std::vector<uint8_t>>{} : placed.may_change);
    if (piece >= 0) fail(call, "what is not to be written was: piece " + std::to_string(piece));
}

struct Destroy {
    void operator()(quire_plan* plan) const { quire_plan_destroy(plan); }
};

void run_input(Source& source) {
    static Memory memory;
    static const bool verbose = std::getenv("QUIRE_FUZZ_VERBOSE") != nullptr;
    const Make make = kOperators[source.between(0, kOperatorCount - 1)];
    quire_context* context = draw_context(source);
    Way way = draw_way(source);
    const bool wrong = source.chance(128);
    Call call = make(source);
    vary_views(source, &call);
    if (wrong) make_mistakes(source, &call);
    if (verbose)
        std::fprintf(stderr, "%s, %d threads, way %d: %s", quire_target_name(context),
                     quire_num_threads(context), int(way), describe(call).c_str());
    Placed placed;
    if (!place(call, source, &memory, &placed)) {
        ++too_large;
        return;
    }
    memory.remember();
    Counts& count = counts[call.functions.name];
    ++count.calls;

    quire_plan* made = nullptr;
    quire_status status = QUIRE_OK;
    if (call.functions.plan != nullptr)
        status = call.functions.plan(context, call.null_desc ? nullptr : placed.desc, &made);
    if (status == QUIRE_OK && call.null_desc && call.functions.plan)
        fail(call, "a NULL descriptor was taken");
    const std::unique_ptr<quire_plan, Destroy> plan(made);
    if (status != QUIRE_OK) {
        if (made != nullptr) fail(call, "a failed call gave a plan");
        ++count.refused_plans;
        return check_refusal(call, memory, status);
    }
    if (call.functions.prepare == nullptr) way = Way::now;
    const quire_plan* used = call.null_plan ? nullptr : plan.get();
    const void* args = call.null_args && call.functions.plan ? nullptr : placed.args;
    if (way == Way::now)
        status = call.functions.run(used, args);
    else
        status = run_prepared(call, used, args, way);
    ++(status == QUIRE_OK ? count.succeeded : count.refused);
    if (status != QUIRE_OK) return check_refusal(call, memory, status);
    check_success(call, memory, placed, way);
}

// ---- beginning and end ----

// The seed corpus: for each operator inputs of random bytes. First bytes: operator, target, way, wrong or
// not.
void write_seeds(const std::string& directory) {
    for (int op = 0; op < kOperatorCount; ++op)
        for (int i = 0; i < 24; ++i) {
            uint8_t bytes[256];
            const uint8_t name[] = {uint8_t(op), uint8_t(i)};
            Source random(name, sizeof name);
            for (uint8_t& byte : bytes) byte = uint8_t(random.bits() >> 32);
            bytes[0] = uint8_t(op);
            bytes[3] = i % 4 == 0 ? 0 : 255;  // a mistake in one of four
            const std::string path = directory + "/seed-" + std::to_string(op) + "-" + std::to_string(i);
            FILE* file = std::fopen(path.c_str(), "wb");
            if (file == nullptr || std::fwrite(bytes, sizeof bytes, 1, file) != 1 || std::fclose(file) != 0) {
                std::perror(path.c_str());
                std::exit(1);
            }
        }
}

// A fuzzer whose calls never succeed tests nothing but the checks.
void print_counts() {
    Counts all;
    bool idle = false;
    for (const auto& [name, c] : counts) {
        std::fprintf(stderr,
                     "quire_fuzz: %-45s %7ld calls, %3ld %% succeeded, %6ld refused, %6ld plans refused\n",
                     name.c_str(), c.calls, c.succeeded * 100 / c.calls, c.refused, c.refused_plans);
        all.calls += c.calls;
        all.succeeded += c.succeeded;
        idle |= c.calls >= 1000 && c.succeeded == 0;
    }
    std::fprintf(
        stderr, "quire_fuzz: all operators: %ld calls, %ld succeeded (%.1f %%); %ld inputs too large\n",
        all.calls, all.succeeded, 100. * double(all.succeeded) / double(std::max(all.calls, 1l)), too_large);
    if (!idle) return;
    std::fprintf(stderr, "quire_fuzz: an operator had no call that succeeded\n");
    std::_Exit(1);
}

}  // namespace
}  // namespace quire::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    const std::string option = "--write-seeds=";
    for (int i = 1; i < *argc; ++i)
        if (std::strncmp((*argv)[i], option.c_str(), option.size()) == 0) {
            quire::fuzz::write_seeds((*argv)[i] + option.size());
            std::exit(0);
        }
    std::atexit(quire::fuzz::print_counts);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    quire::fuzz::Source source(data, size);
    quire::fuzz::run_input(source);
    return 0;
}
