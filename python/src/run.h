// Runs a planned call without the GIL: by the library's own threads, or as slices.
#pragma once
#include "python/src/context.h"
#include "quire/quire.h"

namespace quire_python {

// `count` threads, the caller's among them, run the slices of `run`, which is released. The GIL is not held.
// Throws Error (with the message of the slice that failed) or std::system_error (no thread to be had).
void run_slices(quire_run* run, int32_t count);

template <typename Args>
void run(const Context& context, const Plan& plan, const Args& args,
         quire_status (*direct)(const quire_plan*, const Args*),
         quire_status (*prepare)(const quire_plan*, const Args*, quire_run**)) {
    nb::gil_scoped_release unlocked;
    if (context.slices() == 0) return check(direct(plan.get(), &args));
    quire_run* prepared = nullptr;
    check(prepare(plan.get(), &args, &prepared));
    run_slices(prepared, context.slices());
}

}  // namespace quire_python
