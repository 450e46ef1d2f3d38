// Generated append against encode_row, bit for bit; every byte that is not addressed stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/half.h"
#include "tests/support/append.h"
#include "tests/support/factors.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {
namespace {

void check_on(const std::vector<const Target*>& on, const Case& c) {
    Append append(c);
    append.spoil();
    for (const Target* target : on) {
        append.forget();
        const Append::Bytes wanted = append.expected();
        Way way;
        way.target = target->name;
        append.run(way);
        EXPECT_TRUE(append.same(wanted)) << "on " << target->name;
    }
}

std::vector<Case> sweep(uint64_t seed, int count) {
    Cover cover(seed);
    add_formats(&cover);
    add_head_sizes(&cover);
    add_layouts(&cover);
    cover.factor(6, [](Case* c, int i) {
        const std::vector<Lengths> lengths[] = {{{1, 1}},     {{1, 40}},
                                                {{33, 50}},   {{0, 5}, {1, 7}, {3, 3}, {0, 0}},
                                                {{129, 129}}, {{5, 300}, {16, 16}}};
        c->sequences = lengths[i];
    });
    return cover.cases(count, Case(), [](Case* c) {
        const bool stored = !block_info(c->key_format.type) && !block_info(c->value_format.type);
        return stored && c->placement != Placement::dense && fit(c, 1e9);
    });
}

TEST(KernelsAppend, Sweep) {
    for (const Case& c : sweep(51, 300)) check_on(jit_targets(), c);
}

TEST(KernelsAppend, Quick) {
    for (const Case& c : sweep(52, 40)) check_on({&best_target()}, c);
}

// Every tail of a row and of a group, for each type of input.
TEST(KernelsAppend, EveryHeadSize) {
    for (int D = 1; D <= 70; ++D)
        for (quire_type input : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            for (quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_INT8, QUIRE_INT4}) {
                if (type == QUIRE_INT4 && D % 2 != 0) continue;
                int group = 1 + D % 9;
                while (D % group != 0) --group;
                Case c;
                c.type = input;
                c.D = c.Dv = D;
                c.placement = Placement::offsets;
                c.key_format = type == QUIRE_INT8 || type == QUIRE_INT4 ? quantised(type, group, QUIRE_F16)
                                                                        : plain_format(type);
                c.value_format = type == QUIRE_INT8 || type == QUIRE_INT4 ? quantised(type, D, QUIRE_F32)
                                                                          : plain_format(type);
                c.sequences = {{9, 12}};
                c.seed = uint64_t(D);
                check_on(jit_targets(), c);
            }
}

// Every f16 and bf16 number, into every format.
TEST(KernelsAppend, EveryHalf) {
    for (quire_type input : {QUIRE_F16, QUIRE_BF16})
        for (const quire_format& format :
             {plain_format(QUIRE_F32), plain_format(QUIRE_F16), plain_format(QUIRE_BF16),
              quantised(QUIRE_INT8, 1, QUIRE_F16), quantised(QUIRE_INT8, 4, QUIRE_F32),
              quantised(QUIRE_INT4, 2, QUIRE_F16), quantised(QUIRE_INT8, 8, QUIRE_F16),
              quantised(QUIRE_INT4, 16, QUIRE_F32)}) {
            Case c;
            c.type = input;
            c.D = c.Dv = 64;
            c.placement = Placement::offsets;
            c.key_format = c.value_format = format;
            c.sequences = {{1024, 1024}};
            Append append(c);
            append.forget();
            for (int bits = 0; bits < 65536; ++bits) {
                // Of NaN only the plain one: payloads may be shortened in different ways.
                const uint16_t number = std::isnan(input == QUIRE_F16 ? half_to_float(uint16_t(bits))
                                                                      : bfloat_to_float(uint16_t(bits)))
                                            ? (input == QUIRE_F16 ? 0x7e00 : 0x7fc0)
                                            : uint16_t(bits);
                for (const quire_tensor* view : {&append.new_key, &append.new_value})
                    reinterpret_cast<uint16_t*>(element(*view, bits / 64, 0))[bits % 64] = number;
            }
            const Append::Bytes wanted = append.expected();
            for (const Target* target : jit_targets()) {
                Way way;
                way.target = target->name;
                append.run(way);
                EXPECT_TRUE(append.same(wanted)) << "on " << target->name;
            }
        }
}

// threads: of quire's own, or minus the slices that a caller runs.
void expect_same(Append& append, const Append::Bytes& wanted, const Target& target,
                 const std::vector<int>& all_threads) {
    for (const int threads : all_threads) {
        Way way;
        way.target = target.name;
        way.threads = std::max(threads, 1);
        way.slices = std::max(-threads, 0);
        append.forget();
        append.run(way);
        EXPECT_TRUE(append.same(wanted)) << "on " << way.name();
    }
}

TEST(KernelsAppend, QuickSameBits) {
    Case c;
    c.type = QUIRE_F16;
    c.Hk = c.H = 3;
    c.placement = Placement::pages;
    c.key_format = quantised(QUIRE_INT8, 8, QUIRE_F16);
    c.value_format = quantised(QUIRE_INT4, 32, QUIRE_F32);
    c.sequences = {{1, 9}, {50, 80}, {0, 3}, {4, 4}};
    for (const Target* target : targets()) {
        Append append(c);
        const Append::Bytes wanted = append.expected();
        expect_same(append, wanted, *target, {1, 2, 3, 8, 0, -1, -2, -3, -5});
    }
}

// Into blocks of tokens that hold others already, and whose tokens share bytes (int4 values): more tokens
// than a work item has, from the middle of a block to the middle of another, on any threads.
TEST(KernelsAppend, QuickBlocksFilledInPart) {
    for (const quire_type type : {QUIRE_INT8_B16, QUIRE_INT4_B16})
        for (const int Hk : {1, 6}) {
            Case c;
            c.type = type == QUIRE_INT8_B16 ? QUIRE_F32 : QUIRE_F16;
            c.Hk = c.H = Hk;
            c.D = 40;
            c.Dv = 24;
            c.placement = Placement::pages;
            c.key_format = c.value_format = quantised(type, 8, QUIRE_F16);
            c.sequences = {{1, 9}, {90, 130}, {0, 3}, {3, 17}, {17, 47}, {1, 16}, {1, 17}};
            for (const Target* target : targets()) {
                Append append(c);
                append.forget();
                append.spoil();
                const Append::Bytes wanted = append.expected();
                expect_same(append, wanted, *target, {1, 2, 0, -2, -3, -5});
            }
        }
}

// The kernel alone: row, scales and scratch of exactly the documented length, each against a guard page; a
// spoilt caller.
TEST(KernelsAppend, QuickKernelAlone) {
    Random random(53);
    for (const Target* target : jit_targets())
        for (const RowShape& shape : row_shapes())
            for (quire_type input : {QUIRE_F32, QUIRE_F16, QUIRE_BF16}) {
                if (block_info(shape.format.type)) continue;  // append refuses them
                const jit::AppendKey key{target, input, shape.format, shape.dim};
                const jit::RowKey row_key{target, shape.format, shape.dim, 0};
                jit::Kernel<jit::AppendArgs> kernel;
                ASSERT_TRUE(make_append_kernel(test_code_cache(), key, &kernel).ok());
                for (const Flush flush : {Flush::end, Flush::begin}) {
                    GuardedBuffer numbers(size_t(shape.dim * type_bits(input) / 8), flush),
                        row(size_t(row_key.row_bytes()), flush),
                        scales(size_t(row_key.groups() * type_bits(shape.format.scale_type) / 8), flush),
                        scratch(size_t(key.scratch_floats()) * sizeof(float), flush);
                    for (int d = 0; d < shape.dim; ++d)
                        store_number(input, numbers.data(), d, random.normal());
                    numbers.forbid_writes();
                    std::vector<uint8_t> wanted_row(row.size()), wanted_scales(scales.size());
                    encode_row(shape.format, shape.dim, input, numbers.data(), wanted_row.data(),
                               wanted_scales.data());
                    const jit::AppendRow list{numbers.as<char>(), row.as<char>(), scales.as<char>(), nullptr,
                                              nullptr};
                    for (const Entry entry : {Entry::nan, Entry::zero}) {
                        row.fill(0x77);
                        scales.fill(0x77);
                        poisoned_call<jit::AppendArgs>(kernel, {&list, 1, scratch.as<float>()}, entry);
                        ASSERT_EQ(row.bytes(), wanted_row) << kernel.code().name;
                        ASSERT_EQ(scales.bytes(), wanted_scales) << kernel.code().name;
                    }
                }
            }
}

// One group whose quotients lie on ties between codes, or a few units in the last place beside them. Returns
// how many codes a multiplication by the reciprocal would get wrong.
int fill_with_ties(Random* random, float max_code, std::vector<float>* group) {
    const float largest = std::ldexp(1 + float(random->uniform()), int(random->between(-20, 20)));
    const float scale = std::max(largest / max_code, 1e-5f), reciprocal = 1 / scale;
    int wrong = 0;
    for (float& x : *group) {
        const float tie = (float(random->between(-int64_t(max_code), int64_t(max_code) - 1)) + 0.5f) * scale;
        x = float_from_bits(float_bits(tie) + uint32_t(random->between(-3, 3)));
        wrong += std::nearbyint(x * reciprocal) != std::nearbyint(x / scale);
    }
    (*group)[size_t(random->below(int64_t(group->size())))] = random->chance(0.5) ? largest : -largest;
    return wrong;
}

// Many rows in one call, some of them with NaN or Inf, so that the work of a row and of the next overlap.
// Returns how many codes of float32 rows would be wrong if they were multiplied and not checked.
int check_ties(const jit::AppendKey& key, Random* random) {
    SCOPED_TRACE(key.name());
    constexpr size_t kRows = 60;
    const quire_format& format = key.format;
    jit::Kernel<jit::AppendArgs> kernel;
    EXPECT_TRUE(make_append_kernel(test_code_cache(), key, &kernel).ok());
    const auto dim = size_t(key.dim), group_size = size_t(format.quant_group);
    const size_t row_bytes = size_t(bytes_of(format.type, key.dim)),
                 scale_bytes = dim / group_size * size_t(type_bits(format.scale_type) / 8),
                 input_bytes = size_t(type_bits(key.input_type) / 8);
    std::vector<char> numbers(kRows * dim * input_bytes);
    std::vector<uint8_t> rows(kRows * row_bytes), scales(kRows * scale_bytes), wanted_rows = rows,
                                                                               wanted_scales = scales;
    int wrong = 0;
    for (size_t g = 0; g < kRows * dim / group_size; ++g) {
        std::vector<float> group(group_size);
        wrong += fill_with_ties(random, float(format_info(format.type)->max_code), &group);
        if (random->chance(0.02)) group[0] = random->chance(0.5) ? NAN : -INFINITY;
        for (size_t i = 0; i < group_size; ++i)
            store_number(key.input_type, numbers.data(), int64_t(g * group_size + i), group[i]);
    }
    std::vector<jit::AppendRow> list;
    std::vector<float> scratch(size_t(key.scratch_floats()));
    for (size_t r = 0; r < kRows; ++r) {
        const char* input = numbers.data() + r * dim * input_bytes;
        list.push_back({input, reinterpret_cast<char*>(rows.data() + r * row_bytes),
                        reinterpret_cast<char*>(scales.data() + r * scale_bytes), nullptr, nullptr});
        encode_row(format, key.dim, key.input_type, input, wanted_rows.data() + r * row_bytes,
                   wanted_scales.data() + r * scale_bytes);
    }
    kernel({list.data(), kRows, scratch.data()});
    EXPECT_EQ(rows, wanted_rows);
    EXPECT_EQ(scales, wanted_scales);
    return wrong;
}

TEST(KernelsAppend, QuickTies) {
    Random random(54);
    int wrong = 0;
    for (const Target* target : jit_targets())
        for (const int dim : {48, 128, 336})
            for (const quire_format& format :
                 {quantised(QUIRE_INT8, 8, QUIRE_F16), quantised(QUIRE_INT8, dim / 3 / 8 * 8, QUIRE_F32),
                  quantised(QUIRE_INT8, dim, QUIRE_F16), quantised(QUIRE_INT4, 8, QUIRE_F32),
                  quantised(QUIRE_INT4, dim / 2 / 8 * 8, QUIRE_F16)}) {
                if (dim % format.quant_group != 0) continue;
                wrong += check_ties({target, QUIRE_F32, format, dim}, &random);
                for (const quire_type halves : {QUIRE_F16, QUIRE_BF16})
                    check_ties({target, halves, format, dim}, &random);
            }
    EXPECT_GT(wrong, 100) << "no group would show a code that was multiplied and not checked";
}

}  // namespace
}  // namespace quire::test
