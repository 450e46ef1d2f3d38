// quire_mindspore_multi_head_attention as a layer: its handle, its dense products and its threads
// (dropout: tests/dropout.cc). What it computes is compared with its definition in
// tests/python/test_mindspore.py.
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

}  // namespace
}  // namespace quire::test
