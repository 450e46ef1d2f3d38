#include <gtest/gtest.h>

extern "C" const char* quire_test_c99(void);

namespace quire::test {
namespace {

TEST(C99, HeaderAndCalls) {
    const char* wrong = quire_test_c99();
    EXPECT_EQ(wrong, nullptr) << wrong;
}

}  // namespace
}  // namespace quire::test
