// Rotations: generated code against rotate_row, bit for bit and beside guard pages; rotate_row against what
// the header says, in double.
#include <gtest/gtest.h>

#include <cmath>

#include "src/half.h"
#include "src/rotation.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Element i of the Hadamard rotation of `x`, by its definition.
double hadamard_element(const std::vector<double>& x, int block, int i) {
    const int begin = i / block * block;
    double sum = 0;
    for (int j = 0; j < block; ++j)
        sum += (__builtin_popcount(unsigned(i - begin) & unsigned(j)) % 2 ? -1 : 1) * x[size_t(begin + j)];
    return sum / std::sqrt(double(block));
}

std::vector<double> rotated_in_double(const Rotation& rotation, const std::vector<float>& values,
                                      const std::vector<float>& cos, const std::vector<float>& sin) {
    std::vector<double> x(values.begin(), values.end());
    for (int i = 0; i < rotation.rotary_dim / 2; ++i) {
        const bool halves = rotation.rotary == QUIRE_ROTARY_HALVES;
        double &a = x[size_t(halves ? i : 2 * i)],
               &b = x[size_t(halves ? i + rotation.rotary_dim / 2 : 2 * i + 1)];
        const double c = double(cos[size_t(i)]), s = double(sin[size_t(i)]), a_before = a;
        a = a * c - b * s;
        b = b * c + a_before * s;
    }
    if (rotation.block == 0) return x;
    std::vector<double> y;
    for (int i = 0; i < int(x.size()); ++i) y.push_back(hadamard_element(x, rotation.block, i));
    return y;
}

// All kinds of rotation of a head size: whole, part and least rotary dimensions, with a Hadamard rotation and
// without.
std::vector<Rotation> rotations_of(int dim) {
    std::vector<Rotation> all;
    for (const int block : {0, hadamard_block(dim)}) {
        if (block != 0) all.push_back({QUIRE_ROTARY_NONE, 0, block});
        for (const quire_rotary rotary : {QUIRE_ROTARY_HALVES, QUIRE_ROTARY_INTERLEAVED})
            for (const int R : {2, dim / 2 / 2 * 2, dim})
                if (R >= 2) all.push_back({rotary, R, block});
    }
    return all;
}

const int kDims[] = {2, 6, 16, 36, 48, 64, 80, 96, 128, 130, 256, 576, 1024};

std::vector<float> normals(Random* random, int count) {
    std::vector<float> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(random->normal());
    return numbers;
}

TEST(KernelsRotate, QuickDefinition) {
    Random random(61);
    for (const int dim : kDims)
        for (const Rotation& rotation : rotations_of(dim)) {
            SCOPED_TRACE(rotation.name() + " of " + std::to_string(dim));
            std::vector<float> values = normals(&random, dim), cos, sin;
            for (int i = 0; i < rotation.rotary_dim / 2; ++i) {
                cos.push_back(std::cos(float(i) + 0.3f));
                sin.push_back(std::sin(float(i) + 0.3f));
            }
            const std::vector<double> wanted = rotated_in_double(rotation, values, cos, sin);
            double before = 0, after = 0;
            for (float x : values) before += double(x) * double(x);
            rotate_row(rotation, dim, cos.data(), sin.data(), values.data());
            for (float x : values) after += double(x) * double(x);
            for (int i = 0; i < dim; ++i) ASSERT_NEAR(values[size_t(i)], wanted[size_t(i)], 3e-6) << i;
            EXPECT_NEAR(after, before, before * 1e-5);
        }
}

quire_format some_format(int dim, int choice) {
    switch (choice) {
        case 0: return {QUIRE_F32, 0, QUIRE_NONE};
        case 1: return {QUIRE_F16, 0, QUIRE_NONE};
        case 2: return {QUIRE_BF16, 0, QUIRE_NONE};
        case 3: return {QUIRE_INT8, dim % 8 ? dim : 8, QUIRE_F16};
        case 4: return {QUIRE_INT8, dim, QUIRE_F32};
        default: return {QUIRE_INT4, dim % 16 ? 2 : 16, QUIRE_F16};
    }
}

