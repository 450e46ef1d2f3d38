// What the functions of the C API share: they copy in, catch, keep the last error; no logic.
#pragma once
#include <exception>
#include <new>

#include "src/ops/explain.h"
#include "src/ops/verbose.h"

struct quire_context {
    std::shared_ptr<quire::Context> context;
};

namespace quire {

// Runs `body` and turns what it throws into a status; remembers the message. Neither bits nor MXCSR depend on
// the caller's rounding: plans compute too (scale, slopes).
template <typename Body>
quire_status guarded(const Body& body) noexcept {
    const FloatEnvironment environment;
    try {
        Status status = body();
        return status.ok() ? QUIRE_OK : report(status);
    } catch (const std::bad_alloc&) {
        return report(Status(QUIRE_OUT_OF_MEMORY, "out of memory"));
    } catch (const std::exception& error) {
        return report(Status(QUIRE_INTERNAL, error.what()));
    } catch (...) {
        return report(Status(QUIRE_INTERNAL, "unknown exception"));
    }
}

// A quire_run is a Run, so that preparing one allocates no handle.
inline Run* run_of(quire_run* run) { return reinterpret_cast<Run*>(run); }
inline const Run* run_of(const quire_run* run) { return reinterpret_cast<const Run*>(run); }

template <typename Args>
using Prepare = Status (*)(const quire_plan&, const Args&, Run*);

// On failure the run goes back to the context unused.
template <typename Args>
Status prepare_run(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare,
                   std::unique_ptr<Run>* out) {
    QUIRE_TRY(check_plan(plan, op));
    const bool verbose = plan->context->diagnostics.verbose > 0;
    const int64_t begin = verbose ? CallReport::now() : 0;
    Args copy;
    QUIRE_TRY(copy_in("args", args, &copy));
    std::unique_ptr<Run> run = plan->context->take_run();
    Status status = prepare(*plan, copy, run.get());
    if (!status.ok()) {
        plan->context->give_back(std::move(run));
        return status;
    }
    if (verbose) describe_call(*plan, begin, run.get());
    *out = std::move(run);
    return {};
}

inline void release(std::unique_ptr<Run> run) {
    if (run->report.wanted()) say_call(run.get());
    Run::release(std::move(run));
}

template <typename Args>
quire_status run_now(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare) {
    return guarded([&]() -> Status {
        std::unique_ptr<Run> run;
        QUIRE_TRY(prepare_run(plan, args, op, prepare, &run));
        {
            const CallReport::Timed timed(run->report);
            plan->context->executor->run(*run);
        }
        release(std::move(run));
        return {};
    });
}

template <typename Args>
quire_status prepare_only(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare,
                          quire_run** out) {
    return guarded([&]() -> Status {
        if (out == nullptr) return invalid("run is NULL: must point at a quire_run*");
        std::unique_ptr<Run> run;
        QUIRE_TRY(prepare_run(plan, args, op, prepare, &run));
        *out = reinterpret_cast<quire_run*>(run.release());
        return {};
    });
}

inline Status resolve(quire_context* handle, std::shared_ptr<Context>* context) {
    if (handle == nullptr) return default_context(context);
    *context = handle->context;
    return {};
}

template <typename Desc>
quire_status plan_for(quire_context* context, const Desc* desc, quire_plan** out, Operator op,
                      Status (*make)(const Desc&, quire_plan*)) {
    return guarded([&]() -> Status {
        if (out == nullptr) return invalid("plan is NULL: must point at a quire_plan*");
        Desc copy;
        QUIRE_TRY(copy_in("desc", desc, &copy));
        auto plan = std::make_unique<quire_plan>();
        plan->op = op;
        QUIRE_TRY(resolve(context, &plan->context));
        plan->explain = std::string("op: ") + operator_name(op) + "\n";
        QUIRE_TRY(make(copy, plan.get()));
        plan->explain_json = explain_as_json(plan->explain);
        if (plan->context->diagnostics.verbose > 1) say_plan(*plan);
        *out = plan.release();
        return {};
    });
}

}  // namespace quire
