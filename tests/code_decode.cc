// Every kernel, for every target (generation needs no such processor), decoded instruction by instruction.
#include <gtest/gtest.h>

#include <functional>

#include "jit/emitter.h"
#include "jit/kernels.h"
#include "jit/merge.h"
#include "jit/pack.h"
#include "jit/pv.h"
#include "jit/qk.h"
#include "jit/qk_amx.h"
#include "jit/query_fours.h"
#include "jit/query_tokens.h"
#include "jit/scale_row.h"
#include "jit/scales.h"
#include "jit/softmax.h"
#include "jit/tile_bias.h"
#include "jit/tile_bytes.h"
#include "jit/tile_products.h"
#include "jit/tile_qk_softmax.h"
#include "jit/tile_query.h"
#include "jit/tile_rows.h"
#include "jit/token_place.h"
#include "jit/token_pv.h"
#include "jit/token_qk.h"
#include "jit/token_qk_amx.h"
#include "jit/token_qk_bytes.h"
#include "jit/token_rows.h"
#include "jit/token_weights.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/word_loader.h"
#include "tests/code_check.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {
namespace {

using jit::RowKey;
using Bytes = std::vector<uint8_t>;

constexpr int kDims[] = {1, 8, 40, 64, 128, 576};
constexpr int kRows[] = {1, 3, 4, 8};

std::vector<const Target*> generated_targets() {
    int count = 0;
    const Target* table = target_table(&count);
    std::vector<const Target*> found;
    for (int i = 0; i < count; ++i)
        if (table[i].jit()) found.push_back(&table[i]);
    return found;
}

// All formats that a row of `dim` can have: groups of one, a few, and all of its values.
std::vector<quire_format> formats_of(int dim) {
    std::vector<quire_format> list;
    size_t count = 0;
    const FormatInfo* table = format_table(&count);
    for (size_t i = 0; i < count; ++i) {
        const quire_type type = table[i].type;
        if (dim % type_size(type).elements != 0 || token_block_info(type)) continue;
        if (table[i].max_code == 0) {
            list.push_back({type, 0, QUIRE_NONE});
            continue;
        }
        for (quire_type scale : {QUIRE_F32, QUIRE_F16})
            for (int group : {1, 8, 20, dim})
                if (dim % group == 0 && (group == dim || dim > group)) list.push_back({type, group, scale});
    }
    return list;
}

class Decode : public testing::Test {
protected:
    void SetUp() override {
        if (!can_decode())
            GTEST_SKIP() << "Zydis was not found (Debian: libzydis-dev): GENERATED CODE WAS NOT DECODED";
    }
    void TearDown() override {
        if (can_decode()) {
            EXPECT_GT(kernels_, 0);
        }
    }

    void check(const Target& target, const std::string& name, const std::function<Status(Bytes*)>& generate) {
        Bytes bytes;
        try {
            const Status status = generate(&bytes);
            ASSERT_TRUE(status.ok()) << name << ": " << status.message();
        } catch (const std::exception& error) {
            FAIL() << name << ": " << error.what();
        }
        const std::string wrong = check_code(target, bytes);
        EXPECT_EQ(wrong, "") << name;
        ++kernels_;
    }
    // A generator of a RowKey.
    void check(const char* stage, const RowKey& key, Status (*generate)(const RowKey&, Bytes*)) {
        check(*key.target, key.name(stage), [&](Bytes* bytes) { return generate(key, bytes); });
    }

