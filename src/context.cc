#include "src/context.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "jit/listing.h"
#include "src/execute.h"

namespace quire {
namespace {

constexpr size_t kCodeLimit = size_t(64) << 20;

int processors() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

Status resolve_threads(int asked, int* threads) {
    QUIRE_TRY(check_range("num_threads", asked, 0, kMaxSlices));
    const char* text = std::getenv("QUIRE_NUM_THREADS");
    if (asked == 0 && text != nullptr && *text != 0) {
        char* end = nullptr;
        const long value = std::strtol(text, &end, 10);
        if (*end != 0 || value < 1 || value > kMaxSlices)
            return invalid("QUIRE_NUM_THREADS is \"%s\": must be 1 to %d", text, kMaxSlices);
        asked = int(value);
    }
    *threads = asked != 0 ? asked : std::min(processors(), kMaxSlices);
    return {};
}

}  // namespace

Context::Context(const Target& t, int threads, size_t code_limit, quire_log_fn log_fn, void* user,
                 const Diagnostics& d)
    : target(t),
      num_threads(threads),
      log(log_fn),
      log_user(user),
      diagnostics(d),
      code(code_limit, d.watches_code() ? [this](const std::shared_ptr<const jit::Code>& made,
                                                 const jit::Notes& notes) { watch(made, notes); }
                                        : jit::CodeCache::Watcher()),
      executor(std::make_unique<Executor>(threads, [this](const std::string& text) { say_once(text); })),
      perf_(d.perf) {}

Context::~Context() = default;

void Run::release(std::unique_ptr<Run> run) {
    std::shared_ptr<Context> context = std::move(run->context_);
    context->give_back(std::move(run));
}

std::unique_ptr<Run> Context::take_run() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<Run> run = std::move(idle_.back());
            idle_.pop_back();
            run->clear();
            return run;
        }
    }
    return std::make_unique<Run>();
}

void Context::give_back(std::unique_ptr<Run> run) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(run));
}

void Context::say_once(const std::string& text) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!said_.insert(text).second) return;
    }
    say(text.c_str());
}

void Context::say(const char* line) const {
    if (log)
        log(log_user, line);
    else
        std::fprintf(stderr, "%s\n", line);
}

// That a profile or a listing can't be written must not fail the call.
void Context::watch(const std::shared_ptr<const jit::Code>& made, const jit::Notes& notes) {
    Status status = perf_.add(made);
    if (!status.ok()) say_once("quire: QUIRE_PERF: " + status.message());
    if (diagnostics.jit_dump.empty()) return;
    status = jit::write_listing(diagnostics.jit_dump, *made, notes);
    if (!status.ok()) say_once("quire: QUIRE_JIT_DUMP: " + status.message());
}

Status make_context(const quire_context_options* options, std::shared_ptr<Context>* context) {
    quire_context_options o = {};
    if (options != nullptr) o = *options;
    const Target* target = nullptr;
    QUIRE_TRY(resolve_target(o.target, &target));
    int threads = 0;
    QUIRE_TRY(resolve_threads(o.num_threads, &threads));
    if (o.code_memory_limit < 0)
        return invalid("code_memory_limit is %lld: must be >= 0", (long long)o.code_memory_limit);
    const size_t limit = o.code_memory_limit == 0 ? kCodeLimit : size_t(o.code_memory_limit);
    Diagnostics diagnostics;
    QUIRE_TRY(read_diagnostics(&diagnostics));
    QUIRE_TRY(check_range("quiet", o.quiet, 0, 1));
    if (o.quiet) diagnostics.verbose = 0;
    *context = std::make_shared<Context>(*target, threads, limit, o.log, o.log_user, diagnostics);
    return {};
}

Status default_context(std::shared_ptr<Context>* context) {
    static std::mutex mutex;
    static std::shared_ptr<Context> made;
    std::lock_guard<std::mutex> lock(mutex);
    if (!made) QUIRE_TRY(make_context(nullptr, &made));
    *context = made;
    return {};
}

}  // namespace quire
