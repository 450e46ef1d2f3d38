// What quire.h promises of precisions (tests/support/added_error.h), where decode takes other ways than with
// four query rows of usual heads: more rows, tiles of AMX, and MLA, whose values are views of keys.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/precision.h"
#include "tests/support/added_error.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {
namespace {

void check(const std::vector<Case>& cases, const std::vector<const Target*>& on) {
    Seen seen;
    for (const Case& c : cases) check_promises(c, on, &seen);
    seen.print();
    EXPECT_GT(seen.high, 0) << "none of them ran at `high`";
}

// The ways of rows of codes, small groups and large ones, a format of each kind of ggml's blocks, numbers,
// and blocks of tokens.
std::vector<Case> cases_of_tokens(int64_t queries) {
    std::vector<Case> cases;
    for (const quire_format& format :
         {quantised(QUIRE_INT8, 8, QUIRE_F16), quantised(QUIRE_INT8, 32, QUIRE_F16),
          quantised(QUIRE_INT4, 8, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F16),
          quantised(QUIRE_INT4, 128, QUIRE_F16), plain_format(QUIRE_Q8_0), plain_format(QUIRE_Q4_0),
          plain_format(QUIRE_IQ4_NL), plain_format(QUIRE_Q5_0), plain_format(QUIRE_Q4_1),
          plain_format(QUIRE_BF16), quantised(QUIRE_INT8_B16, 8, QUIRE_F16),
          quantised(QUIRE_INT8_B16, 32, QUIRE_F16), quantised(QUIRE_INT4_B16, 8, QUIRE_F16),
          quantised(QUIRE_INT4_B16, 32, QUIRE_F16), quantised(QUIRE_INT4_B16, 128, QUIRE_F16)})
        for (const int head_size : {64, 128})
            if (format.quant_group <= head_size) cases.push_back(usual_case(format, head_size, queries));
    return cases;
}

TEST(NumericsPrecisionDecode, EightRows) { check(cases_of_tokens(2), jit_targets()); }
TEST(NumericsPrecisionDecode, TwelveRows) { check(cases_of_tokens(3), jit_targets()); }

Case mla_case(const quire_format& format, int heads, int64_t queries) {
    Case c = usual_case(format, 576, queries);
    c.Dv = 512;
    c.value_in_key = true;
    c.H = heads;
    c.Hk = 1;
    return c;
}

// 16 query rows are decode's, few rows' or tiles', by target and precision; 8 are decode's everywhere, and 32
// tiles', but by AMX.
TEST(NumericsPrecisionDecode, Mla) {
    std::vector<Case> cases;
    for (const quire_format& format :
         {quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT8, 64, QUIRE_F32),
          quantised(QUIRE_INT4, 32, QUIRE_F16), quantised(QUIRE_INT4, 64, QUIRE_F16),
          plain_format(QUIRE_Q8_0), plain_format(QUIRE_Q4_0), plain_format(QUIRE_F16),
          plain_format(QUIRE_BF16)})
        cases.push_back(mla_case(format, 16, 1));
    for (const quire_format& format : {quantised(QUIRE_INT8, 32, QUIRE_F16),
                                       quantised(QUIRE_INT4, 64, QUIRE_F16), plain_format(QUIRE_BF16)}) {
        cases.push_back(mla_case(format, 8, 1));
        cases.push_back(mla_case(format, 16, 2));
    }
    check(cases, jit_targets());
}

// Whether AMX decodes it at a precision at least, with as many rows as an item has.
bool is_of_amx(const Case& c) {
    const int rows = std::min(int(c.sequences[0].queries) * c.group(), jit::kMaxDecodeRows);
    for (const quire_precision precision :
         {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM}) {
        jit::RowKey keys{&best_target(), c.key_format, c.D, rows},
            values{&best_target(), c.value_format, c.Dv, rows};
        set_products(&keys, &values, precision);
        if (is_of_tiles(keys.products)) return true;
    }
    return false;
}

// Rows of 80 nibbles are no whole runs of 16 bytes, which values of AMX are.
void check_amx(const std::vector<quire_format>& formats, const std::vector<int64_t>& tokens,
               const std::vector<int>& head_sizes = {64, 80, 96, 128, 256}) {
    std::vector<Case> cases;
    for (const int head_size : head_sizes)
        for (quire_format format : formats) {
            if (format.quant_group == 0) format.quant_group = head_size;
            if (head_size % format.quant_group != 0 || (head_size == 80 && format.type == QUIRE_INT4))
                continue;
            for (const int64_t queries : tokens) {
                cases.push_back(usual_case(format, head_size, queries));
                EXPECT_TRUE(is_of_amx(cases.back())) << cases.back();
            }
        }
    check(cases, {&best_target()});
}

// In groups of 32 and of a head. QuickAmx has four tokens.
TEST(NumericsPrecisionDecode, Amx) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no tiles";
    check_amx({quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT8, 0, QUIRE_F16),
               quantised(QUIRE_INT4, 32, QUIRE_F16), quantised(QUIRE_INT4, 0, QUIRE_F16)},
              {2, 3});
}

// Digits side by side: one token, which takes tiles where nibbles are in large groups.
TEST(NumericsPrecisionDecode, AmxOfOneToken) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no tiles";
    check_amx({quantised(QUIRE_INT4, 32, QUIRE_F16), quantised(QUIRE_INT4, 64, QUIRE_F32),
               quantised(QUIRE_INT4, 0, QUIRE_F16)},
              {1}, {64, 96, 128, 256});
}

// Codes with their scales: small groups, of scales of either type.
TEST(NumericsPrecisionDecode, AmxOfSmallGroups) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no tiles";
    check_amx({quantised(QUIRE_INT8, 8, QUIRE_F16), quantised(QUIRE_INT8, 16, QUIRE_F32),
               quantised(QUIRE_INT4, 16, QUIRE_F16), quantised(QUIRE_INT4, 8, QUIRE_F32)},
              {4});
}

// Blocks of tokens, of small groups with more of them: one round of sets a block and several.
TEST(NumericsPrecisionDecode, AmxOfBlocks) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no tiles";
    check_amx({quantised(QUIRE_INT8_B16, 32, QUIRE_F16), quantised(QUIRE_INT8_B16, 0, QUIRE_F16),
               quantised(QUIRE_INT4_B16, 32, QUIRE_F16), quantised(QUIRE_INT4_B16, 0, QUIRE_F16)},
              {2, 4, 5});
}

// More than 16 query rows.
TEST(NumericsPrecisionDecode, AmxOfTwoItems) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no tiles";
    check_amx({quantised(QUIRE_INT8, 0, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F16)}, {5, 6, 8});
}

}  // namespace
}  // namespace quire::test
