// Calls generated code as a hostile caller: known values in the registers that a callee must keep, NaN (or
// zeros) in every vector register and noise in the others, the argument struct against a guard page.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "jit/kernels.h"
#include "tests/support/guarded.h"

namespace quire::test {

// What vector and mask registers hold when a kernel is entered.
enum class Entry { nan, zero };

// Passes where rbx, rbp, r12-r15 and MXCSR are kept, the direction flag is clear, and no upper half of a
// vector register is left in use.
testing::AssertionResult poisoned_call(const void* function, const void* args, Entry entry);

template <typename Args>
void poisoned_call(const jit::Kernel<Args>& kernel, const Args& args, Entry entry) {
    const GuardedBuffer guarded = GuardedBuffer::of(std::vector<Args>{args});
    EXPECT_TRUE(poisoned_call(kernel.code().memory.entry(), guarded.data(), entry)) << kernel.code().name;
}

}  // namespace quire::test
