// What calls share: target, code cache, log, prepared runs, and the threads of execute.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "jit/code_cache.h"
#include "src/diagnostics.h"
#include "src/target.h"

namespace quire {

class Executor;  // src/execute.h
class Run;

struct Context {
    Context(const Target& t, int threads, size_t code_limit, quire_log_fn log_fn, void* user,
            const Diagnostics& d);
    ~Context();

    const Target& target;
    const int num_threads;
    const quire_log_fn log;
    void* const log_user;
    const Diagnostics diagnostics;
    jit::CodeCache code;
    const std::unique_ptr<Executor> executor;

    // Finished runs, kept with their memory: a steady state allocates nothing.
    std::unique_ptr<Run> take_run();
    void give_back(std::unique_ptr<Run> run);

    // To the log (stderr by default).
    void say(const char* line) const;
    // Each text once.
    void say_once(const std::string& text);

private:
    void watch(const std::shared_ptr<const jit::Code>& code, const jit::Notes& notes);

    std::mutex mutex_;
    std::set<std::string> said_;
    std::vector<std::unique_ptr<Run>> idle_;
    jit::PerfWriter perf_;
};

Status make_context(const quire_context_options* options, std::shared_ptr<Context>* context);
// The one that NULL means; made on first use. A failure (bad QUIRE_TARGET) is reported at every use.
Status default_context(std::shared_ptr<Context>* context);

}  // namespace quire