    int kernels_ = 0;
};

TEST_F(Decode, RowKernels) {
    for (const Target* target : generated_targets())
        for (int dim : kDims)
            for (const quire_format& format : formats_of(dim)) {
                RowKey key{target, format, dim, 0};
                check("pack_keys", key, jit::generate_pack_keys);
                check("pack_values", key, jit::generate_pack_values);
                if (target->bf16) {
                    RowKey bfloats = key;
                    bfloats.products = jit::Products::bfloats;
                    check("pack_keys", bfloats, jit::generate_pack_keys);
                    check("pack_values", bfloats, jit::generate_pack_values);
                    check("tile_query", bfloats, jit::generate_tile_query);
                }
                for (const jit::Products products : {jit::Products::bytes, jit::Products::three_bytes}) {
                    if (key_products(key, products) != products) continue;
                    RowKey bytes{target, format, dim, 3, products};
                    check("pack_keys", bytes, jit::generate_pack_keys);
                    check("tile_qk", bytes, jit::generate_tile_qk_bytes);
                    check("tile_query", bytes, jit::generate_tile_query);
                }
                for (const jit::Products products :
                     {jit::Products::bytes, jit::Products::two_bytes, jit::Products::three_bytes})
                    if (const RowKey fours{target, format, dim, 0, products};
                        can_be({format, dim}, *target, products) && has_query_fours(fours))
                        check("query_fours", fours, jit::generate_query_fours);
                for (int rows : kRows)
                    for (const jit::Products products : {jit::Products::words, jit::Products::bytes})
                        if (jit::has_words(format))
                            check("decode_weights", {target, format, dim, rows, products},
                                  jit::generate_weights);
                for (int rows : kRows)
                    if (const RowKey scaled{target, format, dim, rows, jit::Products::scaled_words};
                        jit::has_scaled_words(scaled)) {
                        check("decode_weights", scaled, jit::generate_weights);
                        check("decode_pv", scaled, jit::generate_pv);
                    }
                for (const jit::Placement placement :
                     {jit::Placement::listed, jit::Placement::runs, jit::Placement::adjacent}) {
                    key.rows = 0;
                    key.placement = placement;
                    if (key.groups() > 0) check("scales", key, jit::generate_scales);
                    for (int rows : kRows) {
                        key.rows = rows;
                        check("decode_qk", key, jit::generate_qk);
                        check("decode_pv", key, jit::generate_pv);
                        if (jit::has_value_bytes(key)) {
                            RowKey bytes = key;
                            bytes.products = jit::Products::bytes;
                            check("decode_pv", bytes, jit::generate_pv);
                            check("decode_weights_of", bytes, jit::generate_weights_bytes);
                        }
                        for (const jit::Products products :
                             {jit::Products::two_digit_tiles, jit::Products::three_digit_tiles,
                              jit::Products::scaled_tiles}) {
                            RowKey amx = key;
                            amx.products = products;
                            if (jit::takes_key_amx(amx)) {
                                check("query_amx", amx, jit::generate_query_amx);
                                check("decode_qk", amx, jit::generate_qk);
                            }
                            if (!jit::takes_value_amx(amx)) continue;
                            check("decode_pv", amx, jit::generate_pv);
                            check("decode_weights", amx, jit::generate_weights);
                        }
                        if (!jit::has_value_fours(key)) continue;
                        RowKey fours = key;
                        fours.products = jit::Products::three_bytes;
                        check("decode_pv", fours, jit::generate_pv);
                        check("decode_weights", fours, jit::generate_weights);
                    }
                }
            }
}

TEST_F(Decode, TokenKernels) {
    for (const Target* target : generated_targets())
        for (int dim : {8, 40, 80, 576})
            for (quire_type type : {QUIRE_INT8_B16, QUIRE_INT4_B16})
                for (int group : {8, 40, dim}) {
                    if (dim % group != 0) continue;
                    RowKey key{target, {type, group, QUIRE_F16}, dim, 0};
                    check("token_scales", key, jit::generate_token_scales);
                    for (const Side side : {Side::key, Side::value}) {
                        check(*target, key.name("token_rows"),
                              [&](Bytes* bytes) { return jit::generate_token_rows(key, side, bytes); });
                        check(*target, key.name("token_place"),
                              [&](Bytes* bytes) { return jit::generate_token_place(key, side, bytes); });
                    }
                    for (const jit::Products products :
                         {jit::Products::bytes, jit::Products::two_bytes, jit::Products::three_bytes}) {
                        RowKey bytes{target, key.format, dim, 0, products};
                        if (!can_be({key.format, dim}, *target, products)) continue;
                        check(jit::query_tokens_target(bytes), bytes.name("query_tokens"),
                              [&](Bytes* code) { return jit::generate_query_tokens(bytes, code); });
                        for (int rows : kRows) {
                            bytes.rows = rows;
                            check("token_qk", bytes, jit::generate_token_qk);
                        }
                    }
                    for (int rows : kRows) {
                        const RowKey bytes{target, key.format, dim, rows, jit::Products::bytes};
                        if (jit::has_value_bytes(bytes)) {
                            check("token_weights_of", bytes, jit::generate_token_weights_bytes);
                            check("token_pv", bytes, jit::generate_token_pv);
                        }
                        RowKey fours = bytes;
                        fours.products = jit::Products::three_bytes;
                        if (!jit::has_value_fours(fours)) continue;
                        check("token_weights", fours, jit::generate_weights_fours);
                        check("token_pv", fours, jit::generate_token_pv);
                    }
                    for (int rows : kRows)
                        for (const jit::Products products :
                             {jit::Products::two_digit_tiles, jit::Products::three_digit_tiles}) {
                            const RowKey amx{target, key.format, dim, rows, products};
                            if (jit::takes_token_key_amx(amx)) {
                                check("query_token_amx", amx, jit::generate_query_token_amx);
                                check("token_qk", amx, jit::generate_token_qk);
                            }
                            if (!jit::takes_value_amx(amx)) continue;
                            check("token_weights", amx, jit::generate_weights_amx);
                            check("token_pv", amx, jit::generate_token_pv);
                        }
                    for (int rows : kRows)
                        for (bool words : {false, true}) {
                            key.rows = rows;
                            key.products = words_if(words);
                            check("token_qk", key, jit::generate_token_qk);
                            check("token_weights", key, jit::generate_token_weights);
                            check("token_pv", key, jit::generate_token_pv);
                            if (!words) continue;
                            key.products = jit::Products::bytes;
                            check("token_weights", key, jit::generate_token_weights);
                            key.products = jit::Products::scaled_words;
                            check("token_weights", key, jit::generate_token_weights);
                            check("token_pv", key, jit::generate_token_pv);
                        }
                }
}

TEST_F(Decode, Append) {
    for (const Target* target : generated_targets())
        for (int dim : kDims)
            for (const quire_format& format : formats_of(dim)) {
                if (block_info(format.type)) continue;  // append refuses them
                for (quire_type input : {QUIRE_F32, QUIRE_F16, QUIRE_BF16}) {
                    const jit::AppendKey key{target, input, format, dim};
                    check(*target, key.name(),
                          [&](Bytes* bytes) { return jit::generate_append(key, bytes); });
                }
            }
}

TEST_F(Decode, SoftmaxBiasAndMerge) {
    for (const Target* target : generated_targets()) {
        for (int bits = 0; bits < 8; ++bits) {
            const jit::ScoreKey key{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
            for (bool of_block : {false, true}) {
                const jit::SoftmaxKey rows{target, key, of_block};
                check(*target, rows.name(), [&](Bytes* bytes) { return jit::generate_softmax(rows, bytes); });
            }
            for (int vecs = 1; vecs <= jit::kMaxPanelVecs; ++vecs)
                for (bool masked : {false, true})
                    for (const jit::Products products :
                         {jit::Products::floats, jit::Products::words, jit::Products::bfloats}) {
                        if (products == jit::Products::bfloats && !target->bf16) continue;
                        jit::TileSoftmaxKey tile{target, key, vecs, masked, products};
                        check(*target, tile.name(),
                              [&](Bytes* bytes) { return jit::generate_tile_softmax(tile, bytes); });
                        if (!tile.bfloats() || !target->amx) continue;
                        tile.goes_above = true;
                        check(*target, tile.name(),
                              [&](Bytes* bytes) { return jit::generate_tile_softmax(tile, bytes); });
                    }
        }
        for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16}) {
            check(*target, std::string("tile_bias ") + type_name(type),
                  [&](Bytes* bytes) { return jit::generate_tile_bias(*target, type, bytes); });
            for (int dim : kDims) {
                check(*target, std::string("tile_rows ") + type_name(type),
                      [&](Bytes* bytes) { return jit::generate_tile_rows(*target, type, dim, bytes); });
                check(*target, std::string("tile_columns ") + type_name(type),
                      [&](Bytes* bytes) { return jit::generate_tile_columns(*target, type, dim, bytes); });
            }
        }
        for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            for (int dim : kDims)
                for (const jit::ScaleRowKey& key : {jit::ScaleRowKey{target, type, QUIRE_F32, dim},
                                                    jit::ScaleRowKey{target, QUIRE_F32, type, dim}})
                    check(*target, key.name(),
                          [&](Bytes* bytes) { return jit::generate_scale_row(key, bytes); });
        for (int vecs : {1, 7, 8, 9, 64})
            check(*target, "merge",
                  [&](Bytes* bytes) { return jit::generate_merge(*target, vecs * target->lanes(), bytes); });
    }
}

