// quire_mindspore_multi_head_attention as a layer: its handle, its dense products, its threads and its
// dropout. What it computes is compared with its definition in tests/python/test_mindspore.py.
#include <gtest/gtest.h>

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "src/attend.h"
#include "src/dense.h"
#include "src/dropout.h"
#include "src/format.h"
#include "tests/mindspore_call.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

using Form = MindsporeCall::Form;

// ---- dense products ----

struct Product {
    explicit Product(int in, int out)
        : inputs(in), outputs(out), weight(size_t(in * out)), bias(size_t(out)) {
        std::mt19937 generator(7);
        std::normal_distribution<float> normal;
        for (std::vector<float>* numbers : {&weight, &bias})
            for (float& x : *numbers) x = normal(generator);
    }
    std::shared_ptr<const DenseWeights> pack(bool plain) const {
        return DenseWeights::pack(inputs, outputs, weight.data(), bias.data(), plain);
    }
    // All columns of `rows` rows.
    std::vector<float> multiply(const DenseWeights& dense, const std::vector<float>& rows) const {
        const int count = int(rows.size()) / inputs;
        Scratch scratch;
        scratch.reserve(size_t(DenseWeights::kRows * (inputs + DenseWeights::kColumns)) +
                        dense.scratch_floats() + 64);
        std::vector<float> result(size_t(count * outputs));
        for (int block = 0; block < dense.column_blocks(); ++block) {
            scratch.reset();
            float* x = scratch.floats(size_t(DenseWeights::kRows * inputs));
            float* y = scratch.floats(size_t(DenseWeights::kRows * DenseWeights::kColumns));
            std::fill(x, x + DenseWeights::kRows * inputs, NAN);
            std::copy(rows.begin(), rows.end(), x);
            dense.multiply(block, count, x, y, scratch.floats(dense.scratch_floats()));
            for (int row = 0; row < count; ++row)
                std::copy(y + row * dense.columns(block), y + (row + 1) * dense.columns(block),
                          result.begin() + row * outputs + block * DenseWeights::kColumns);
        }
        return result;
    }
    int inputs, outputs;
    std::vector<float> weight, bias;
};

const std::pair<int, int> kSizes[] = {{1, 1}, {5, 7}, {24, 24}, {40, 300}, {130, 512}, {768, 256}};

TEST(MindsporeDense, QuickIsTheDefinition) {
    for (const auto& [inputs, outputs] : kSizes) {
        const Product product(inputs, outputs);
        const Product rows(inputs, 11);
        const std::vector<float> got = product.multiply(*product.pack(false), rows.weight);
        const std::vector<float> wanted = product.multiply(*product.pack(true), rows.weight);
        for (size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], wanted[i], 1e-6 * inputs + 2e-6) << inputs << " x " << outputs;
    }
}

// A row has the bits that it has alone, wherever it is in a block and whatever is beside it.
TEST(MindsporeDense, RowsDoNotDependOnEachOther) {
    for (const auto& [inputs, outputs] : kSizes) {
        const Product product(inputs, outputs), rows(inputs, DenseWeights::kRows);
        const std::shared_ptr<const DenseWeights> dense = product.pack(false);
        for (int count = 1; count <= DenseWeights::kRows; ++count) {
            const std::vector<float> block(rows.weight.begin(), rows.weight.begin() + count * inputs);
            const std::vector<float> together = product.multiply(*dense, block);
            for (int row = 0; row < count; ++row) {
                const auto begin = block.begin() + row * inputs;
                const std::vector<float> alone = product.multiply(*dense, {begin, begin + inputs});
                ASSERT_EQ(std::memcmp(alone.data(), &together[size_t(row * outputs)], alone.size() * 4), 0)
                    << "row " << row << " of " << count << ", " << inputs << " x " << outputs;
            }
        }
    }
}

