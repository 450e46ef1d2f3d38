// Kernels that move rows: scales to f32, rows to f32 tiles, f32 to another type, weighted sums of states; and
// the trampoline itself, which must see what it is there to see.
#include <gtest/gtest.h>
#include <xbyak/xbyak.h>

#include <cmath>

#include "src/half.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Dequantised rows are those of decode_row, bit for bit, and 0 past the end of the row.
TEST(KernelsRows, QuickReadBack) {
    constexpr int kCount = 21;
    const int padded = padded_keys(kCount);
    for (const Target* target : jit_targets())
        for (const RowShape& shape : row_shapes())
            for (const quire_type type : {QUIRE_F32, QUIRE_F16}) {
                const jit::RowKey key{target, shape.format, shape.dim, 0};
                jit::ReadKernels kernels;
                ASSERT_TRUE(make_read_kernels(test_code_cache(), key, Side::key, type, &kernels).ok());
                Random random(81, uint64_t(shape.dim));
                const KernelRows rows(key, kCount, &random, Flush::end);
                const GuardedBuffer addresses = rows.rows(0, kCount, kCount),
                                    scale_addresses = rows.scales(0, kCount, padded);
                GuardedBuffer scales = array(size_t(key.scales_floats(padded)), NAN, Flush::end),
                              tile = array(size_t(kCount * key.padded()), NAN, Flush::end);
                if (kernels.rows) {
                    poisoned_call<jit::ScalesArgs>(
                        kernels.scales, {scale_addresses.as<const char*>(), scales.as<float>(), padded},
                        Entry::nan);
                    poisoned_call<jit::PackArgs>(
                        kernels.rows,
                        {addresses.as<const char*>(), scales.as<float>(), tile.as<float>(), kCount, nullptr},
                        Entry::nan);
                }
                for (int i = 0; i < kCount; ++i) {
                    const float* packed = tile.as<float>() + i * key.padded();
                    const char* from =
                        kernels.rows ? reinterpret_cast<const char*>(packed) : addresses.as<const char*>()[i];
                    GuardedBuffer out(size_t(shape.dim * type_bits(type) / 8));
                    const jit::AppendRow list{from, out.as<char>(), nullptr, nullptr, nullptr};
                    poisoned_call<jit::AppendArgs>(kernels.store, {&list, 1, nullptr}, Entry::nan);
                    for (int d = 0; d < shape.dim; ++d) {
                        const float wanted = rows.values(i)[size_t(d)];
                        if (kernels.rows) {
                            ASSERT_EQ(float_bits(packed[d]), float_bits(wanted)) << key.name("read");
                        }
                        ASSERT_EQ(load_number(type, out.data(), d), round_to(type, wanted))
                            << key.name("read");
                    }
                    for (int d = shape.dim; kernels.rows && d < key.padded(); ++d) ASSERT_EQ(packed[d], 0.f);
                }
            }
}

// Each state is multiplied and added once, in order: what fma gives.
TEST(KernelsRows, QuickMerge) {
    Random random(82);
    for (const Target* target : jit_targets())
        for (const int vecs : {1, 2, 7, 8, 9, 31})
            for (const int count : {1, 2, 3, 64}) {
                const int dim = vecs * target->lanes();
                jit::Kernel<jit::MergeArgs> kernel;
                ASSERT_TRUE(make_merge_kernel(test_code_cache(), *target, dim, &kernel).ok());
                std::vector<GuardedBuffer> states;
                std::vector<const float*> addresses;
                std::vector<float> weights, wanted(size_t(dim), 0.f);
                for (int s = 0; s < count; ++s) {
                    states.push_back(array(size_t(dim), 0.f, Flush::end));
                    weights.push_back(random.normal());
                    for (int d = 0; d < dim; ++d) {
                        float& x = states.back().as<float>()[d];
                        x = random.normal();
                        wanted[size_t(d)] = std::fma(weights.back(), x, wanted[size_t(d)]);
                    }
                    states.back().forbid_writes();
                    addresses.push_back(states.back().as<float>());
                }
                const GuardedBuffer states_array = GuardedBuffer::of(addresses),
                                    weights_array = GuardedBuffer::of(weights);
                const GuardedBuffer output = array(size_t(dim), NAN, Flush::end);
                poisoned_call<jit::MergeArgs>(
                    kernel,
                    {states_array.as<const float*>(), weights_array.as<float>(), count, output.as<float>()},
                    Entry::nan);
                for (int d = 0; d < dim; ++d)
                    ASSERT_EQ(output.as<float>()[d], wanted[size_t(d)])
                        << kernel.code().name << " count " << count;
            }
}