TEST_F(Decode, TileProducts) {
    for (const Target* target : generated_targets())
        for (int dim : kDims)
            for (int vecs = 1; vecs <= jit::kMaxPanelVecs; ++vecs) {
                const RowKey row{target, {QUIRE_F32, 0, QUIRE_NONE}, dim, 0};
                const std::string name = std::string(target->name) + " d" + std::to_string(dim);
                std::vector<jit::TileKey> keys = {{target, dim, row.padded(), vecs}};
                if (target->bf16)
                    keys.push_back({target, dim, row.bfloat_lanes(), vecs, jit::Products::bfloats});
                for (const jit::TileKey& key : keys) {
                    check(*target, "tile_qk " + name,
                          [&](Bytes* bytes) { return jit::generate_tile_qk(key, bytes); });
                    check(*target, "tile_pv " + name,
                          [&](Bytes* bytes) { return jit::generate_tile_pv(key, bytes); });
                    if (jit::has_tile_qk_softmax(key))
                        check(*target, "tile_qk_softmax " + name, [&](Bytes* bytes) {
                            return jit::generate_tile_qk_softmax(key, key.products, bytes);
                        });
                }
            }
}

// ---- the checker itself ----

struct Wrong {
    const char* target;
    const char* message;  // part of it
    void (*emit)(Xbyak::CodeGenerator& code);
};