int threads_of_process() {
    int count = 0;
    DIR* tasks = opendir("/proc/self/task");
    while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

// In a thread of its own: OpenMP has a pool for each thread that asks for one.
TEST(MindsporeDense, StartsNoThreads) {
    const Product product(256, 512), rows(256, DenseWeights::kRows);
    std::thread([&] {
        const int before = threads_of_process();
        const std::shared_ptr<const DenseWeights> dense = product.pack(false);
        for (int i = 0; i < 20; ++i) product.multiply(*dense, rows.weight);
        EXPECT_EQ(threads_of_process(), before);
    }).join();
}

// Where no page may be writable and executable, oneDNN has no code, and quire's definition runs.
TEST(MindsporeDense, RefusedPages) {
    constexpr int kPrSetMdwe = 65, kNotHere = 77;
    const Product product(37, 53), rows(37, 5);  // sizes of which oneDNN has no code from another test
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(kPrSetMdwe, 1UL, 0, 0, 0) != 0) _exit(kNotHere);
        const std::shared_ptr<const DenseWeights> dense = product.pack(false);
        const bool same =
            product.multiply(*dense, rows.weight) == product.multiply(*product.pack(true), rows.weight);
        _exit(same && !dense->failure().empty() && dense->explain().find("portable, ") == 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    if (WEXITSTATUS(status) == kNotHere)
        GTEST_SKIP() << "NOT TESTED: this kernel has no PR_SET_MDWE, which came with Linux 6.3";
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// ---- the layer ----

TEST(Mindspore, QuickSameBitsInEveryThreading) {
    for (const Form form : {Form::cross, Form::first, Form::next}) {
        for (const quire_type compute : {QUIRE_F32, QUIRE_F16}) {
            for (const int training : {0, 1}) {
                MindsporeCall call(form, compute);
                call.args.training = training;
                const std::vector<uint8_t> alone = call.result(inline_context());
                for (const int threads : {2, 3, 8}) {
                    for (const int parallel_config : {0, 1, 2}) {
                        call.desc.parallel_config = parallel_config;
                        EXPECT_EQ(call.result(context_of(best_target().name, threads)), alone);
                    }
                }
                quire_plan* plan = nullptr;
                ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK);
                for (const int count : {1, 2, 5}) {
                    quire_run* run = nullptr;
                    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK) << quire_last_error();
                    run_slices(count, run);
                    quire_run_release(run);
                    EXPECT_EQ(call.buffers.written(), alone);
                }
                quire_plan_destroy(plan);
            }
        }
    }
}

