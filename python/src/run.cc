#include "python/src/run.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quire_python {

namespace {

// Threads meet here; `abandon` lets go those that wait for others which will never come.
class Barrier {
public:
    explicit Barrier(int32_t count) : count_(count) {}

    // False: abandoned.
    bool wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const int64_t round = round_;
        if (++waiting_ == count_) {
            waiting_ = 0;
            ++round_;
            all_here_.notify_all();
        }
        all_here_.wait(lock, [&] { return abandoned_ || round_ != round; });
        return !abandoned_;
    }

    void abandon() {
        std::lock_guard<std::mutex> lock(mutex_);
        abandoned_ = true;
        all_here_.notify_all();
    }

private:
    const int32_t count_;
    std::mutex mutex_;
    std::condition_variable all_here_;
    int32_t waiting_ = 0;
    int64_t round_ = 0;
    bool abandoned_ = false;
};

class Slices {
public:
    Slices(quire_run* run, int32_t count) : run_(run), count_(count), start_(count), barrier_(count) {}
    ~Slices() { quire_run_release(run_); }

    void run_all() {
        std::vector<std::thread> threads;
        threads.reserve(count_ - 1);
        try {
            for (int32_t index = 1; index < count_; ++index)
                threads.emplace_back([this, index] { run_one(index); });
        } catch (...) {
            start_.abandon();  // none has begun: all are still at the start
            for (std::thread& thread : threads) thread.join();
            throw;
        }
        run_one(0);
        for (std::thread& thread : threads) thread.join();
        if (!error_.empty()) throw Error(error_);
    }

private:
    void run_one(int32_t index) {
        if (!start_.wait()) return;
        auto meet = [](void* barrier) { static_cast<Barrier*>(barrier)->wait(); };
        if (quire_run_slice(run_, index, count_, meet, &barrier_) == QUIRE_OK) return;
        std::lock_guard<std::mutex> lock(mutex_);
        error_ = quire_last_error();
    }

    quire_run* run_;
    const int32_t count_;
    Barrier start_;    // all threads exist
    Barrier barrier_;  // the library's
    std::mutex mutex_;
    std::string error_;
};

}  // namespace

void run_slices(quire_run* run, int32_t count) { Slices(run, count).run_all(); }

// ---- predictions ----

namespace {

thread_local Predicting* t_predicting = nullptr;

// A list of (bytes, flops, bound, seconds), one for each call that `call()` made.
nb::list predict(nb::handle call, double bytes_per_second, double flops_per_second) {
    quire_limits limits{};
    limits.struct_size = sizeof limits;
    limits.bytes_per_second = bytes_per_second;
    limits.flops_per_second = flops_per_second;
    Predicting predicting(limits);
    call();
    static const char* const bounds[] = {"unknown", "memory", "compute"};
    nb::list all;
    for (const quire_prediction& p : predicting.taken())
        all.append(nb::make_tuple(p.bytes, p.flops, bounds[p.bound], p.seconds));
    return all;
}

}  // namespace

Predicting::Predicting(const quire_limits& limits) : limits_(limits), outer_(t_predicting) {
    t_predicting = this;
}
Predicting::~Predicting() { t_predicting = outer_; }
Predicting* Predicting::of_this_thread() { return t_predicting; }

void Predicting::take(quire_run* run) {
    quire_prediction prediction{};
    prediction.struct_size = sizeof prediction;
    const quire_status status = quire_run_predict(run, &limits_, &prediction);
    const std::string message = status == QUIRE_OK ? "" : quire_last_error();
    quire_run_release(run);
    if (status != QUIRE_OK) throw Error(message);
    taken_.push_back(prediction);
}

void bind_predict(nb::module_& module) { module.def("_predict", predict); }

}  // namespace quire_python
