// quire_rotate, and quire_append with rotations: results by rotate_row in all forms of a call, on every
// target and any number of threads; wrong calls.
#include <cmath>

#include "src/format.h"
#include "src/rotation.h"
#include "tests/errors_table.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

constexpr int kMaxPos = 40;

// n 4 (B 2, S 2), H 3, D 32, R 16; positions within 40.
struct RotateCall : Call {
    explicit RotateCall(bool batched = false, quire_type type = QUIRE_F32) {
        quire_rotate_desc_init(&desc);
        desc.num_heads = 3;
        desc.head_dim = 32;
        desc.type = type;
        desc.rotary = QUIRE_ROTARY_HALVES;
        desc.rotary_dim = 16;
        desc.hadamard = 1;
        const std::vector<int64_t> tokens = batched ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{4};
        std::vector<int64_t> shape = tokens;
        shape.insert(shape.end(), {3, 32});
        input = buffers.numbers(type, shape);
        output = buffers.output(type, shape);
        positions = buffers.indices(tokens, {7, 39, 0, 7});
        cos = buffers.numbers(QUIRE_F32, {kMaxPos, 8});
        sin = buffers.numbers(QUIRE_F32, {kMaxPos, 8});
        args = {sizeof args, &input, &output, &positions, &cos, &sin};
    }
    quire_status plan(quire_context* context, quire_plan** plan) const override {
        return quire_rotate_plan(context, &desc, plan);
    }
    quire_status run(const quire_plan* plan) override { return quire_rotate(plan, &args); }
    quire_status prepare(const quire_plan* plan, quire_run** run) override {
        return quire_prepare_rotate(plan, &args, run);
    }

    // What the output must hold, by rotate_row.
    std::vector<uint8_t> expected() const {
        const Rotation rotation{desc.rotary, desc.rotary_dim,
                                desc.hadamard ? hadamard_block(desc.head_dim) : 0};
        const size_t bytes = size_t(type_bits(desc.type) / 8);
        std::vector<uint8_t> all(size_t(4 * 3 * 32) * bytes);
        for (int row = 0; row < 4 * 3; ++row) {
            std::vector<float> values;
            for (int d = 0; d < 32; ++d) values.push_back(load_number(desc.type, input.data, row * 32 + d));
            const int64_t angles = entry(positions, row / 3) * 8;
            rotate_row(rotation, 32, static_cast<const float*>(cos.data) + angles,
                       static_cast<const float*>(sin.data) + angles, values.data());
            for (int d = 0; d < 32; ++d) store_number(desc.type, all.data(), row * 32 + d, values[size_t(d)]);
        }
        return all;
    }

    quire_rotate_desc desc;
    quire_rotate_args args;
    quire_tensor input, output, positions, cos, sin;
};

TEST(Rotate, EveryFormOnEveryTarget) {
    for (const Target* target : targets())
        for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            for (const quire_rotary rotary : {QUIRE_ROTARY_HALVES, QUIRE_ROTARY_INTERLEAVED})
                for (const bool batched : {false, true})
                    for (const int threads : {1, 3}) {
                        SCOPED_TRACE(target->name);
                        RotateCall call(batched, type);
                        call.desc.rotary = rotary;
                        EXPECT_EQ(call.result(context_of(target->name, threads)), call.expected());
                    }
}

TEST(Rotate, InPlaceAndBack) {
    for (const Target* target : targets()) {
        RotateCall call;
        call.desc.rotary = QUIRE_ROTARY_NONE;
        call.desc.rotary_dim = 0;
        call.args.positions = call.args.rotary_cos = call.args.rotary_sin = nullptr;
        const std::vector<uint8_t> wanted = call.expected();
        const auto* const numbers = static_cast<const float*>(call.input.data);
        const std::vector<float> before(numbers, numbers + 4 * 3 * 32);
        call.args.output = &call.input;
        call.result(context_of(target->name, 1));
        EXPECT_EQ(std::memcmp(numbers, wanted.data(), wanted.size()), 0);
        call.result(context_of(target->name, 1));
        for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(numbers[i], before[i], 1e-5);
    }
}

