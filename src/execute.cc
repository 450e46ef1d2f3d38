#include "src/execute.h"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "src/ordered.h"
#include "src/portable.h"

namespace quire {
namespace {

constexpr unsigned kDefaultMxcsr = 0x1f80;

// A list of copies or projections as one list of items.
template <typename List>
int64_t items_of(const List& list) {
    int64_t items = 0;
    for (const auto& entry : list) items += entry.items();
    return items;
}
template <typename List, typename Body>
void run_item_of(const List& list, int64_t item, const Body& body) {
    for (const auto& entry : list) {
        if (item < entry.items()) return body(entry, item);
        item -= entry.items();
    }
}

}  // namespace

FloatEnvironment::FloatEnvironment() : caller_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
FloatEnvironment::~FloatEnvironment() { _mm_setcsr(caller_); }

// ---- CallReport ----

int64_t CallReport::now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void CallReport::begin(std::string text, int64_t prepared_in) {
    wanted_ = true;
    text_ = std::move(text);
    text_.reserve(text_.size() + kTimes);
    prepared_in_ = prepared_in;
    began_ = std::numeric_limits<int64_t>::max();
    ended_ = 0;
}

const char* CallReport::end() {
    const int64_t began = began_, ended = ended_, run = ended > began ? ended - began : 0;
    char times[kTimes];
    std::snprintf(times, sizeof times, ",%.1f,%.1f", double(prepared_in_) / 1e3, double(run) / 1e3);
    return text_.append(times).c_str();
}

CallReport::Timed::Timed(CallReport& report) : report_(report) {
    if (!report_.wanted_) return;
    const int64_t time = now();
    int64_t began = report_.began_;
    while (time < began && !report_.began_.compare_exchange_weak(began, time)) {
    }
}

CallReport::Timed::~Timed() {
    if (!report_.wanted_) return;
    const int64_t time = now();
    int64_t ended = report_.ended_;
    while (time > ended && !report_.ended_.compare_exchange_weak(ended, time)) {
    }
}

// ---- Run ----

void Run::start(std::shared_ptr<Context> context, const AppendPlan* append_plan,
                const AttentionPlan* attention_plan, const ReadPlan* read_plan) {
    context_ = std::move(context);
    append_plan_ = append_plan;
    attention_plan_ = attention_plan;
    read_plan_ = read_plan;
    scratch_floats_ = append_plan ? scratch_floats(*append_plan) : 0;
    if (read_plan) {
        reader_.build(*read_plan, read);
        scratch_floats_ = std::max(scratch_floats_, scratch_floats(*read_plan));
    }
    scans_ = false;
    if (attention_plan) {
        map_mask();
        schedule_.build(*attention_plan, attention);
        states_.resize(schedule_.states(), attention_plan->value_stride);
        query_floats_ = KeptQueries::floats_of_head(*attention_plan, schedule_);
        count_parts();
        scratch_floats_ = std::max(scratch_floats_, scratch_floats(*attention_plan));
    }
    for (const std::vector<Projection>* list : {&inputs, &outputs})
        for (const Projection& p : *list) scratch_floats_ = std::max(scratch_floats_, p.scratch_floats());
    for (std::atomic<int64_t>& next : next_) next.store(0, std::memory_order_relaxed);
}

// `portable` is the definition, and asks the mask itself.
void Run::map_mask() {
    mask_map_.clear();
    if (attention_plan_->target->jit()) mask_map_.build(attention);
    if (!mask_map_.says_anything()) return;
    attention.mask_map = &mask_map_;
    scans_ = !mask_map_.is_small();
    for (int64_t i = 0; !scans_ && i < mask_map_.items(); ++i) mask_map_.run_item(i);
}

void Run::count_parts() {
    const size_t merges = size_t(schedule_.merges());
    if (done_.size() < merges) done_ = std::vector<std::atomic<int64_t>>(merges);
    for (size_t i = 0; i < merges; ++i) done_[i].store(0, std::memory_order_relaxed);
}

int64_t Run::phase_items(int phase) const {
    switch (phase) {
        case kAppend: return append_plan_ ? append_items(*append_plan_, append) : 0;
        case kInputs: return items_of(inputs);
        case kCopies: return items_of(copies);
        case kRead: return read_plan_ ? reader_.items() : 0;
        case kScan: return scans_ ? mask_map_.items() : 0;
        case kAttend: return attention_plan_ ? schedule_.items() : 0;
        default: return items_of(outputs);
    }
}

void Run::prepare_worker(int worker) {
    std::unique_ptr<Worker>& own = workers_[worker];
    if (!own) own = std::make_unique<Worker>();
    own->scratch.reserve(scratch_floats_);
    if (!attention_plan_) return;
    own->ahead = {};
    own->queries.begin(attention_plan_->spec.Hk, query_floats_);
    if (schedule_.merges() > 0) own->states.resize(near_states(), attention_plan_->value_stride);
}

void Run::run_items(int phase, Items items, Items following, int worker) {
    Scratch& scratch = workers_[worker]->scratch;
    const auto run = [](const auto& of_list, int64_t item) { of_list.run_item(item); };
    const auto run_with_scratch = [&](const auto& of_list, int64_t item) { of_list.run_item(item, scratch); };
    switch (phase) {
        case kAppend: return append_item(*append_plan_, append, items.begin, scratch);
        case kInputs: return run_item_of(inputs, items.begin, run_with_scratch);
        case kCopies: return run_item_of(copies, items.begin, run);
        case kRead: return reader_.run_item(items.begin, scratch);
        case kScan: return mask_map_.run_item(items.begin);
        case kAttend: return attend(items, following, *workers_[worker]);
        default: return run_item_of(outputs, items.begin, run_with_scratch);
    }
}

// The first of them, and those that are run with it.
Run::Items Run::together(int phase, Items taken) const {
    if (taken.begin == taken.end) return taken;
    const int64_t count = phase == kAttend ? schedule_.together(taken.begin, taken.end) : 1;
    return {taken.begin, taken.begin + count};
}

void Run::merge(const Item& item, const States& states, Scratch& scratch) {
    scratch.reset();
    float* merged = scratch.floats(size_t(attention_plan_->value_stride));
    merge_item(*attention_plan_, attention, item, states, merged);
}

// Parts are merged in their order, whoever does it. `parts`: of those that were run.
void Run::merge_after(const Item& item, int64_t parts, Scratch& scratch) {
    std::atomic<int64_t>& done = done_[size_t(item.merge)];
    if (done.fetch_add(parts, std::memory_order_acq_rel) + parts < schedule_.merged_items(item)) return;
    merge(schedule_.merge(item.merge), states_, scratch);
}

// How many a thread keeps in its caches.
int64_t Run::near_states() const {
    constexpr int64_t kFloats = 32 << 10;
    return kFloats / attention_plan_->value_stride;
}

// Whether they are all parts of a head's keys, with few enough states for one thread.
bool Run::merges_alone(const HeadItems& items, int64_t parts) const {
    const Item& item = items.first;
    return parts > 1 && parts == item.parts && items.count * item.row_end * parts <= near_states();
}

void Run::attend(Items taken, Items taken_next, Worker& worker) {
    const bool known = worker.ahead.begin == taken.begin && worker.ahead.end == taken.end;
    HeadItems items = known ? worker.ahead_items : schedule_.items(taken.begin, taken.end);
    const HeadItems& following = worker.ahead_items = schedule_.items(taken_next.begin, taken_next.end);
    worker.ahead = taken_next;
    const int64_t parts = (taken.end - taken.begin) / items.count;  // of each head
    if (!merges_alone(items, parts)) {
        attend_items(items, following, worker, states_);
        for (int h = 0; items.first.parts > 1 && h < items.count; ++h)
            merge_after(items[h], parts, worker.scratch);
        return;
    }
    items.first.state = 0;
    attend_items(items, following, worker, worker.states);
    for (int h = 0; h < items.count; ++h) {
        Item merged = schedule_.merge(items[h].merge);
        merged.state = items[h].state;
        merge(merged, worker.states, worker.scratch);
    }
}

void Run::attend_items(const HeadItems& items, const HeadItems& following, Worker& worker, States& states) {
    const AttentionPlan& plan = *attention_plan_;
    const int group = plan.spec.group();
    const Item& first = items.first;
    if (!plan.target->jit()) {
        for (int64_t row = first.row_begin; row < first.row_end; ++row)
            portable::attend_row(attention, first.b, row / group, first.kv_head * group + int(row % group));
        return;
    }
    const int64_t rows = attention.queries(first.b) * group, most_rows = plan.first_rows(rows);
    const auto attend_most = [&](const HeadItems& most, const HeadItems& after) {
        if (most_rows <= plan.decode_rows)
            attend_rows(plan, attention, most, after, worker.queries, worker.scratch, states);
        else
            attend_tiles(plan, attention, most.first, after.count ? &after.first : nullptr, worker.scratch,
                         states);
    };
    if (most_rows == rows) {
        attend_most(items, following);
    } else {
        HeadItems most = items, rest = items;
        most.first.row_end = rest.first.row_begin = most_rows;
        rest.first.state += most_rows * first.parts;
        // The keys come from memory for most rows, whose products take longer than it does, and are near for
        // the rest.
        attend_most(most, {});
        attend_rows(plan, attention, rest, following, worker.queries, worker.scratch, states);
    }
}

Run::Items Run::take(int phase, int threads) {
    const int64_t items = phase_items(phase);
    std::atomic<int64_t>& next = next_[phase];
    int64_t begin = next.load(std::memory_order_relaxed), end = 0;
    do {
        if (begin >= items) return {items, items};
        end = phase == kAttend ? schedule_.take_end(begin, threads) : begin + 1;
    } while (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return {begin, end};
}

// ---- slices ----

Status run_slice(Run& run, int index, int count, quire_barrier_fn barrier, void* user) {
    QUIRE_TRY(check_range("count", count, 1, kMaxSlices));
    QUIRE_TRY(check_range("index", index, 0, count - 1));
    if (count > 1 && barrier == nullptr)
        return invalid("barrier is NULL: must be given for %d slices", count);
    run.prepare_worker(index);
    FloatEnvironment environment;
    bool first = true;
    for (int phase = 0; phase < Run::kPhases; ++phase) {
        const int64_t items = run.phase_items(phase);
        if (items == 0) continue;
        if (!first && count > 1) barrier(user);
        first = false;
        run.share(phase, count,
                  [&](Run::Items now, Run::Items following) { run.run_items(phase, now, following, index); });
    }
    return {};
}

// ---- oneTBB ----

// oneTBB has no more workers than processors, and would print a warning if asked for more.
Executor::Executor(int num_threads, std::function<void(const std::string&)> say)
    : num_threads_(std::min(num_threads, tbb::info::default_concurrency())),
      say_(std::move(say)),
      arena_(num_threads_) {}

void Executor::run(Run& run) {
    int64_t most = 0;
    for (int phase = 0; phase < Run::kPhases; ++phase) most = std::max(most, run.phase_items(phase));
    const int threads = run.max_threads ? std::min(run.max_threads, num_threads_) : num_threads_;
    if (threads > 1 && most > 1) {
        if (arena_.execute([&] { run_phases(run, threads); })) return;
        say_("quire: runs inline: this process was forked while oneTBB was in use");
    }
    const Status status = run_slice(run, 0, 1, nullptr, nullptr);
    (void)status;  // index and count are right
}

void Executor::run_phases(Run& run, int threads) const {
    for (int worker = 0; worker < num_threads_; ++worker) run.prepare_worker(worker);
    for (int phase = 0; phase < Run::kPhases; ++phase) {
        const int64_t items = run.phase_items(phase);
        if (items == 0) continue;
        const Ordered work([&](int) {
            FloatEnvironment environment;
            const int worker = tbb::this_task_arena::current_thread_index();
            run.share(phase, threads, [&](Run::Items now, Run::Items following) {
                run.run_items(phase, now, following, worker);
            });
        });
        // One task a thread, each taking the next item: items are long, and this keeps their order.
        tbb::parallel_for(0, int(std::min<int64_t>(threads, items)), work, tbb::simple_partitioner());
        work.done();
    }
}

}  // namespace quire
