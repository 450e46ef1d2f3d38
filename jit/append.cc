#include "jit/append.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"
#include "jit/quantise.h"
#include "jit/rotate.h"

namespace quire::jit {
namespace {

// for each of `count` rows:
//   x = input, or rotated (then f32 from here on)                                    emit_source,
//   jit/rotate.h not quantised: row[i] = x[i] in the row's type                                   emit_copy
//
//   quantised, for each group of G (rounding to the type of x after each step):
//     largest = max |x[i]|, NaN if one is                                            emit_largest_of
//     scale = max(largest / max_code, 1e-5); scales[g] = scale                       emit_scale_of
//     code[i] = clamp(round(x[i] / scale)), 0 where that is NaN                      emit_codes_of
//   int4: codes go to scratch first, then two to a byte                              emit_nibbles
//
// In whole vectors (jit/quantise.h): the scales of the next row, a chain of long latencies, are computed
// between the codes of this one; a row with NaN or Inf takes the way above.                emit_pipelined
class Append : public Emitter {
public:
    explicit Append(const AppendKey& key) : Emitter(*key.target), key_(key), group_(key.format.quant_group) {
        begin();
        mov(list_, ptr[args() + offsetof(AppendArgs, rows)]);
        mov(count_, ptr[args() + offsetof(AppendArgs, count)]);
        mov(slot_, ptr[args() + offsetof(AppendArgs, scratch)]);
        if (is_quantised(key_.format)) max_code_ = float(format_info(key_.format.type)->max_code);
        can_quantise(key_) ? emit_pipelined() : emit_rows();
        end();
    }

private:
    template <typename Body>
    void each_row(const Body& body) {
        Label each;
        L(each);
        load_row(list_, input_, scales_);
        mov(row_, ptr[list_ + offsetof(AppendRow, row)]);
        body();
        add(list_, sizeof(AppendRow));
        dec(count_);
        jnz(each, T_NEAR);
    }

    void load_row(const Gpr& list, const Gpr& input, const Gpr& scales) {
        mov(input, ptr[list + offsetof(AppendRow, input)]);
        mov(scales, ptr[list + offsetof(AppendRow, scales)]);
    }

    void emit_rows() {
        each_row([&] {
            emit_source(list_, input_, slot_);
            is_quantised(key_.format) ? emit_groups() : emit_copy();
        });
    }

    void emit_pipelined() {
        const Gpr next = gpr("next in list"), next_input = gpr("next input"),
                  next_scales = gpr("next scales"), next_slot = gpr("next slot");
        const Vec spoilt = vec("spoilt"), next_spoilt = vec("next spoilt");
        const QuantisedRow this_row{source(), row_, scales_, slot_};
        const QuantisedRow next_row{source(next_input, next_slot), row_, next_scales, next_slot};
        lea(next_slot, ptr[slot_ + key_.slot_floats() * 4]);
        load_row(list_, input_, scales_);
        emit_source(list_, input_, slot_);
        emit_largest(*this, key_, this_row, spoilt);
        emit_scales(*this, key_, this_row);
        emit_reciprocals(*this, key_, this_row);
        each_row([&] {
            Label special, done;
            lea(next, ptr[list_ + sizeof(AppendRow)]);
            cmp(count_, 1);
            cmove(next, list_);  // after the last: once more itself, which changes nothing
            load_row(next, next_input, next_scales);
            emit_source(next, next_input, next_slot);
            emit_largest(*this, key_, next_row, next_spoilt);
            emit_codes(
                *this, key_, this_row, spoilt, special, [&] { emit_scales(*this, key_, next_row); },
                [&] { emit_reciprocals(*this, key_, next_row); });
            jmp(done, T_NEAR);
            L(special);
            emit_groups();
            L(done);
            xchg(slot_, next_slot);
            vmovups(spoilt, next_spoilt);
        });
        for (const Vec& v : {spoilt, next_spoilt}) free(v);
        for (const Gpr& r : {next, next_input, next_scales, next_slot}) free(r);
    }

    // The numbers that are stored.
    RegExp source(const Gpr& input, const Gpr& slot) const {
        return key_.rotation ? slot + key_.slot_groups() * 8 : RegExp(input);
    }
    RegExp source() const { return source(input_, slot_); }

