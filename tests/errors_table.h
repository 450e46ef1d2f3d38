// Tables of wrong calls. Each row changes one thing about a valid call and says the message that it must
// give.
#pragma once
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tests/api_call.h"

namespace quire::test {

template <typename CallType>
struct WrongCall {
    const char* name;
    void (*change)(CallType& call);
    const char* message;
};

// Where a wrong call touches a buffer the process ends: says which row did it.
class NameOnFault {
public:
    NameOnFault() { std::signal(SIGSEGV, say); }
    ~NameOnFault() { std::signal(SIGSEGV, SIG_DFL); }
    static inline const char* name = "";

private:
    static void say(int) {
        std::fprintf(stderr, "a fault in the row \"%s\": a buffer was touched\n", name);
        std::signal(SIGSEGV, SIG_DFL);  // the fault comes again, and ends the process
    }
};

inline void expect_error(quire_status status, const char* message) {
    EXPECT_EQ(status, QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), message);
}

// Wrong arguments: run and prepare give the message, no buffer is touched but indices, which are read, and
// the valid call gives what it gave before.
template <typename CallType, typename Make>
void expect_wrong_args(const Make& make, const std::vector<WrongCall<CallType>>& rows) {
    quire_plan* plan = nullptr;
    const std::unique_ptr<CallType> valid = make();
    ASSERT_EQ(valid->plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(valid->run(plan), QUIRE_OK) << quire_last_error();
    const std::vector<uint8_t> expected = valid->buffers.written();
    NameOnFault fault;
    for (const WrongCall<CallType>& row : rows) {
        SCOPED_TRACE(NameOnFault::name = row.name);
        const std::unique_ptr<CallType> wrong = make();
        row.change(*wrong);
        const std::vector<uint8_t> before = wrong->buffers.bytes();
        quire_run* run = nullptr;
        wrong->buffers.lock();
        expect_error(wrong->run(plan), row.message);
        expect_error(wrong->prepare(plan, &run), row.message);
        wrong->buffers.unlock();
        EXPECT_EQ(run, nullptr);
        EXPECT_EQ(wrong->buffers.bytes(), before);

        const std::unique_ptr<CallType> again = make();
        EXPECT_EQ(again->run(plan), QUIRE_OK) << quire_last_error();
        EXPECT_EQ(again->buffers.written(), expected);
    }
    quire_plan_destroy(plan);
}

// Wrong descriptors: no plan is made, and a valid one can still be.
template <typename CallType>
void expect_wrong_descs(const std::vector<WrongCall<CallType>>& rows) {
    for (const WrongCall<CallType>& row : rows) {
        SCOPED_TRACE(row.name);
        CallType wrong;
        row.change(wrong);
        quire_plan* plan = nullptr;
        expect_error(wrong.plan(inline_context(), &plan), row.message);
        EXPECT_EQ(plan, nullptr);
    }
    CallType valid;
    quire_plan* plan = nullptr;
    EXPECT_EQ(valid.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(valid.run(plan), QUIRE_OK) << quire_last_error();
    quire_plan_destroy(plan);
}

}  // namespace quire::test