TEST(Rotate, ScoresStayWhatTheyWere) {
    RotateCall call;
    const auto dot = [](const float* a, const float* b) {
        double sum = 0;
        for (int d = 0; d < 32; ++d) sum += double(a[d]) * double(b[d]);
        return sum;
    };
    call.desc.rotary = QUIRE_ROTARY_NONE;
    call.desc.rotary_dim = 0;
    call.args.positions = call.args.rotary_cos = call.args.rotary_sin = nullptr;
    call.result(inline_context());
    const auto *in = static_cast<const float*>(call.input.data),
               *out = static_cast<const float*>(call.output.data);
    for (int a = 0; a < 12; ++a)
        for (int b = 0; b < 12; ++b)
            EXPECT_NEAR(dot(out + a * 32, out + b * 32), dot(in + a * 32, in + b * 32), 2e-4);
}

TEST(Rotate, Tables) {
    std::vector<float> cos(5 * 4), sin(5 * 4);
    const int64_t shape[] = {5, 4};
    quire_tensor c = quire_tensor_of(cos.data(), QUIRE_F32, 2, shape),
                 s = quire_tensor_of(sin.data(), QUIRE_F32, 2, shape);
    ASSERT_EQ(quire_rotary_tables(10000, &c, &s), QUIRE_OK) << quire_last_error();
    for (int t = 0; t < 5; ++t)
        for (int i = 0; i < 4; ++i) {
            const double angle = t * std::pow(10000.0, -2.0 * i / 8);
            EXPECT_EQ(cos[size_t(t * 4 + i)], float(std::cos(angle)));
            EXPECT_EQ(sin[size_t(t * 4 + i)], float(std::sin(angle)));
        }
    for (const double base : {0.0, -1.0, double(NAN), double(INFINITY)}) {
        EXPECT_EQ(quire_rotary_tables(base, &c, &s), QUIRE_INVALID_ARGUMENT);
        EXPECT_NE(std::string(quire_last_error()).find("must be above 0 and finite"), std::string::npos);
    }
    s.shape[0] = 4;
    EXPECT_EQ(quire_rotary_tables(10000, &c, &s), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "sin has shape [4, 4]: dimension 0 of [MaxPos, R / 2] must be 5");
    EXPECT_EQ(quire_rotary_tables(10000, nullptr, &s), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "cos is NULL: must be a tensor [MaxPos, R / 2]");
}

TEST(Rotate, ExplainSaysWhich) {
    for (const Target* target : targets()) {
        quire_plan* plan = nullptr;
        ASSERT_EQ(RotateCall().plan(context_of(target->name, 1), &plan), QUIRE_OK) << quire_last_error();
        const std::string text = quire_plan_explain(plan), json = quire_plan_explain_json(plan);
        EXPECT_NE(text.find(std::string("rotate: ") + target->name), std::string::npos) << text;
        EXPECT_NE(text.find("rotate rotation of rows: halves16_hadamard32\n"), std::string::npos) << text;
        EXPECT_EQ(text.find("rotate kernels: append_d32_f32_f32_halves16_hadamard32_") != std::string::npos,
                  target->jit())
            << text;
        EXPECT_NE(json.find("\"rotate\": {\"target\": "), std::string::npos) << json;
        quire_plan_destroy(plan);
    }
}

