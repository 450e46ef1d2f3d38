// quire_turns LIBRARY LIBRARY... [-- OPTION...]: builds of quire over the same cache, in turns call by call.
// What a shared machine does to one it does to the others, so that differences of a percent show where those
// of two processes drown. Options are those of quire_bench, of decode and prefill. The first library is what
// the others are compared with.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/attention_arguments.h"
#include "bench/call.h"
#include "bench/options.h"

namespace {

constexpr int kRounds = 100;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "quire_turns: %s\n", what.c_str());
    std::exit(2);
}

// One build of the library, with symbols of its own. The same file twice is loaded once, which shows what the
// measurement itself adds.
class Library {
public:
    explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (!handle_) fail(dlerror());
    }
    template <typename Function>
    Function* find(const char* name) const {
        void* const symbol = dlsym(handle_, name);
        if (!symbol) fail(dlerror());
        return reinterpret_cast<Function*>(symbol);
    }

private:
    void* const handle_;
};

class Contestant {
public:
    Contestant(const Library& library, const bench::Workload& w)
        : attend_(library.find<decltype(quire_attention)>("quire_attention")),
          error_(library.find<decltype(quire_last_error)>("quire_last_error")) {
        quire_context_options options{};
        options.struct_size = sizeof options;
        options.num_threads = w.threads;
        options.target = w.target.empty() ? nullptr : w.target.c_str();
        quire_context* context = nullptr;
        check(library.find<decltype(quire_context_create)>("quire_context_create")(&options, &context));
        const quire_attention_desc desc = bench::attention_desc(w);
        check(library.find<decltype(quire_attention_plan)>("quire_attention_plan")(context, &desc, &plan_));
    }
    void run(const quire_attention_args* args) {
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        check(attend_(plan_, args));
        times_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    void forget() { times_.clear(); }
    double quantile(double share) {
        std::sort(times_.begin(), times_.end());
        return times_[size_t(share * double(times_.size() - 1))];
    }
    std::vector<uint32_t> output;

private:
    void check(quire_status status) const {
        if (status != QUIRE_OK) fail(error_());
    }

    decltype(quire_attention)* const attend_;
    decltype(quire_last_error)* const error_;
    quire_plan* plan_ = nullptr;
    std::vector<double> times_;
};

void take_turns(const std::vector<Library>& libraries, const bench::Workload& w) {
    bench::keep_caches_of({w});
    bench::AttentionArguments arguments(w);
    std::vector<Contestant> all;
    for (const Library& library : libraries) all.emplace_back(library, w);
    for (Contestant& one : all) {  // generates the code
        arguments.clear_output();
        one.run(arguments.of(0));
        one.output = arguments.output();
        one.forget();
    }
    int64_t run = 0;
    for (size_t round = 0; round < kRounds; ++round)
        for (size_t i = 0; i < all.size(); ++i) all[(round + i) % all.size()].run(arguments.of(run++));
    std::printf("%-44s %9.4f ms", w.name().c_str(), all[0].quantile(0.5) * 1e3);
    for (size_t i = 1; i < all.size(); ++i)
        std::printf("  %.3f (%.3f)%s", all[i].quantile(0.5) / all[0].quantile(0.5),
                    all[i].quantile(0.1) / all[0].quantile(0.1),
                    all[i].output == all[0].output ? "" : " other bits");
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    int own = 1;
    while (own < argc && std::string(argv[own]) != "--") ++own;
    if (own < 3) fail("usage: quire_turns LIBRARY LIBRARY... [-- OPTION of quire_bench...]");
    const std::vector<Library> libraries(argv + 1, argv + own);
    std::vector<char*> rest = {argv[0]};
    for (int i = own + 1; i < argc; ++i) rest.push_back(argv[i]);
    const bench::Options options = bench::parse_options(int(rest.size()), rest.data());
    std::printf("%-44s %12s  median (lowest tenth) of each other library, to the first's\n", "workload",
                "first");
    for (const bench::Workload& w : options.workloads)
        w.is_append ? fail(w.name() + ": must be of attention") : take_turns(libraries, w);
}
