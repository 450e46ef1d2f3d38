#include "jit/append.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"
#include "jit/quantise.h"

namespace quire::jit {
namespace {

// not quantised: row[i] = input[i] in the row's type                              emit_copy
//
// quantised, for each group of G (rounding to the input's type after each step):
//   largest = max |input[i]|, NaN if one is                                        emit_largest
//   scale = max(largest / max_code, 1e-5); scales[g] = scale                       emit_scale
//   code[i] = clamp(round(input[i] / scale)), 0 where that is NaN                  emit_codes
// int4: codes go to scratch first, then two to a byte                              emit_nibbles
//
// f32 in whole vectors: eight groups share the steps across lanes and the divisions  jit/quantise.h
// (a row with NaN or Inf takes the general way)
class Append : public Emitter {
public:
    explicit Append(const AppendKey& key) : Emitter(*key.target), key_(key), group_(key.format.quant_group) {
        begin();
        mov(input_, ptr[args() + offsetof(AppendArgs, input)]);
        mov(row_, ptr[args() + offsetof(AppendArgs, row)]);
        if (is_quantised(key_.format)) {
            max_code_ = float(format_info(key_.format.type)->max_code);
            mov(scale_out_, ptr[args() + offsetof(AppendArgs, scales)]);
            const bool nibbles = key_.format.type == QUIRE_INT4;
            Label special, done;
            if (can_quantise(key_)) {
                emit_quantise(*this, key_, {input_, row_, scale_out_}, special);
                jmp(done, T_NEAR);
            }
            L(special);
            if (nibbles) mov(codes_, ptr[args() + offsetof(AppendArgs, codes)]);
            emit_groups(nibbles ? codes_ : row_);
            if (nibbles) emit_nibbles();
            L(done);
        } else {
            emit_copy();
        }
        end();
    }

private:
    int input_bytes() const { return type_bits(key_.input_type) / 8; }

    void emit_copy() {
        stage("copy");
        const int bytes = type_bits(key_.format.type) / 8;
        for (int i = 0; i < key_.dim; i += lanes()) {
            const int n = std::min(lanes(), key_.dim - i);
            Temp x(*this, "x");
            load_number(key_.input_type, x, input_ + i * input_bytes(), n);
            store_number(key_.format.type, row_ + i * bytes, x, n);
        }
    }

    void emit_groups(const Gpr& codes) {
        stage("groups");
        Label each_group;
        mov(groups_, key_.dim / group_);
        L(each_group);
        {
            Temp scale(*this, "scale");
            emit_largest(scale);
            emit_scale(scale);
            emit_codes(scale, codes);
        }
        add(input_, group_ * input_bytes());
        add(scale_out_, type_bits(key_.format.scale_type) / 8);
        add(codes, group_);
        dec(groups_);
        jnz(each_group, T_NEAR);
    }

    // Every lane of `largest` is the group's largest magnitude.
    void emit_largest(const Vec& largest) {
        stage("largest");
        Temp sum(*this, "sum"), x(*this, "x");
        zero(largest);
        zero(sum);
        for (int i = 0; i < group_; i += lanes()) {
            load_number(key_.input_type, x, input_ + i * input_bytes(), std::min(lanes(), group_ - i));
            bit_and(x, x, splat_bits(0x7fffffff));
            vmaxps(largest, x, largest);  // drops a NaN
            vaddps(sum, sum, x);          // of magnitudes: NaN only where one of them is
        }
        fold(Fold::max, largest);
        fold(Fold::sum, sum);
        zero(x);
        vminps(sum, x, sum);  // 0, or the NaN
        vaddps(largest, largest, sum);
    }

    void emit_scale(const Vec& scale) {
        stage("scale");
        Temp bound(*this, "bound"), stored(*this, "stored");
        vdivps(scale, scale, splat(max_code_));
        round_to(key_.input_type, scale);
        vmovups(bound, splat(kSmallestScale));
        round_to(key_.input_type, bound);
        vmaxps(scale, bound, scale);  // a NaN scale is the second source and stays
        vmovaps(stored, scale);
        store_number(key_.format.scale_type, scale_out_, stored, 1);
    }

    void emit_codes(const Vec& scale, const Gpr& codes) {
        stage("codes");
        for (int i = 0; i < group_; i += lanes()) {
            const int n = std::min(lanes(), group_ - i);
            Temp x(*this, "x");
            load_number(key_.input_type, x, input_ + i * input_bytes(), n);
            vdivps(x, x, scale);
            round_to(key_.input_type, x);
            zero_nan(x);
            vminps(x, x, splat(max_code_));
            vmaxps(x, x, splat(-max_code_));
            vcvtps2dq(x, x);  // ties to even
            store_i8(codes + i, x, n);
        }
    }

    // 16 codes -> 8 bytes: of each word (even, odd) the nibbles (odd << 4 | even).
    void emit_nibbles() {
        stage("nibbles");
        mov(codes_, ptr[args() + offsetof(AppendArgs, codes)]);
        for (int i = 0; i < key_.dim; i += 16) {
            const int n = std::min(16, key_.dim - i);
            Temp even(*this, "even"), odd(*this, "odd");
            const Xbyak::Xmm e((*even).getIdx()), o((*odd).getIdx());
            load_bytes(even, codes_ + i, n);
            vpsrlw(o, e, 4);
            bit_and(o, o, splat_bits(0x00f000f0));
            bit_and(e, e, splat_bits(0x000f000f));
            bit_or(e, e, o);
            vpackuswb(e, e, e);
            store_bytes(row_ + i / 2, even, n / 2);
        }
    }

    const AppendKey key_;
    const int group_;
    float max_code_ = 0;
    const Gpr input_ = gpr("input"), row_ = gpr("row"), scale_out_ = gpr("scale out"), codes_ = gpr("codes"),
              groups_ = gpr("groups");
};

}  // namespace

Status generate_append(const AppendKey& key, std::vector<uint8_t>* code) { return Append(key).finish(code); }

}  // namespace quire::jit