    void emit_source(const Gpr& list, const Gpr& input, const Gpr& slot) {
        if (!key_.rotation) return;
        const Gpr cos = gpr("cos"), sin = gpr("sin");
        if (key_.rotation.rotary != QUIRE_ROTARY_NONE) {
            mov(cos, ptr[list + offsetof(AppendRow, cos)]);
            mov(sin, ptr[list + offsetof(AppendRow, sin)]);
        }
        emit_rotate(*this, key_.rotation, key_.input_type, key_.dim, {input, cos, sin, source(input, slot)});
        free(cos);
        free(sin);
    }

    int source_bytes() const { return type_bits(key_.row_type()) / 8; }

    void emit_copy() {
        stage("copy");
        const int bytes = type_bits(key_.format.type) / 8;
        for (int i = 0; i < key_.dim; i += lanes()) {
            const int n = std::min(lanes(), key_.dim - i);
            Temp x(*this, "x");
            load_number(key_.row_type(), x, source() + i * source_bytes(), n);
            store_number(key_.format.type, row_ + i * bytes, x, n);
        }
    }

    void emit_groups() {
        const bool nibbles = key_.format.type == QUIRE_INT4;
        const Gpr codes = gpr("codes"), from = gpr("from"), groups = gpr("groups");
        stage("groups");
        if (nibbles) {
            mov(codes, ptr[args() + offsetof(AppendArgs, scratch)]);
            add(codes, 2 * key_.slot_floats() * 4);
        } else {
            mov(codes, row_);
        }
        lea(from, ptr[source()]);
        mov(groups, key_.dim / group_);
        Label each_group;
        L(each_group);
        {
            Temp scale(*this, "scale");
            emit_largest_of(scale, from);
            emit_scale_of(scale);
            emit_codes_of(scale, from, codes);
        }
        add(from, group_ * source_bytes());
        add(scales_, type_bits(key_.format.scale_type) / 8);
        add(codes, group_);
        dec(groups);
        jnz(each_group, T_NEAR);
        if (nibbles) emit_nibbles(codes);
        for (const Gpr& r : {codes, from, groups}) free(r);
    }

    // Every lane of `largest` is the group's largest magnitude.
    void emit_largest_of(const Vec& largest, const Gpr& from) {
        stage("largest");
        Temp sum(*this, "sum"), x(*this, "x");
        zero(largest);
        zero(sum);
        for (int i = 0; i < group_; i += lanes()) {
            load_number(key_.row_type(), x, from + i * source_bytes(), std::min(lanes(), group_ - i));
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

    void emit_scale_of(const Vec& scale) {
        stage("scale");
        Temp bound(*this, "bound"), stored(*this, "stored");
        vdivps(scale, scale, splat(max_code_));
        round_to(key_.row_type(), scale);
        vmovups(bound, splat(kSmallestScale));
        round_to(key_.row_type(), bound);
        vmaxps(scale, bound, scale);  // a NaN scale is the second source and stays
        vmovaps(stored, scale);
        store_number(key_.format.scale_type, scales_, stored, 1);
    }

    void emit_codes_of(const Vec& scale, const Gpr& from, const Gpr& codes) {
        stage("codes");
        for (int i = 0; i < group_; i += lanes()) {
            const int n = std::min(lanes(), group_ - i);
            Temp x(*this, "x");
            load_number(key_.row_type(), x, from + i * source_bytes(), n);
            vdivps(x, x, scale);
            round_to(key_.row_type(), x);
            zero_nan(x);
            vminps(x, x, splat(max_code_));
            vmaxps(x, x, splat(-max_code_));
            vcvtps2dq(x, x);  // ties to even
            store_i8(codes + i, x, n);
        }
    }

    // 16 codes -> 8 bytes: of each word (even, odd) the nibbles (odd << 4 | even).
    void emit_nibbles(const Gpr& codes) {
        stage("nibbles");
        sub(codes, key_.dim);
        for (int i = 0; i < key_.dim; i += 16) {
            const int n = std::min(16, key_.dim - i);
            Temp even(*this, "even"), odd(*this, "odd");
            const Xbyak::Xmm e((*even).getIdx()), o((*odd).getIdx());
            load_bytes(even, codes + i, n);
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
    const Gpr list_ = gpr("list"), count_ = gpr("count"), slot_ = gpr("slot");
    const Gpr input_ = gpr("input"), row_ = gpr("row"), scales_ = gpr("scales");
};

}  // namespace

Status generate_append(const AppendKey& key, std::vector<uint8_t>* code) { return Append(key).finish(code); }

}  // namespace quire::jit
