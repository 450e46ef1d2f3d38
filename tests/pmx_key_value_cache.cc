// PMX KeyValueCache gives back what the cache holds, to the bit, on every target: all formats, odd head
// sizes, and guard pages at both ends of every row of the cache and of the results.
#include <gtest/gtest.h>

#include "src/format.h"
#include "tests/pmx_calls.h"
#include "tests/support/random.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

struct ReadCase {
    quire_format format;
    quire_type type;  // of the results
    int D;
    Flush flush;
};

// Random numbers, or codes with random scales; any bytes would do but NaN.
void fill(const quire_format& format, int64_t rows, int D, GuardedBuffer* codes, GuardedBuffer* scales) {
    Random random{uint64_t(D)};
    for (int64_t i = 0; i < rows * D; ++i) {
        if (is_quantised(format))
            store_code(format.type, codes->data(), i, int(random.between(-7, 7)));
        else
            store_number(format.type, codes->data(), i, random.normal());
    }
    for (int64_t i = 0; is_quantised(format) && i < rows * D / format.quant_group; ++i)
        store_number(format.scale_type, scales->data(), i, float(random.uniform()) + 0.01f);
}

// Reads one sequence of `keys` positions of a cache [keys, 1, 2, Hk, D] that holds nothing else; no new
// tokens.
class Reading {
public:
    static constexpr int Hk = 2, kRepeat = 3;

    Reading(const ReadCase& c, int64_t keys)
        : case_(c),
          keys_(keys),
          rows_(keys * 2 * Hk),
          groups_(is_quantised(c.format) ? c.D / c.format.quant_group : 0),
          codes_(size_t(rows_ * c.D * type_bits(c.format.type) / 8), c.flush),
          scales_(size_t(rows_ * groups_ * type_bits(c.format.scale_type) / 8), c.flush),
          key_(size_t(keys * Hk * kRepeat * c.D * type_bits(c.type) / 8), c.flush),
          value_(key_.size(), c.flush) {
        fill(c.format, rows_, c.D, &codes_, &scales_);
        codes_.forbid_writes();
        if (groups_ > 0) scales_.forbid_writes();
    }

    void run(const Target& target) {
        const ReadCase& c = case_;
        quire_pmx_dynamic_key_value_cache_desc desc;
        quire_pmx_dynamic_key_value_cache_desc_init(&desc);
        desc.num_kv_heads = Hk;
        desc.head_dim = c.D;
        desc.quant_bit = is_quantised(c.format) ? type_bits(c.format.type) : 0;
        desc.quant_group = c.format.quant_group;
        desc.num_repeat = kRepeat;
        desc.type = c.type;
        desc.cache_type = c.format.type;
        desc.scale_type = c.format.scale_type;
        int64_t seqstarts[] = {0, 0}, kvstarts[] = {0, keys_}, cachestarts[] = {0}, start_pos[] = {keys_};
        const auto view = [](void* data, quire_type type, std::vector<int64_t> shape) {
            return quire_tensor_of(data, type, int32_t(shape.size()), shape.data());
        };
        const quire_tensor none = view(nullptr, c.type, {0, Hk, c.D});
        const quire_tensor starts[] = {view(seqstarts, QUIRE_INT64, {2}), view(kvstarts, QUIRE_INT64, {2}),
                                       view(cachestarts, QUIRE_INT64, {1}),
                                       view(start_pos, QUIRE_INT64, {1})};
        const quire_tensor cache = view(codes_.data(), c.format.type, {keys_, 1, 2, Hk, c.D});
        const quire_tensor scale = view(scales_.data(), c.format.scale_type, {keys_, 1, 2, Hk, groups_});
        const quire_tensor key = view(key_.data(), c.type, {keys_, Hk * kRepeat, c.D});
        const quire_tensor value = view(value_.data(), c.type, {keys_, Hk * kRepeat, c.D});
        const quire_pmx_dynamic_key_value_cache_args args = {sizeof args,
                                                             &none,
                                                             &none,
                                                             &starts[0],
                                                             &starts[1],
                                                             &starts[2],
                                                             &starts[3],
                                                             0,
                                                             keys_,
                                                             &cache,
                                                             groups_ > 0 ? &scale : nullptr,
                                                             &key,
                                                             &value};
        quire_plan* plan = nullptr;
        ASSERT_EQ(quire_pmx_dynamic_key_value_cache_plan(context_of(target.name, 1), &desc, &plan), QUIRE_OK)
            << quire_last_error();
        EXPECT_NE(std::string(quire_plan_explain(plan)).find(std::string("read: ") + target.name + "\n"),
                  std::string::npos)
            << quire_plan_explain(plan);
        key_.fill(kFillByte);
        value_.fill(kFillByte);
        EXPECT_EQ(quire_pmx_dynamic_key_value_cache(plan, &args), QUIRE_OK) << quire_last_error();
        quire_plan_destroy(plan);
    }

