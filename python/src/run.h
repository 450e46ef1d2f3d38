// Runs a planned call without the GIL: by the library's own threads, or as slices.
#pragma once
#include "python/src/context.h"
#include "quire/quire.h"

namespace quire_python {

// `count` threads, the caller's among them, run the slices of `run`, which is released. The GIL is not held.
// Throws Error (with the message of the slice that failed) or std::system_error (no thread to be had).
void run_slices(quire_run* run, int32_t count);

// While one exists, calls of its thread are checked and predicted (quire_run_predict), and not run.
class Predicting {
public:
    explicit Predicting(const quire_limits& limits);
    ~Predicting();
    Predicting(const Predicting&) = delete;

    static Predicting* of_this_thread();
    // Predicts and releases it.
    void take(quire_run* run);
    const std::vector<quire_prediction>& taken() const { return taken_; }

private:
    const quire_limits limits_;
    Predicting* const outer_;
    std::vector<quire_prediction> taken_;
};

void bind_predict(nb::module_& module);

template <typename Args>
void run(const Context& context, const Plan& plan, const Args& args,
         quire_status (*direct)(const quire_plan*, const Args*),
         quire_status (*prepare)(const quire_plan*, const Args*, quire_run**)) {
    nb::gil_scoped_release unlocked;
    Predicting* const predicting = Predicting::of_this_thread();
    if (context.slices() == 0 && predicting == nullptr) return check(direct(plan.get(), &args));
    quire_run* prepared = nullptr;
    check(prepare(plan.get(), &args, &prepared));
    if (predicting != nullptr) return predicting->take(prepared);
    run_slices(prepared, context.slices());
}

}  // namespace quire_python