TEST(Rotate, WrongDescriptors) {
    using Call = RotateCall;
    expect_wrong_descs<Call>({
        {"no heads", [](Call& c) { c.desc.num_heads = 0; }, "num_heads is 0: must be 1 to 1048576"},
        {"head_dim 1025", [](Call& c) { c.desc.head_dim = 1025; }, "head_dim is 1025: must be 1 to 1024"},
        {"type int8", [](Call& c) { c.desc.type = QUIRE_INT8; }, "type is int8: must be f32, f16 or bf16"},
        {"rotary 3", [](Call& c) { c.desc.rotary = quire_rotary(3); }, "rotary is 3: must be 0 to 2"},
        {"odd rotary_dim", [](Call& c) { c.desc.rotary_dim = 15; },
         "rotary_dim is 15: must be even, 2 to head_dim, 32"},
        {"rotary_dim 34", [](Call& c) { c.desc.rotary_dim = 34; },
         "rotary_dim is 34: must be even, 2 to head_dim, 32"},
        {"rotary_dim alone", [](Call& c) { c.desc.rotary = QUIRE_ROTARY_NONE; },
         "rotary_dim is 16: must be 0 without a rotary embedding"},
        {"hadamard 2", [](Call& c) { c.desc.hadamard = 2; }, "hadamard is 2: must be 0 to 1"},
        {"hadamard of an odd head", [](Call& c) { c.desc.head_dim = 31; },
         "head_dim is 31: must be even with hadamard"},
        {"nothing to do",
         [](Call& c) {
             c.desc.rotary = QUIRE_ROTARY_NONE;
             c.desc.rotary_dim = c.desc.hadamard = 0;
         },
         "rotary and hadamard are 0: must ask for a rotation"},
    });
}

TEST(Rotate, WrongArguments) {
    using Call = RotateCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no input", [](Call& c) { c.args.input = nullptr; },
             "input is NULL: must be a tensor [n, H, D]"},
            {"other heads", [](Call& c) { c.input.shape[1] = 2; },
             "input has shape [4, 2, 32]: dimension 1 of [n, H, D] must be 3"},
            {"output of fewer tokens", [](Call& c) { c.output.shape[0] = 3; },
             "output has shape [3, 3, 32]: dimension 0 of [n, H, D] must be 4"},
            {"no positions", [](Call& c) { c.args.positions = nullptr; },
             "positions is NULL: must be a tensor [n]"},
            {"no cosines", [](Call& c) { c.args.rotary_cos = nullptr; },
             "rotary_cos is NULL: must be a tensor [MaxPos, R / 2]"},
            {"cosines of another R", [](Call& c) { c.cos.shape[1] = 7; },
             "rotary_cos has shape [40, 7]: dimension 1 of [MaxPos, R / 2] must be 8"},
            {"fewer sines", [](Call& c) { c.sin.shape[0] = 39; },
             "rotary_sin has shape [39, 8]: dimension 0 of [MaxPos, R / 2] must be 40"},
            {"sines apart", [](Call& c) { c.sin.strides[1] = 2, c.sin.shape[0] = c.cos.shape[0] = 20; },
             "rotary_sin has stride 2 in its last dimension: must be 1"},
            {"position past the tables", [](Call& c) { entry(c.positions, 2) = 40; },
             "positions[2] is 40: must lie in the 40 rows of rotary_cos"},
            {"negative position", [](Call& c) { entry(c.positions, 0) = -1; },
             "positions[0] is -1: must lie in the 40 rows of rotary_cos"},
            {"output on itself", [](Call& c) { c.output.strides[0] = 0; },
             "output has stride 0 in dimension 0: must keep its elements apart, it is written"},
        });
}

// ---- quire_append ----

// AppendCall (D 16, int8 keys in groups, f16 values; positions 4, and 3 to 5) with rotations.
struct RotatedAppend : AppendCall {
    RotatedAppend() {
        desc.rotary = QUIRE_ROTARY_INTERLEAVED;
        desc.hadamard_keys = desc.hadamard_values = 1;
        cos = buffers.numbers(QUIRE_F32, {kMaxPos, 8});
        sin = buffers.numbers(QUIRE_F32, {kMaxPos, 8});
        positions = buffers.indices({4}, {4, 3, 4, 5});
        args.rotary_cos = &cos;
        args.rotary_sin = &sin;
    }
    quire_tensor cos, sin, positions;
};