// A row times its factor, rounded, and nothing behind it; numbers that are none, or too large, are seen.
void check_scaled_row(const jit::ScaleRowKey& key, float special, int at, Random* random) {
    SCOPED_TRACE(key.name());
    jit::Kernel<jit::ScaleRowArgs> kernel;
    ASSERT_TRUE(make_scale_row_kernel(test_code_cache(), key, &kernel).ok());
    const float factor = random->normal();
    const GuardedBuffer from(size_t(key.dim * type_bits(key.from) / 8)),
        to(size_t(key.dim * type_bits(key.to) / 8)), poison = array(1, 7.f, Flush::end);
    for (int d = 0; d < key.dim; ++d)
        store_number(key.from, from.data(), d, special != 0 && d == at ? special : random->normal());
    poisoned_call<jit::ScaleRowArgs>(kernel, {from.data(), to.data(), poison.as<float>(), factor},
                                     Entry::nan);
    EXPECT_EQ(std::isnan(*poison.as<float>()), special != 0);
    for (int d = 0; d < key.dim; ++d) {
        const float wanted = round_to(key.to, load_number(key.from, from.data(), d) * factor);
        const float got = load_number(key.to, to.data(), d);
        ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
            << "element " << d << ": " << got << ", wanted " << wanted;
    }
}

TEST(KernelsRows, QuickScaleRow) {
    Random random(83);
    for (const Target* target : jit_targets())
        for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            for (const int dim : {1, 8, 40, 63, 64, 65, 200})
                for (const float special : {0.f, NAN, INFINITY, -INFINITY})
                    for (const int at : {0, dim / 2, dim - 1}) {
                        check_scaled_row({target, type, QUIRE_F32, dim}, special, at, &random);
                        check_scaled_row({target, QUIRE_F32, type, dim}, special, at, &random);
                    }
}

// ---- the trampoline ----

struct Rude : Xbyak::CodeGenerator {
    template <typename Body>
    explicit Rude(const Body& body) {
        body(*this);
        ret();
    }
    testing::AssertionResult called() { return poisoned_call(getCode<const void*>(), nullptr, Entry::nan); }
};

TEST(KernelsTrampoline, QuickSeesWhatIsNotKept) {
    if (jit_targets().empty()) GTEST_SKIP() << "needs AVX2";
    using Code = Xbyak::CodeGenerator;
    EXPECT_TRUE(Rude([](Code& c) { c.vzeroupper(); }).called());
    for (const int kept : {3, 5, 12, 13, 14, 15})
        EXPECT_FALSE(Rude([&](Code& c) {
                         c.vzeroupper();
                         c.inc(Xbyak::Reg64(kept));
                     }).called());
    EXPECT_FALSE(Rude([](Code& c) {
                     c.vzeroupper();
                     c.std();
                 }).called());
    EXPECT_FALSE(Rude([](Code& c) {
                     c.vzeroupper();
                     c.mov(c.dword[c.rsp - 8], 0x9fc0);  // flush to zero, denormals are zero
                     c.ldmxcsr(c.dword[c.rsp - 8]);
                 }).called());
    EXPECT_FALSE(Rude([](Code&) {}).called());  // upper halves of the vector registers left in use
}

// Vector registers are NaN, or zero, on entry.
TEST(KernelsTrampoline, QuickEntry) {
    if (jit_targets().empty()) GTEST_SKIP() << "needs AVX2";
    for (const Entry entry : {Entry::nan, Entry::zero})
        for (int i = 0; i < 16; ++i) {
            GuardedBuffer seen(32);
            struct Store : Xbyak::CodeGenerator {
                explicit Store(int index) {
                    vmovups(ptr[rdi], Xbyak::Ymm(index));
                    vzeroupper();
                    ret();
                }
            } store(i);
            EXPECT_TRUE(poisoned_call(store.getCode<const void*>(), seen.data(), entry));
            for (int lane = 0; lane < 8; ++lane)
                EXPECT_EQ(std::isnan(seen.as<float>()[lane]), entry == Entry::nan) << "ymm" << i;
        }
}

}  // namespace
}  // namespace quire::test
