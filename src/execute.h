// Runs the work items of a call: in oneTBB, on the caller's threads (slices), or inline. The only files that
// include oneTBB are execute.cc and arena.cc.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/append.h"
#include "src/arena.h"
#include "src/attend_query_rows.h"
#include "src/copy.h"
#include "src/plan.h"
#include "src/project.h"
#include "src/read.h"
#include "src/schedule.h"

namespace quire {

struct Context;

constexpr int kMaxSlices = 1024;

// What is said of a call after it (QUIRE_VERBOSE), and its time: from when the first thread began to when the
// last one ended. Not wanted: no clock is asked.
class CallReport {
public:
    static int64_t now();  // ns
    bool wanted() const { return wanted_; }
    void clear() { wanted_ = false; }
    void begin(std::string text, int64_t prepared_in);
    // The text and both times. Allocates nothing: the call has run, and must not fail any more.
    const char* end();

    // For the length of a thread's work.
    class Timed {
    public:
        explicit Timed(CallReport& report);
        ~Timed();
        Timed(const Timed&) = delete;

    private:
        CallReport& report_;
    };

private:
    static constexpr size_t kTimes = 64;  // characters
    bool wanted_ = false;
    std::string text_;
    int64_t prepared_in_ = 0;
    std::atomic<int64_t> began_{0}, ended_{0};
};

// One prepared call. Its work is a fixed list of phases; the items of a phase are independent of each other,
// and a phase begins when the one before has ended.
class Run {
public:
    // Set by the operator before start(): the problems that the call has.
    AppendProblem append;
    ReadProblem read;
    AttentionProblem attention;
    std::vector<RowCopy>
        copies;  // run before attention, beside each other: none may read what another writes
    std::vector<Projection> inputs, outputs;  // before the copies, and after attention; the same rule
    int max_threads = 0;                      // of quire's own; 0: the context's
    std::vector<char> workspace;              // tensors of the operator's own, kept from call to call
    CallReport report;

    // Empties what the last call left, keeping memory.
    void clear() {
        copies.clear();
        inputs.clear();
        outputs.clear();
        max_threads = 0;
        report.clear();
    }
    // Plans may be null. Builds the schedule and all memory.
    void start(std::shared_ptr<Context> context, const AppendPlan* append_plan,
               const AttentionPlan* attention_plan, const ReadPlan* read_plan = nullptr);

    const AppendPlan* append_plan() const { return append_plan_; }
    const AttentionPlan* attention_plan() const { return attention_plan_; }
    const ReadPlan* read_plan() const { return read_plan_; }
    const Context& context() const { return *context_; }

    // A phase may read what those before it wrote.
    enum Phase { kAppend, kInputs, kCopies, kRead, kScan, kAttend, kOutputs, kPhases };
    int64_t phase_items(int phase) const;
    // Merges of parts, each by the thread that attends to the last part.
    int64_t merges() const { return attention_plan_ ? schedule_.merges() : 0; }
    struct Items {
        int64_t begin = 0, end = 0;
    };
    // Memory of one worker, then items of a phase, which are run together; a worker is used by one thread at
    // a time. `following`: what it runs next, whose rows are fetched ahead; or none.
    void prepare_worker(int worker);
    void run_items(int phase, Items items, Items following, int worker);

    // The share of one of `threads` that work at the phase: body(items, following), until none is left.
    // While there are many, the next ones are taken before the last of those at hand are run.
    template <typename Body>
    void share(int phase, int threads, const Body& body) {
        Items taken = take(phase, threads), now = together(phase, taken);
        while (now.begin < now.end) {
            taken.begin = now.end;
            const bool ends = taken.begin == taken.end;
            const bool early = ends && phase_items(phase) - next_[phase] >= 4 * threads;
            if (early) taken = take(phase, threads);
            const Items following = together(phase, taken);
            body(now, following);
            if (ends && !early) taken = take(phase, threads);
            now = ends && !early ? together(phase, taken) : following;
        }
    }

    // Drops the hold on the context and returns this run to it (src/context.cc).
    static void release(std::unique_ptr<Run> run);

private:
    Items take(int phase, int threads);
    Items together(int phase, Items taken) const;
    // What a thread has of its own.
    struct Worker {
        Scratch scratch;
        KeptQueries queries;
        States states;  // of items that it merges at once
        Items ahead;  // what followed the last ones, and is not looked up again: 1 to 3 % of short sequences
        HeadItems ahead_items;
    };
    void attend(Items taken, Items taken_next, Worker& worker);
    void attend_items(const HeadItems& items, const HeadItems& following, Worker& worker, States& states);
    int64_t near_states() const;
    bool merges_alone(const HeadItems& items, int64_t parts) const;
    void map_mask();
    void count_parts();
    void merge_after(const Item& item, int64_t parts, Scratch& scratch);
    void merge(const Item& item, const States& states, Scratch& scratch);

    std::shared_ptr<Context> context_;
    const AppendPlan* append_plan_ = nullptr;
    const AttentionPlan* attention_plan_ = nullptr;
    const ReadPlan* read_plan_ = nullptr;
    Reader reader_;
    MaskMap mask_map_;
    bool scans_ = false;  // the map in a phase of its own, as it is not small
    Schedule schedule_;
    States states_;
    std::vector<std::atomic<int64_t>> done_;        // of each merge: items that have written their states
    size_t scratch_floats_ = 0, query_floats_ = 0;  // of a worker; the latter of a kv head
    std::atomic<int64_t> next_[kPhases] = {};
    std::unique_ptr<Worker> workers_[kMaxSlices];
};

// MXCSR as the kernels need it (round to nearest, no flush to zero), and the caller's again afterwards.
class FloatEnvironment {
public:
    FloatEnvironment();
    ~FloatEnvironment();
    FloatEnvironment(const FloatEnvironment&) = delete;

private:
    unsigned caller_;
};

class Executor {
public:
    // `say`: the context's log, each text once.
    Executor(int num_threads, std::function<void(const std::string&)> say);
    void run(Run& run);

private:
    void run_phases(Run& run, int threads) const;

    const int num_threads_;
    const std::function<void(const std::string&)> say_;
    Arena arena_;
};

// One slice of a run: all of `count` threads call it.
Status run_slice(Run& run, int index, int count, quire_barrier_fn barrier, void* user);

}  // namespace quire