TEST(Mindspore, WeightsAreCopied) {
    MindsporeCall call, other;
    const std::vector<uint8_t> expected = call.result(inline_context());
    quire_plan* plan = nullptr;
    ASSERT_EQ(other.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    for (const quire_tensor* tensors : {other.weights, other.biases})
        for (int i = 0; i < 4; ++i)
            static_cast<float*>(tensors[i].data)[0] = NAN, static_cast<float*>(tensors[i].data)[7] = NAN;
    EXPECT_EQ(other.run(plan), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(other.buffers.written(), expected);
    quire_plan_destroy(plan);
}

TEST(Mindspore, StridedWeightsAndInputs) {
    MindsporeCall call, strided;
    const std::vector<uint8_t> expected = call.result(inline_context());
    // The projection's weight as the transpose of its transpose, and the flat value as [B, T, hidden_size].
    std::vector<float> transposed(64);
    for (size_t i = 0; i < 64; ++i)
        transposed[i % 8 * 8 + i / 8] = static_cast<const float*>(strided.weights[3].data)[i];
    strided.weights[3].data = transposed.data();
    std::swap(strided.weights[3].strides[0], strided.weights[3].strides[1]);
    const int64_t shape[] = {2, 5, 8};
    strided.value = quire_tensor_of(strided.value.data, QUIRE_F32, 3, shape);
    EXPECT_EQ(strided.result(inline_context()), expected);
}

// A past may be a view: with one element for all, or of other strides than those of a dense one.
TEST(Mindspore, StridedPasts) {
    for (const int64_t stride : {0, 3}) {
        MindsporeCall dense(Form::next), strided(Form::next);
        std::vector<uint16_t> wide(200);
        for (size_t i = 0; i < wide.size(); ++i)
            store_number(QUIRE_F16, wide.data(), int64_t(i), float(i % 13) - 6);
        for (quire_tensor* past : {&strided.key_past, &strided.value_past}) {
            past->data = wide.data();
            for (int i = 0; i < 4; ++i) past->strides[i] = stride * (4 - i);
            const quire_tensor& to = past == &strided.key_past ? dense.key_past : dense.value_past;
            for (int64_t i = 0; i < 2 * 2 * 4 * 4; ++i) {
                const int64_t place[] = {i / 32, i / 16 % 2, i / 4 % 4, i % 4};
                int64_t at = 0;
                for (int d = 0; d < 4; ++d) at += place[d] * past->strides[d];
                static_cast<uint16_t*>(to.data)[i] = wide[size_t(at)];
            }
        }
        EXPECT_EQ(strided.result(inline_context()), dense.result(inline_context())) << stride;
    }
}

TEST(Mindspore, ExplainSaysHowProductsAreMade) {
    quire_plan* plan = nullptr;
    MindsporeCall call;
    call.desc.softmax_compute_type = QUIRE_F16;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK);
    const std::string text = quire_plan_explain(plan);
    const bool portable = std::strcmp(quire_target_name(inline_context()), "portable") == 0;
    EXPECT_NE(text.find(portable ? "dense: portable" : "dense: oneDNN "), std::string::npos) << text;
    EXPECT_NE(text.find("softmax: f32"), std::string::npos) << text;
    quire_plan_destroy(plan);
}

// ---- dropout ----

// The known answers of Random123, the authors' library (kat_vectors, philox4x32 10).
TEST(MindsporeDropout, QuickPhiloxKnownAnswers) {
    EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
              (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
              (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(MindsporeDropout, QuickPiecesOfARowAgree) {
    const Dropout dropout{0.5f, 3, 9};
    std::vector<float> whole(103, 1.f);
    dropout.apply(2, 5, 0, 103, whole.data(), 1);
    for (const int64_t begin : {0, 1, 2, 3, 50, 99}) {
        for (const int64_t count : {1, 2, 4}) {
            std::vector<float> piece(size_t(3 * count), 1.f);
            dropout.apply(2, 5, begin, count, piece.data(), 3);
            for (int64_t i = 0; i < count; ++i) EXPECT_EQ(piece[size_t(3 * i)], whole[size_t(begin + i)]);
        }
    }
}

// quire_attention over T keys of equal scores, with a rate; the values are columns of the unit matrix, so
// that an output row is a row of probabilities.
struct Uniform {
    Uniform(int64_t tokens, int64_t keys) : S(tokens), T(keys) {
        value.resize(size_t(T * kHeads * kSize));
        for (int64_t t = 0; t < T; ++t)
            for (int64_t h = 0; h < kHeads; ++h) value[size_t((t * kHeads + h) * kSize + t % kSize)] = 1;
        key.resize(size_t(T * kHeads * kSize), 0.5f);
        query.resize(size_t(S * kHeads * kSize), 0.f);
    }
    std::vector<float> run(const std::string& target, int threads, float rate, int64_t step,
                           std::vector<float>* lse) {
        quire_attention_desc desc;
        quire_attention_desc_init(&desc);
        desc.num_heads = desc.num_kv_heads = kHeads;
        desc.head_dim = kSize;
        quire_plan* plan = nullptr;
        EXPECT_EQ(quire_attention_plan(context_of(target, threads), &desc, &plan), QUIRE_OK)
            << quire_last_error();
        std::vector<float> output(size_t(S * kHeads * kSize));
        lse->resize(size_t(S * kHeads));
        const auto tensor = [](std::vector<float>& numbers, std::vector<int64_t> shape) {
            return quire_tensor_of(numbers.data(), QUIRE_F32, int32_t(shape.size()), shape.data());
        };
        const quire_tensor q = tensor(query, {S, kHeads, kSize}), k = tensor(key, {T, kHeads, kSize}),
                           v = tensor(value, {T, kHeads, kSize}), o = tensor(output, {S, kHeads, kSize}),
                           l = tensor(*lse, {S, kHeads});
        quire_attention_args args = {};
        args.struct_size = sizeof args;
        args.query = &q, args.key = &k, args.value = &v, args.output = &o, args.lse = &l;
        args.dropout_rate = rate;
        args.dropout_seed = -5;
        args.dropout_step = step;
        EXPECT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error();
        quire_plan_destroy(plan);
        return output;
    }
    static constexpr int64_t kHeads = 3, kSize = 64;
    int64_t S, T;
    std::vector<float> query, key, value;
};

// As quire.h writes it down: which word of which block.
double kept(int64_t h, int64_t i, int64_t t, float rate, uint32_t step) {
    const PhiloxBlock block = philox4x32_10({uint32_t(t / 4), uint32_t(i), uint32_t(h), step}, uint64_t(-5));
    return double(block[size_t(t % 4)]) < double(rate) * 0x1p32 ? 0 : 1 / (1 - double(rate));
}

// Decode and tiles, one range of keys and several: the pattern is the documented one, lse is that of all
// keys.
TEST(MindsporeDropout, PatternOfProbabilities) {
    for (const auto& [S, T] :
         {std::pair<int64_t, int64_t>{1, 64}, {1, 3000}, {2, 50}, {40, 64}, {33, 4500}}) {
        Uniform uniform(S, T);
        for (const Target* target : targets()) {
            std::vector<float> lse;
            const std::vector<float> got = uniform.run(target->name, 1, 0.3f, 7, &lse);
            for (int64_t i = 0; i < S; ++i) {
                for (int64_t h = 0; h < Uniform::kHeads; ++h) {
                    std::vector<double> wanted(Uniform::kSize, 0.0);
                    for (int64_t t = 0; t < T; ++t)
                        wanted[size_t(t % Uniform::kSize)] += kept(h, i, t, 0.3f, 7) / double(T);
                    const size_t row = size_t(i * Uniform::kHeads + h);
                    EXPECT_NEAR(lse[row], std::log(double(T)), 1e-5);
                    for (size_t d = 0; d < size_t(Uniform::kSize); ++d)
                        ASSERT_NEAR(got[row * Uniform::kSize + d], wanted[d], 1e-6)
                            << target->name << " S " << S << " T " << T << " i " << i << " h " << h << " d "
                            << d;
                }
            }
        }
    }
}

// The same of codes at precision `high`, where decode's probabilities become words relative to the largest of
// a block of keys: those that are kept must not be larger than that.
TEST(MindsporeDropout, PatternOfWords) {
    constexpr int64_t kKeyHeads = 2, kHeads = 8, kSize = 64, kKeys = 300;
    std::vector<float> query(kHeads * kSize, 0.f), scale(kKeys * kKeyHeads * kSize / 32, 1.f), output(query);
    std::vector<int8_t> key(kKeys * kKeyHeads * kSize, 1), value(key.size(), 0);
    for (int64_t t = 0; t < kKeys; ++t)
        for (int64_t h = 0; h < kKeyHeads; ++h) value[size_t((t * kKeyHeads + h) * kSize + t % kSize)] = 1;
    const auto tensor = [](auto& numbers, quire_type type, std::vector<int64_t> shape) {
        return quire_tensor_of(numbers.data(), type, int32_t(shape.size()), shape.data());
    };
    const quire_tensor q = tensor(query, QUIRE_F32, {1, kHeads, kSize}),
                       o = tensor(output, QUIRE_F32, {1, kHeads, kSize}),
                       k = tensor(key, QUIRE_INT8, {kKeys, kKeyHeads, kSize}),
                       v = tensor(value, QUIRE_INT8, {kKeys, kKeyHeads, kSize}),
                       s = tensor(scale, QUIRE_F32, {kKeys, kKeyHeads, kSize / 32});
    for (const Target* target : targets())
        for (const float rate : {0.3f, 0.9f}) {
            quire_attention_desc desc;
            quire_attention_desc_init(&desc);
            desc.num_heads = kHeads;
            desc.num_kv_heads = kKeyHeads;
            desc.head_dim = kSize;
            desc.key_format = desc.value_format = {QUIRE_INT8, 32, QUIRE_F32};
            desc.precision = QUIRE_PRECISION_HIGH;
            quire_plan* plan = nullptr;
            ASSERT_EQ(quire_attention_plan(context_of(target->name, 1), &desc, &plan), QUIRE_OK)
                << quire_last_error();
            quire_attention_args args = {};
            args.struct_size = sizeof args;
            args.query = &q, args.key = &k, args.value = &v, args.key_scale = args.value_scale = &s;
            args.output = &o;
            args.dropout_rate = rate;
            args.dropout_seed = -5;
            args.dropout_step = 7;
            ASSERT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error();
            quire_plan_destroy(plan);
            for (int64_t h = 0; h < kHeads; ++h) {
                std::vector<double> wanted(kSize, 0.0);
                for (int64_t t = 0; t < kKeys; ++t)
                    wanted[size_t(t % kSize)] += kept(h, 0, t, rate, 7) / double(kKeys);
                for (size_t d = 0; d < size_t(kSize); ++d)
                    ASSERT_NEAR(output[size_t(h * kSize) + d], wanted[d], 5e-6)
                        << target->name << " rate " << rate << " head " << h << " element " << d;
            }
        }
}

TEST(MindsporeDropout, ShareAndExpectation) {
    Uniform uniform(40, 64);
    std::vector<float> lse;
    for (const float rate : {0.1f, 0.5f, 0.9f}) {
        double sum = 0, zeros = 0, count = 0;
        std::vector<float> before;
        for (int64_t step = 0; step < 50; ++step) {
            const std::vector<float> got = uniform.run(best_target().name, 1, rate, step, &lse);
            EXPECT_NE(got, before);  // another step, another pattern
            before = got;
            for (const float p : got) {
                sum += double(p);
                zeros += p == 0;
                ++count;
            }
        }
        // 384000 draws: four standard deviations.
        EXPECT_NEAR(zeros / count, double(rate), 4 * std::sqrt(rate * (1 - rate) / count));
        EXPECT_NEAR(sum / count * 64, 1, 4 * std::sqrt(rate / (1 - rate) / count));
    }
}

TEST(MindsporeDropout, SameBitsForAnyThreads) {
    Uniform uniform(33, 4500);
    for (const Target* target : jit_targets()) {
        std::vector<float> lse;
        const std::vector<float> alone = uniform.run(target->name, 1, 0.4f, 1, &lse);
        for (const int threads : {2, 3, 8})
            EXPECT_EQ(uniform.run(target->name, threads, 0.4f, 1, &lse), alone);
    }
}

}  // namespace
}  // namespace quire::test
