// One call of an operator on a workload's cache, ready to be run again and again.
#pragma once
#include <memory>
#include <string>

#include "bench/cache.h"
#include "bench/limits.h"

namespace bench {

class Call {
public:
    virtual ~Call() { quire_plan_destroy(plan_); }
    Call(const Call&) = delete;

    // Run i takes layer i (append: the next positions): no cache holds what it needs, unless it is all small.
    void run(int64_t i);
    // Run i, for quire_run_slice; released by the caller.
    quire_run* prepared(int64_t i);
    // What quire says of it beforehand. flops_per_s: of the precision.
    quire_prediction predict(double bytes_per_s, double flops_per_s);
    // What of the plan's kernels for so many query rows a kv head is the least precise.
    quire_precision runs_as(int64_t query_rows) const;

protected:
    explicit Call(quire_plan* plan) : plan_(plan) {}
    // Prepares run i.
    virtual quire_status prepare(int64_t i, quire_run** run) = 0;
    virtual quire_status call(int64_t i) = 0;
    const quire_plan* plan() const { return plan_; }

private:
    quire_plan* plan_;
};

std::unique_ptr<Call> make_call(const Workload& workload);
std::unique_ptr<Call> make_attention_call(const Workload& workload);
std::unique_ptr<Call> make_append_call(const Workload& workload);

quire_status plan_attention(const Workload& workload, quire_plan** plan);
quire_status plan_append(const Workload& workload, quire_plan** plan);

// Elements of a type of activations, made of random bits: magnitudes from 1/2 to 2 with either sign.
std::vector<uint32_t> random_numbers(quire_type type, int64_t count, uint32_t seed);

// quire's own message where it makes no plan of it.
std::string why_no_plan(const Workload& workload);

// target: a cap, empty: none. NULL, with a message of quire's, where it is not the name of one.
quire_context* context_of(int threads, const std::string& target = "");
std::string target_of(const Workload& workload);

// Ends the program with quire's message where a call failed.
void check(quire_status status);

}  // namespace bench