// Rotates what a plain append stores.
void rotate_rows(const quire_tensor& rows, const RotatedAppend& call, bool keys) {
    const int dim = int(rows.shape[2]);
    const Rotation rotation{keys ? QUIRE_ROTARY_INTERLEAVED : QUIRE_ROTARY_NONE, keys ? dim : 0,
                            hadamard_block(dim)};
    for (int64_t token = 0; token < rows.shape[0]; ++token)
        for (int64_t head = 0; head < rows.shape[1]; ++head) {
            const int64_t angles = entry(call.positions, token) * 8;
            rotate_row(rotation, dim, static_cast<const float*>(call.cos.data) + angles,
                       static_cast<const float*>(call.sin.data) + angles,
                       static_cast<float*>(rows.data) + (token * rows.shape[1] + head) * dim);
        }
}

TEST(AppendRotated, StoresWhatRotatedRowsStore) {
    for (const Target* target : targets()) {
        SCOPED_TRACE(target->name);
        quire_context* context = context_of(target->name, 1);
        RotatedAppend in_the_pass, given, plain;
        given.args.positions = &given.positions;
        rotate_rows(plain.new_key, plain, true);
        rotate_rows(plain.new_value, plain, false);
        plain.desc.rotary = QUIRE_ROTARY_NONE;
        plain.desc.hadamard_keys = plain.desc.hadamard_values = 0;
        plain.args.rotary_cos = plain.args.rotary_sin = nullptr;
        const std::vector<uint8_t> wanted = plain.result(context);
        EXPECT_EQ(in_the_pass.result(context), wanted);
        EXPECT_EQ(given.result(context), wanted);
        RotatedAppend elsewhere;
        elsewhere.args.positions = &elsewhere.positions;
        entry(elsewhere.positions, 1) = 30;
        EXPECT_NE(elsewhere.result(context), wanted);
        EXPECT_NE(AppendCall().result(context), wanted);
    }
}

TEST(AppendRotated, WrongCalls) {
    using Call = RotatedAppend;
    expect_wrong_descs<Call>({
        {"rotary 3", [](Call& c) { c.desc.rotary = quire_rotary(3); }, "rotary is 3: must be 0 to 2"},
        {"rotary_dim 18", [](Call& c) { c.desc.rotary_dim = 18; },
         "rotary_dim is 18: must be even, 2 to head_dim, 16"},
        {"hadamard_values -1", [](Call& c) { c.desc.hadamard_values = -1; },
         "hadamard_values is -1: must be 0 to 1"},
        {"odd values",
         [](Call& c) {
             c.desc.value_head_dim = 7;
             c.desc.rotary = QUIRE_ROTARY_NONE;
         },
         "value_head_dim is 7: must be even with hadamard_values"},
    });
    expect_wrong_args([] { return std::make_unique<Call>(); },
                      std::vector<WrongCall<Call>>{
                          {"no sines", [](Call& c) { c.args.rotary_sin = nullptr; },
                           "rotary_sin is NULL: must be a tensor [MaxPos, R / 2]"},
                          {"tables too short", [](Call& c) { c.cos.shape[0] = c.sin.shape[0] = 5; },
                           "rotary_cos has 5 rows: token [3] is at position 5 of its sequence"},
                          {"positions of fewer tokens",
                           [](Call& c) {
                               c.positions.shape[0] = 3;
                               c.args.positions = &c.positions;
                           },
                           "positions has shape [3]: dimension 0 of [n] must be 4"},
                      });
    AppendCall plain;
    RotatedAppend rotated;
    quire_plan* plan = nullptr;
    ASSERT_EQ(plain.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    plain.args.rotary_cos = &rotated.cos;
    expect_error(plain.run(plan), "rotary_cos is given: must be NULL without a rotary embedding");
    quire_plan_destroy(plan);
}

}  // namespace
}  // namespace quire::test