    // Every element is the number, or code * scale, rounded to the results' type.
    void expect_read() const {
        const ReadCase& c = case_;
        std::vector<float> wanted(static_cast<size_t>(c.D));
        for (int64_t t = 0; t < keys_; ++t)
            for (int part = 0; part < 2; ++part)
                for (int64_t h = 0; h < Hk * kRepeat; ++h) {
                    const int64_t row = (t * 2 + part) * Hk + h / kRepeat;
                    decode_row(c.format, c.D, codes_.as<char>() + row * c.D * type_bits(c.format.type) / 8,
                               scales_.as<char>() + row * groups_ * type_bits(c.format.scale_type) / 8,
                               wanted.data());
                    const void* got = (part ? value_ : key_).as<void>();
                    for (int d = 0; d < c.D; ++d)
                        ASSERT_EQ(load_number(c.type, got, (t * Hk * kRepeat + h) * c.D + d),
                                  round_to(c.type, wanted[size_t(d)]))
                            << "position " << t << ", head " << h << ", element " << d;
                }
    }

private:
    const ReadCase case_;
    const int64_t keys_, rows_, groups_;
    GuardedBuffer codes_, scales_, key_, value_;
};

void sweep(const quire_format& format, int D) {
    for (quire_type type : {QUIRE_F32, QUIRE_F16})
        for (Flush flush : {Flush::end, Flush::begin}) {
            SCOPED_TRACE(format_name(format) + " to " + type_name(type) + ", D " + std::to_string(D));
            Reading reading({format, type, D, flush}, D == 16 ? 131 : 3);
            for (const Target* target : targets()) {
                SCOPED_TRACE(target->name);
                reading.run(*target);
                reading.expect_read();
            }
        }
}

TEST(PmxKeyValueCache, Numbers) {
    for (int D : {1, 3, 7, 8, 15, 16, 24, 40, 64, 128, 640})
        for (quire_type type : {QUIRE_F32, QUIRE_F16}) sweep({type, 0, QUIRE_NONE}, D);
}

TEST(PmxKeyValueCache, Quantised) {
    const int sizes[][2] = {{2, 1},  {8, 8},   {10, 5},   {16, 8},   {24, 3},
                            {40, 8}, {64, 32}, {128, 16}, {640, 128}};
    for (const auto& [D, group] : sizes)
        for (quire_type type : {QUIRE_INT8, QUIRE_INT4})
            for (quire_type scale_type : {QUIRE_F32, QUIRE_F16}) sweep({type, group, scale_type}, D);
}

// The five operators once on every target, in guarded buffers: stored codes and what is read back have the
// bits that `portable` gives.
template <typename CallType>
void expect_bits_of_portable() {
    const std::vector<uint8_t> wanted = CallType().result(context_of("portable", 1));
    for (const Target* target : targets())
        EXPECT_EQ(CallType().result(context_of(target->name, 1)), wanted) << target->name;
}

TEST(PmxKeyValueCache, BothFormsOnEveryTarget) {
    expect_bits_of_portable<PmxDynamicKeyValueCacheCall>();
    expect_bits_of_portable<PmxKeyValueCacheCall>();
}

template <typename CallType>
void expect_attention_of_portable() {
    std::vector<std::vector<float>> outputs;
    for (const Target* target : targets()) {
        CallType call;
        call.result(context_of(target->name, 1));
        const float* output = static_cast<const float*>(call.attn_output.data);
        int64_t count = 1;
        for (int i = 0; i < call.attn_output.rank; ++i) count *= call.attn_output.shape[i];
        outputs.emplace_back(output, output + count);
        for (int64_t i = 0; i < count; ++i)
            EXPECT_NEAR(output[i], outputs[0][size_t(i)], 1e-6) << target->name;
    }
}

TEST(PmxAttention, AllFormsOnEveryTarget) {
    expect_attention_of_portable<PmxDynamicAttentionCall>();
    expect_attention_of_portable<PmxAttentionCall>();
    expect_attention_of_portable<PmxCacheAttentionCall>();
}

}  // namespace
}  // namespace quire::test
