// quire_attention over the layers of a cache.
#include "bench/attention_arguments.h"
#include "bench/call.h"

namespace bench {
namespace {

class AttentionCall : public Call {
public:
    AttentionCall(const Workload& w, quire_plan* plan) : Call(plan), arguments_(w) {}

private:
    quire_status call(int64_t i) override { return quire_attention(plan(), arguments_.of(i)); }
    quire_status prepare(int64_t i, quire_run** run) override {
        return quire_prepare_attention(plan(), arguments_.of(i), run);
    }

    AttentionArguments arguments_;
};

}  // namespace

quire_status plan_attention(const Workload& w, quire_plan** plan) {
    const quire_attention_desc desc = attention_desc(w);
    return quire_attention_plan(context_of(w.threads, w.target), &desc, plan);
}

std::unique_ptr<Call> make_attention_call(const Workload& workload) {
    quire_plan* plan = nullptr;
    check(plan_attention(workload, &plan));
    return std::make_unique<AttentionCall>(workload, plan);
}

}  // namespace bench