// Three rows of one call, the second spoilt: the work of a row and of the next overlap.
class RotatedRows {
public:
    RotatedRows(const jit::AppendKey& key, Flush flush, Random* random) : key_(key) {
        for (int r = 0; r < kRows; ++r) {
            inputs_.emplace_back(size_t(key.dim * type_bits(key.input_type) / 8), flush);
            rows_.emplace_back(size_t(bytes_of(key.format.type, key.dim)), flush);
            const int groups = is_quantised(key.format) ? key.dim / key.format.quant_group : 0;
            scales_.emplace_back(size_t(groups * type_bits(key.format.scale_type) / 8), flush);
            for (std::vector<GuardedBuffer>* table : {&cos_, &sin_}) {
                table->push_back(GuardedBuffer::of(normals(random, key.rotation.rotary_dim / 2), flush));
                table->back().forbid_writes();
            }
            for (int d = 0; d < key.dim; ++d)
                store_number(key.input_type, inputs_.back().data(), d, random->normal());
        }
        if (is_quantised(key.format)) store_number(key.input_type, inputs_[1].data(), key.dim / 2, NAN);
        for (GuardedBuffer& input : inputs_) input.forbid_writes();
        for (int r = 0; r < kRows; ++r)
            list_.push_back({inputs_[size_t(r)].as<char>(), rows_[size_t(r)].as<char>(),
                             scales_[size_t(r)].as<char>(), cos_[size_t(r)].as<float>(),
                             sin_[size_t(r)].as<float>()});
    }

    void run(const jit::Kernel<jit::AppendArgs>& kernel, Flush flush, Entry entry) {
        const GuardedBuffer list = GuardedBuffer::of(list_, flush),
                            scratch(size_t(key_.scratch_floats()) * sizeof(float), flush);
        for (int r = 0; r < kRows; ++r) {
            rows_[size_t(r)].fill(0x77);
            scales_[size_t(r)].fill(0x77);
        }
        poisoned_call<jit::AppendArgs>(kernel, {list.as<jit::AppendRow>(), kRows, scratch.as<float>()},
                                       entry);
    }

    void expect_definition() const {
        for (size_t r = 0; r < kRows; ++r) {
            std::vector<float> values;
            for (int d = 0; d < key_.dim; ++d)
                values.push_back(load_number(key_.input_type, inputs_[r].data(), d));
            rotate_row(key_.rotation, key_.dim, cos_[r].as<float>(), sin_[r].as<float>(), values.data());
            std::vector<uint8_t> row(rows_[r].size()), scales(scales_[r].size());
            encode_row(key_.format, key_.dim, QUIRE_F32, values.data(), row.data(), scales.data());
            ASSERT_EQ(rows_[r].bytes(), row) << "row " << r << " of " << key_.name();
            // Of NaN neither sign nor payload is defined.
            const int size = type_bits(key_.format.scale_type) / 8;
            for (size_t g = 0; size != 0 && g < scales.size() / size_t(size); ++g) {
                const float got = load_number(key_.format.scale_type, scales_[r].data(), int64_t(g)),
                            wanted = load_number(key_.format.scale_type, scales.data(), int64_t(g));
                ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
                    << got << ", not " << wanted << ": scale " << g << ", row " << r << " of " << key_.name();
            }
        }
    }

private:
    static constexpr int kRows = 3;
    const jit::AppendKey key_;
    std::vector<GuardedBuffer> inputs_, rows_, scales_, cos_, sin_;
    std::vector<jit::AppendRow> list_;
};

void check_kernels(const std::vector<int>& dims, const std::vector<quire_type>& inputs) {
    Random random(62);
    int choice = 0;
    for (const Target* target : jit_targets())
        for (const int dim : dims)
            for (const Rotation& rotation : rotations_of(dim))
                for (const quire_type input : inputs) {
                    const jit::AppendKey key{target, input, some_format(dim, choice++ % 6), dim, rotation};
                    jit::Kernel<jit::AppendArgs> kernel;
                    ASSERT_TRUE(make_append_kernel(test_code_cache(), key, &kernel).ok());
                    for (const Flush flush : {Flush::end, Flush::begin}) {
                        RotatedRows rows(key, flush, &random);
                        for (const Entry entry : {Entry::nan, Entry::zero}) {
                            rows.run(kernel, flush, entry);
                            rows.expect_definition();
                        }
                    }
                }
}

TEST(KernelsRotate, EveryHeadSize) {
    check_kernels({std::begin(kDims), std::end(kDims)}, {QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    std::vector<int> small;
    for (int dim = 2; dim <= 70; dim += 2) small.push_back(dim);
    check_kernels(small, {QUIRE_F32, QUIRE_F16});
}

TEST(KernelsRotate, QuickKernelAlone) {
    check_kernels({16, 36, 96, 128, 576}, {QUIRE_F32, QUIRE_F16, QUIRE_BF16});
}

}  // namespace
}  // namespace quire::test
