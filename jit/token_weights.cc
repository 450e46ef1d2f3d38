#include "jit/token_weights.h"

#include <cstddef>

#include "jit/weights_emitter.h"

namespace quire::jit {
namespace {

// for each block: out[block][g][16] = float(scales of the block[g][16])
class TokenScales : public Emitter {
public:
    explicit TokenScales(const RowKey& key) : Emitter(*key.target) {
        begin();
        const Gpr blocks = gpr("blocks"), out = gpr("out"), count = gpr("count"), from = gpr("scales"),
                  groups = gpr("groups left");
        mov(blocks, ptr[args() + offsetof(ScalesArgs, rows)]);
        mov(out, ptr[args() + offsetof(ScalesArgs, out)]);
        mov(count, ptr[args() + offsetof(ScalesArgs, count)]);
        Label each_block, each_group;
        L(each_block);
        mov(from, ptr[blocks]);
        add(from, token_block_info(key.format.type)->code_bytes(key.dim));
        mov(groups, key.groups());
        L(each_group);
        for (int t = 0; t < kBlockTokens; t += lanes()) {
            Temp scale(*this, "scale");
            vcvtph2ps(scale, ptr[from + t * 2]);
            vmovups(ptr[out + t * 4], *scale);
        }
        add(from, kBlockTokens * 2);
        add(out, kBlockTokens * 4);
        dec(groups);
        jnz(each_group, T_NEAR);
        add(blocks, 8 * kBlockTokens);
        sub(count, kBlockTokens);
        jnz(each_block, T_NEAR);
        end();
    }
};

// The lanes are tokens. For each group g, each block, for r:
//   weights[r][g][key] = p[r][key] * scale[block][g][key]
class TokenWeights : public WeightsEmitter {
public:
    explicit TokenWeights(const RowKey& key) : WeightsEmitter(key), vecs_(kBlockTokens / lanes()) {
        begin();
        mov(group_scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        mov(group_weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        mov(groups_, key_.groups());
        Label each_group;
        L(each_group);
        emit_group();
        add(group_scales_, kBlockTokens * 4);
        add(group_weights_, kBlock * 4);
        dec(groups_);
        jnz(each_group, T_NEAR);
        end();
    }

private:
    void emit_group() {
        stage("group");
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(weights_, group_weights_);
        mov(scales_, group_scales_);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        for (int v = 0; v < vecs_; ++v) {
            Temp scale(*this, "scale"), weight(*this, "weight");
            vmovups(scale, ptr[scales_ + v * vec_bytes()]);
            for (int r = 0; r < key_.rows; ++r) {
                vmulps(weight, scale, ptr[row_at(r) + v * vec_bytes()]);
                vmovups(ptr[weights_ + r * weight_row_bytes(key_.groups() * 4) + v * vec_bytes()], *weight);
            }
        }
        add(probabilities_, kBlockTokens * 4);
        add(weights_, kBlockTokens * 4);
        add(scales_, key_.groups() * kBlockTokens * 4);
        sub(count_, kBlockTokens);
        jnz(each, T_NEAR);
    }

    const int vecs_;  // of a block's tokens
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), group_scales_ = gpr("scales of the group"),
              group_weights_ = gpr("weights of the group"), groups_ = gpr("groups left");
};

}  // namespace

bool token_weights_fold(const RowKey& values) {
    if (values.words() || values.bytes() || values.rows == 1) return true;
    return scale_group(values.format) >= 2 * values.target->lanes();
}

Status generate_token_scales(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenScales(key).finish(code);
}
Status generate_token_weights(const RowKey& values, std::vector<uint8_t>* code) {
    if (values.words() || values.bytes()) return generate_token_weights_words(values, code);
    return TokenWeights(values).finish(code);
}

}  // namespace quire::jit