TEST_F(Decode, CheckerCatches) {
    using namespace Xbyak::util;
    using Code = Xbyak::CodeGenerator;
    static const Wrong rows[] = {
        {"avx2", "is of AVX512F_512", [](Code& c) { c.vaddps(zmm0, zmm1, zmm2); }},
        {"avx2", "is of AVX512F_256", [](Code& c) { c.vmovups(ymm0, ymm17); }},
        {"avx2", "is of BMI2", [](Code& c) { c.shlx(rax, rcx, rdx); }},
        {"avx2", "is of SSE", [](Code& c) { c.addps(xmm0, xmm1); }},
        {"avx2", "is of AVX_VNNI", [](Code& c) { c.vpdpbusd(ymm0, ymm1, ymm2, Xbyak::VexEncoding); }},
        {"avx2_vnni", "is of AVX512_VNNI_256",
         [](Code& c) { c.vpdpbusd(ymm0, ymm1, ymm2, Xbyak::EvexEncoding); }},
        {"avx512", "is of AVX512_VNNI_512", [](Code& c) { c.vpdpbusd(zmm0, zmm1, zmm2); }},
        {"avx512_vnni", "is of AVX512_BF16_512", [](Code& c) { c.vdpbf16ps(zmm0, zmm1, zmm2); }},
        {"avx512_vnni", "is of AVX512_VBMI_512", [](Code& c) { c.vpermb(zmm0, zmm1, zmm2); }},
        {"avx2", "a call", [](Code& c) { c.call(rax); }},
        {"avx2", "no business", [](Code& c) { c.int3(); }},
        {"avx2", "goes to an address of its own", [](Code& c) { c.jmp(rax); }},
        {"avx2", "where no instruction begins", [](Code& c) { c.db(0x77f8c501eb, 5); }},  // into a vzeroupper
        {"avx2", "where no instruction begins", [](Code& c) { c.db(0x01eb, 2); }},        // past the ret
        {"avx2", "where no instruction begins", [](Code& c) { c.db(0x80eb, 2); }},  // before the beginning
        {"avx2", "an absolute address", [](Code& c) { c.vmovups(ymm0, c.ptr[Xbyak::RegExp(64)]); }},
        {"avx2", "an address?", [](Code& c) { c.mov(rax, size_t(0x7f1234567000)); }},
        {"avx2", "outside the pool", [](Code& c) { c.vmovups(ymm0, c.ptr[c.rip + 64]); }},
        {"avx2", "needs an aligned address", [](Code& c) { c.vmovaps(ymm0, c.ptr[rdi]); }},
        {"avx2", "not an instruction", [](Code& c) { c.db(0x06); }},
    };
    for (const Wrong& row : rows) {
        Xbyak::CodeGenerator code(4096, Xbyak::DontSetProtectRWE);
        row.emit(code);
        code.ret();
        code.align(64);
        const Bytes bytes(code.getCode(), code.getCode() + code.getSize());
        EXPECT_NE(check_code(*find_target(row.target), bytes).find(row.message), std::string::npos)
            << row.message << ": got \"" << check_code(*find_target(row.target), bytes) << "\"";
        ++kernels_;
    }
    EXPECT_EQ(check_code(*find_target("avx2"), Bytes(64, 0x90)), "no ret before the end");
}

}  // namespace
}  // namespace quire::test
