// What generators have in common, by kernels of their own: registers that change places, and steps that wait.
#include "jit/emitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "jit/code_memory.h"
#include "jit/steps.h"
#include "tests/support/run.h"
#include "tests/support/trampoline.h"

namespace quire::test {
namespace {

using jit::Vec;

// Loads vector i of its argument into register i of five, moves those that `from` names to where `to` says,
// and stores them in their order.
class Moves : public jit::Emitter {
public:
    Moves(const Target& target, const std::vector<int>& from, const std::vector<int>& to) : Emitter(target) {
        begin();
        const std::vector<Vec> all = vecs("v", 5);
        for (size_t i = 0; i < all.size(); ++i) vmovups(all[i], ptr[args() + int(i) * vec_bytes()]);
        std::vector<Vec> moved, places;
        for (const int i : from) moved.push_back(all[size_t(i)]);
        for (const int i : to) places.push_back(all[size_t(i)]);
        for (size_t i = 0; i < all.size(); ++i)
            if (std::find(from.begin(), from.end(), int(i)) == from.end()) free(all[i]);
        move(&moved, places);
        EXPECT_EQ(free_vecs(), num_vecs() - int(from.size()));
        for (size_t i = 0; i < moved.size(); ++i) {
            EXPECT_EQ(moved[i].getIdx(), places[i].getIdx());
            vmovups(ptr[args() + int(i) * vec_bytes()], moved[i]);
        }
        end();
    }
};

void check_moves(const Target& target, const std::vector<int>& from, const std::vector<int>& to) {
    std::vector<uint8_t> code;
    ASSERT_TRUE(Moves(target, from, to).finish(&code).ok());
    jit::CodeMemory memory;
    ASSERT_TRUE(jit::CodeMemory::publish(code.data(), code.size(), &memory).ok());
    const size_t lanes = size_t(target.lanes());
    std::vector<float> values(5 * lanes);
    std::iota(values.begin(), values.end(), 0.f);
    std::vector<float> wanted;
    for (const int i : from)
        wanted.insert(wanted.end(), values.begin() + long(size_t(i) * lanes),
                      values.begin() + long(size_t(i + 1) * lanes));
    ASSERT_TRUE(poisoned_call(memory.entry(), values.data(), Entry::nan));
    values.resize(wanted.size());
    EXPECT_EQ(values, wanted);
}

TEST(Emitter, QuickMoves) {
    for (const Target* target : jit_targets()) {
        SCOPED_TRACE(target->name);
        check_moves(*target, {0, 1, 2}, {0, 1, 2});
        check_moves(*target, {0, 1, 2}, {1, 2, 3});              // one behind the other
        check_moves(*target, {0, 1, 2}, {1, 2, 0});              // a circle
        check_moves(*target, {0, 1, 2, 3, 4}, {1, 0, 4, 2, 3});  // two
        check_moves(*target, {0, 1, 2, 3}, {1, 0, 4, 2});        // a circle, and those that follow each other
    }
}

TEST(Emitter, QuickStepsWaitForTheirTurnAndForRegisters) {
    for (const Target* target : jit_targets()) {
        SCOPED_TRACE(target->name);
        jit::Emitter e(*target);
        jit::Steps steps(e);
        std::vector<Vec> taken;
        for (int i = 0; i < 8; ++i) steps.add([&] { taken.push_back(e.vec("step's")); });
        steps.on_occasion(0, 4, 0);
        EXPECT_EQ(taken.size(), 2u);
        const std::vector<Vec> others = e.vecs("others", e.free_vecs() - 1);
        steps.on_occasion(1, 4, 1);  // one is left, which is kept
        EXPECT_EQ(taken.size(), 2u);
        e.free(others[0]);
        steps.on_occasion(2, 4, 1);
        EXPECT_EQ(taken.size(), 3u);
        for (size_t i = 1; i < others.size(); ++i) e.free(others[i]);
        steps.on_occasion(2, 4, 1);  // those that wait come a few at a time
        EXPECT_EQ(taken.size(), 6u);
        steps.finish();
        EXPECT_EQ(taken.size(), 8u);
        steps.finish();
        EXPECT_EQ(taken.size(), 8u);
    }
}

}  // namespace
}  // namespace quire::test
