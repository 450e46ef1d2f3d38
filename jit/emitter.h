// The only file that knows AVX2 from AVX-512. A generator built on it is written once: a Vec carries its
// width at generation time, and what differs between the tiers (masks, tails, cross-lane moves) is a function
// here.
//
// Functions that need a register of their own take it from the pool while they emit, and give it back.
//
// Conventions of generated code: System V, `void kernel(const Args*)`; the argument struct is in args();
// rax is this file's scratch register and never holds a value across a call of a function below.
#pragma once
#include <xbyak/xbyak.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/status.h"
#include "src/target.h"

namespace quire::jit {

using Vec = Xbyak::Xmm;  // ymm or zmm: Xbyak's Xmm keeps its kind
using Gpr = Xbyak::Reg64;
using Xbyak::Address;
using Xbyak::Label;
using Xbyak::RegExp;

class Emitter;

// A register for the length of a C++ scope.
class Temp {
public:
    Temp(Emitter& e, const char* name);
    ~Temp();
    Temp(const Temp&) = delete;
    operator const Vec&() const { return v_; }
    const Vec& operator*() const { return v_; }

private:
    Emitter& e_;
    Vec v_;
};

class Emitter : public Xbyak::CodeGenerator {
public:
    explicit Emitter(const Target& target);

    int lanes() const { return target_.lanes(); }
    int num_vecs() const { return target_.num_vecs(); }
    int vec_bytes() const { return lanes() * 4; }

    // ---- registers: one name, one meaning, from birth to free ----
    Vec vec(const std::string& name);  // throws std::runtime_error naming what did not fit
    std::vector<Vec> vecs(const std::string& name, int count);
    Gpr gpr(const std::string& name);
    void free(const Vec& v);
    void free(const std::vector<Vec>& list);
    void free(const Gpr& r);
    int free_vecs() const;
    // Moves what is in v to the registers `to`, of which those that v has not are free. It costs no pipe.
    void move(std::vector<Vec>* v, const std::vector<Vec>& to);
    // Allocated by begin(), freed by end().
    Gpr args() const { return rdi; }

    // For listings: what is emitted from here on.
    void stage(const std::string& text);

    // body() so many times, in a loop over a register of that name, or once without.
    template <typename Body>
    void times(int count, const char* name, const Body& body) {
        if (count == 1) return body();
        const Gpr left = gpr(name);
        mov(left, count);
        Label again;
        L(again);
        body();
        dec(left);
        jnz(again, T_NEAR);
        free(left);
    }

    // ---- frame and constants ----
    void begin();
    void end();
    // Emits the constant pool and copies the finished code. Call once, last.
    Status finish(std::vector<uint8_t>* bytes);
    // Whole-vector constants in the code's own pool.
    Address splat(float value);
    Address splat_bits(uint32_t bits);
    Address constant(const std::vector<uint32_t>& words);  // lanes() words

    // One number of 32 bits in memory, in every lane. vbroadcastss takes the place of a shuffle on Zen 4, and
    // so of a product; vpbroadcastd is a load and no more.
    void broadcast(const Xbyak::Xmm& v, const Address& at) { vpbroadcastd(v, at); }

    // ---- f32 lanes: the first n count, the others read as 0 and are not written ----
    void load_f32(const Vec& v, const RegExp& at, int n);
    void store_f32(const RegExp& at, const Vec& v, int n);
    // lane i = float index[i] at `at`, lowest first; may read lanes() floats from there on. Behind
    // hold_upper_half() two loads of 4 bytes where each half has one (one of 64 may end in another line).
    void load_lanes(const Vec& v, const RegExp& at, const std::vector<int>& index);
    // With 512 bits: whether each half has its number; whether load_lanes takes an order (hold_lanes).
    bool is_halves(const std::vector<int>& index) const;
    bool permutes(const std::vector<int>& index) const;
    // On targets with 512 bits, as the next two: word i = word index[i] of `count` at `at`, at most 64; reads
    // exactly these.
    void load_words_in_order(const Vec& v, const RegExp& at, const std::vector<int>& index, int count);
    // The same of lanes, as float16 numbers.
    void load_half_lanes(const Vec& v, const RegExp& at, const std::vector<int>& index, int count);
    // Lists of n float16 numbers, one behind the other, each in `each` lanes, the last of which repeat its
    // last number: the order of so many numbers, and the lists of a vector.
    static std::vector<int> in_lists(int numbers, int each, int n);
    void load_half_lists(const Vec& v, const RegExp& at, int n, int each);
    // lane i = lane order[i] of v.
    void permute(const Vec& v, const std::vector<uint32_t>& order);
    // Keeps what load_lanes needs for an index like this, on targets with 512 bits, or what
    // load_signed_nibbles needs, in registers, where at least `spare` + 1 are free: a load less each time.
    // Until drop_held().
    void hold_lanes(const std::vector<int>& index, int spare);
    void hold_nibbles(int spare);
    // The same of what load_nibble takes.
    void hold_nibble_numbers(int spare);
    // The same of numbers that load_splat and multiply_add take.
    void hold_splats(const std::vector<float>& values, int spare);
    void load_splat(const Vec& v, float value);
    void multiply_add(const Vec& acc, const Vec& x, float value);  // acc = acc * x + value
    void drop_held();
    // lane i = float index[i] of row i % 4, where each row has eight, `row_bytes` apart, on targets with 512
    // bits.
    void load_lanes_of_eights(const Vec& v, const RegExp& at, int row_bytes, std::vector<int> index);
    // lanes() / run floats, each in `run` lanes (2, 4 .. lanes()) that follow each other.
    void load_repeated(const Vec& v, const RegExp& at, int run);
    // The first, third .. of 2 * lanes() floats.
    void load_every_second(const Vec& v, const RegExp& at);
    // n floats, each in two lanes that follow each other.
    void load_twice(const Vec& v, const RegExp& at, int n);
    // The lower half of v, lanes() numbers of F16.
    void halves_to_floats(const Vec& v) { vcvtph2ps(v, half_of(v)); }
    // n numbers of `type` (F32, F16, BF16), converted.
    void load_number(quire_type type, const Vec& v, const RegExp& at, int n);
    // v is changed.
    void store_number(quire_type type, const RegExp& at, const Vec& v, int n);
    // n bytes, zero-extended vector; reads exactly n bytes. n <= lanes() * 2 (<= 32).
    void load_bytes(const Vec& v, const RegExp& at, int n);
    // The low n <= 16 bytes of v. v is changed.
    void store_bytes(const RegExp& at, const Vec& v, int n);
    // n signed bytes to int32 lanes.
    void load_i8(const Vec& v, const RegExp& at, int n);
    // n bytes: every lane of the low eight gets the first four of them, of the upper eight the next four.
    void load_dword_of_eight_lanes(const Vec& v, const RegExp& at, int n);
    // Nibbles of n bytes, of two's complement, to f32 lanes: the low one of a byte first.
    void load_signed_nibbles(const Vec& v, const RegExp& at, int n);
    // The same of lanes() bytes: `even` gets the low ones, `odd` the others.
    void load_signed_nibbles(const Vec& even, const Vec& odd, const RegExp& at);
    // The same, times 2^28 and 2^4, which is an operation less: `upper` has the upper 28 bits of lanes set.
    // zero: the code that means 0; it is 8 in place of two's complement.
    void load_nibble_tops(const Vec& even, const Vec& odd, const RegExp& at, const Vec& upper, int zero);
    // Nibble i of each lane of `raw`, of two's complement, to f32 lanes.
    void load_nibble(const Vec& v, const Vec& raw, int i);
    // Low or high nibbles of lanes() bytes to int32 lanes, or to the f32 number (-127..127, integral) of
    // each.
    void load_nibbles(const Vec& v, const RegExp& at, bool high);
    void load_nibbles(const Vec& v, const RegExp& at, bool high, const std::vector<float>& numbers);
    // 2 * lanes() bytes of each of four rows, with permutations of bytes, as the next ones: a lane of `first`
    // has one of the bytes 0 to 7 and 16 to 23 of all four, `last` the others. `in_order`: byte i is in lane
    // i. That takes permutations of two vectors, each in the place of a product on Zen 4, but fewer
    // operations that wait for loads.
    using RowAt = std::function<RegExp(int row)>;  // asked for when it is read
    void load_bytes_of_four(const Vec& first, const Vec& last, const RowAt& row_at, bool in_order = false);
    // The same of nibbles, as unsigned numbers (+ 8): those of lanes() bytes, `even` the low ones.
    // `with_offset`: as they are in memory.
    void load_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at, bool with_offset);
    // And as signed ones, times 16.
    void load_upper_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at);
    // 16 more where the dword `before` bytes before each row's nibbles, those of 16 bytes, has a bit set: bit
    // i of that for lane i of `low`, the next 16 for `high`.
    void add_fifth_bits_of_four(const Vec& low, const Vec& high, const RowAt& row_at, int before);
    // What a table of 16 numbers has for nibbles, a byte each with nothing above; plus `zero`, as bytes.
    void look_up_nibbles(const std::vector<Vec>& list, const int8_t* table, int zero);
    // In lower halves: the low nibbles of the bytes in `low`, and in `high` the others.
    void separate_nibbles(const Vec& low, const Vec& high);
    // The lower half of v, nibbles as bytes: where a bit is set they stay, the others lose 16. That of a byte
    // is `of_bytes` (a power of two) in byte `bytes` of its 128 bits in `bits`.
    struct FifthBits {
        std::vector<uint32_t> bytes, of_bytes;
    };
    void take_fifth_bits(const Vec& v, const Vec& bits, const FifthBits& at);
    // Each 32 bytes: the elements of a block of which low nibbles and high ones are `codes` bytes behind its
    // beginning, and a dword of their fifth bits `bits` bytes behind it.
    void load_five_bits(const Vec& v, const std::vector<RegExp>& blocks, int codes, int bits);
    // Keeps what the others take in a register, as hold_lanes.
    void hold_nibble_table(const int8_t* table, int zero, int spare);
    // Keeps what these take in registers, as hold_lanes.
    void hold_bytes_of_four(int spare, bool in_order = false);
    void hold_quarters_of_four(int spare);
    // The same as signed bytes, on targets with 256 bits: of eight bytes of each row, from `at` on. 16 are
    // read, which begin with these, or end so. zero: the code that means 0; it is 8 in place of two's
    // complement.
    struct NibbleBytes {
        int at;
        bool upper;
        int zero;
        // Of a plain row, `at` a multiple of eight.
        static NibbleBytes of_row(int at, int row_bytes) {
            return {at, at % 16 != 0 || at + 16 > row_bytes, 0};
        }
    };
    void load_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at, const NibbleBytes& bytes);
    // 32 bytes of each of four rows, of each 16 the lower or the upper eight: lane i of both has the bytes i
    // of all four, by 128 bits.
    void load_half_of_four(const Vec& a, const Vec& b, const RowAt& row_at, int at, bool upper);
    // Nibbles of two's complement of a whole vector, low ones and high ones, as signed bytes, on targets with
    // 256 bits.
    void load_nibble_bytes(const Vec& low, const Vec& high, const RegExp& at);
    // `each` (1, 2 or 4) f16 numbers of every address, one behind the other, converted; the other lanes are
    // 0.
    void load_halves(const Vec& v, const std::vector<RegExp>& at, int each);
    // Four numbers of `type` (F32, F16, BF16) of each of lanes() / 4 addresses, one behind the other,
    // converted.
    void load_fours(quire_type type, const Vec& v, const std::vector<RegExp>& at);
    // int32 lanes in -128..127: the first n stored as bytes. v is changed.
    void store_i8(const RegExp& at, const Vec& v, int n);

    // ---- arithmetic that the tiers spell differently ----
    void zero(const Vec& v);
    void bit_and(const Vec& d, const Vec& a, const Xbyak::Operand& b);
    void bit_or(const Vec& d, const Vec& a, const Xbyak::Operand& b);
    void bit_xor(const Vec& d, const Vec& a, const Xbyak::Operand& b);
    // d = bits ? a : d, bit by bit, on targets with 512 bits.
    void select_bits(const Vec& d, uint32_t bits, const Vec& a);
    void multiply_by_scalar(const Vec& v, const RegExp& at);  // v *= float at `at`
    void add_scalar(const Vec& v, const RegExp& at);          // v += float at `at`
    // The dword at `low` in the lower half of the lanes, that at `high` in the upper; `same`: both addresses
    // are one. Behind hold_upper_half().
    void broadcast_halves(const Vec& v, const RegExp& low, const RegExp& high, bool same);
    void hold_upper_half();
    // x = part + whole, part in 0..1; of vectors step by step, each with a spare register. For -Inf whole is
    // what makes 2^x 0.
    struct Power {
        Vec part, whole;
    };
    std::vector<Power> split_powers(const std::vector<Vec>& x, const std::vector<Vec>& spare);
    // x = p * 2^whole, for p in 1..2; clobbers whole.
    void scale_by_power_of_two(const Vec& x, const Vec& p, const Vec& whole);
    // v = begin <= index < end ? v : otherwise (int32 lanes).
    void keep_in_range(const Vec& v, const Vec& index, const Xbyak::Operand& begin, const Xbyak::Operand& end,
                       const Xbyak::Operand& otherwise);
    // v = change(d, v), which writes d from it, in lanes where v is not `value`.
    void change_unless_equal(const Vec& v, const Xbyak::Operand& value,
                             const std::function<void(const Vec& d, const Vec& v)>& change);
    // A scale of a sum: a sum times Inf could be -Inf, which hides a key, where the elements times Inf are of
    // either sign, and their sum NaN.
    void inf_to_nan(const Vec& v);
    // v = 0 where v is NaN.
    void zero_nan(const Vec& v);
    // d = magnitude < bound ? a : d.
    void select_below(const Vec& d, const Vec& magnitude, float bound, const Vec& a);
    // Rounds f32 lanes to what `type` holds.
    void round_to(quire_type type, const Vec& v);
    // Dword j of v[i] becomes dword i of v[j], for four vectors, in each 128 bits of them.
    void transpose_dwords(const std::vector<Vec>& v);
    // Quarter (ymm: half) j of v[i] becomes quarter i of v[j].
    void transpose_quarters(const std::vector<Vec>& v);
    // Lane j of v[i] becomes lane i of v[j], for lanes() vectors.
    void transpose(const std::vector<Vec>& v);
    // Eight lanes of v: half 0 is the low eight (all of a ymm).
    int halves() const { return lanes() / 8; }
    void store_half(const RegExp& at, const Vec& v, int half);
    void store_quarter(const RegExp& at, const Vec& v);  // the low four lanes

    // ---- 16-bit words, two a lane ----
    // n bytes, the others 0; reads exactly n. n <= vec_bytes(). Or of each half of a zmm, from an address
    // each: 16 or 32.
    void load_raw(const Vec& v, const RegExp& at, int n);
    void load_raw(const Vec& v, const RegExp& low, const RegExp& high, int n);
    // 16 bytes of each address, of at most lanes() / 4; the others 0.
    void load_quarters(const Vec& v, const std::vector<RegExp>& at);
    void broadcast_quarter(const Vec& v, const RegExp& at);
    // Two dwords, in all 64 bits.
    void broadcast_dwords(const Vec& v, const RegExp& first, const RegExp& second);
    // n signed bytes to words, the others 0; n <= 2 * lanes(). Or both halves of a zmm.
    void load_words(const Vec& v, const RegExp& at, int n);
    void load_words(const Vec& v, const RegExp& low, const RegExp& high);
    // Lane i: the words of signed byte i at `first` and at `second`. n <= lanes().
    void load_word_pairs(const Vec& v, const RegExp& first, const RegExp& second, int n);
    // The same bytes side by side, in the lower half.
    void load_byte_pairs(const Vec& v, const RegExp& first, const RegExp& second, int n);
    Xbyak::Xmm half_of(const Vec& v) const;  // the register that holds lanes() 16-bit values
    void words_of_half(const Vec& v) { vpmovsxbw(v, half_of(v)); }  // of its signed bytes
    // int32 lanes: acc += a.low * b.low + a.high * b.high.
    void dot_words(const Vec& acc, const Vec& a, const Xbyak::Operand& b);
    // Words: d = sums of two products each of unsigned bytes of a[i] and signed ones at b[i], all i added up:
    // so small that none saturates.
    void multiply_bytes(const Vec& d, const std::vector<Vec>& a, const RegExp& b);
    // int32 lanes: acc += the four products, on targets with VNNI.
    void dot_bytes(const Vec& acc, const Vec& a, const Xbyak::Operand& b);
    // v[i] = number i at `at`, in every lane.
    void broadcast_each(const Vec* v, int count, const RegExp& at) {
        for (int i = 0; i < count; ++i) broadcast(v[i], ptr[at + i * 4]);
    }
    // The numbers of int32 lanes that are digits of base 256, the lowest first; clobbers them.
    const Vec& sum_of_digits(const Vec* digits, int count);
    // d = the words of int32 lanes that fit 16 bits; clobbers high.
    void join_words(const Xbyak::Xmm& d, const Xbyak::Xmm& low, const Xbyak::Xmm& high);
    // The same, on targets with 512 bits whatever the upper words are; mask: 0xffff in every lane.
    void join_words(const Vec& d, const Vec& low, const Vec& high, const Vec& mask);
    // On targets with 512 bits, as the next two. Bytes {a0 b0 a1 ..} of each 128 bits in both: the lower
    // eight of both in a, the upper ones in b.
    void interleave_bytes(const Vec& a, const Vec& b);
    // Byte j of v[i] becomes byte i of lane j: lanes 4 k .. 4 k + 3 of each 128 bits in v[k].
    void transpose_bytes(const std::vector<Vec>& v);
    // Moves the lower word of every lane up, and `low`, words from 0 on, in its place. (A rotation would do
    // both at once, and on Zen 4 takes the place of a product.)
    void raise_words(const Vec& v, const Vec& low);
    // The same of n <= 2 * lanes() bytes, in two vectors: lane i of `which` is byte pair_byte(which, i).
    void load_word_pairs(const Vec& a, const Vec& b, const RegExp& first, const RegExp& second, int n);
    static int pair_byte(int which, int lane);
    void restore_pairs(const Vec& a, const Vec& b);  // 32-bit lanes to the order of bytes
    // 16 int32 numbers that fit 16 bits, in one or two vectors, as words in the ymm of v[0], or stored. They
    // are changed.
    void words_of(const std::vector<Vec>& v);
    void store_words(const RegExp& at, const std::vector<Vec>& v);
    // Of 2 * lanes() / run floats (run 2, 4 .. lanes()): `even` gets the first, third .. `run` times each,
    // `odd` the others. May read lanes() floats.
    void load_even_odd(const Vec& even, const Vec& odd, const RegExp& at, int run);
    // {e0 o0 e1 ..} in both -> {e0 e1 ..}, {o0 o1 ..}, of runs of `run` lanes (2, 4 .. lanes()).
    void separate(const Vec& even, const Vec& odd, int run);
    // The same, but {e o} of two numbers a time, of zmm and runs of 4, 8, 16: 128 bits of `first` have the
    // first two of a quarter's four, those of `second` the others. Packed to words, they are pairs in order.
    void pair_up(const Vec& first, const Vec& second, int run);
    // {e0 e1 ..}, {o0 o1 ..} -> {e0 o0 e1 ..} in both, of runs of `run` lanes (1; 4 and 8 for zmm).
    void interleave(const Vec& even, const Vec& odd, int run = 1);

    // ---- bfloat16, two a lane, on targets that have its dot products: rounded to nearest even, and numbers
    // below 2^-126 count as 0, whatever MXCSR says ----
    // d = the numbers of low, then those of high.
    void join_bfloats(const Vec& d, const Vec& low, const Vec& high);
    // Lane i of d = number i of low, and of high. d may be low.
    void pair_bfloats(const Vec& d, const Vec& low, const Vec& high);
    // f32 lanes: acc += a.low * b.low + a.high * b.high.
    void dot_bfloats(const Vec& acc, const Vec& a, const Xbyak::Operand& b);

    // ---- across lanes ----
    // Lane i of d is lane i ^ distance (1, 2, 4, with 16 lanes also 8) of s.
    void swap_lanes(const Vec& d, const Vec& s, int distance);
    enum class Fold { sum, max };
    void fold(Fold op, const Vec& v);           // every lane gets the result
    void fold_to_first(Fold op, const Vec& v);  // only the first does: the same result, sooner
    // Four vectors of one kind -> v[0]: lane i of each 128 bits is what `into` makes of those four of v[i].
    // The others are clobbered.
    using FoldInto = std::function<void(const Xbyak::Xmm& to, const Xbyak::Xmm& from)>;
    void fold_quarters(const Xbyak::Xmm* v, const FoldInto& into);
    // d (low four lanes) = {sum a, sum b, sum c, sum e}; clobbers its sources. d may be a.
    void sum_four(const Vec& d, Vec a, Vec b, Vec c, Vec e);
    // v[0] (low lanes): the sums of lane i of each 128 bits of v[0], and behind these four those of v[1]: two
    // vectors of 512 bits, or what add_halves made of them, or one of 256. Clobbers v[1].
    void add_quarters(const std::vector<Vec>& v);
    // The same of two lists, of vectors of 512 bits: those of b in the upper half of a[0]. Clobbers the
    // others. A blend takes any pipe, a shuffle that of a product on Zen 4. Behind hold_upper_half().
    void add_quarters(const std::vector<Vec>& a, const std::vector<Vec>& b);
    // Of 512 bits: a = {its halves added, those of b added}.
    void add_halves(const Vec& a, const Vec& b);
    // The sums of v[0..3] in the low four lanes of v[0], of v[4..7] in those of v[4]; clobbers its sources.
    void sum_eight(const Vec* v);
    // Lane i of d is the sum of the i-th of the eight vectors at `at`, on targets with 256 bits.
    void sum_eight(const Vec& d, const RegExp& at);

protected:
    const Target target_;

private:
    bool is_512() const { return target_.vector_bits == 512; }
    void set_mask(const Xbyak::Opmask& k, int n);
    void load_permuted(const Vec& v, const RegExp& at, const std::vector<uint32_t>& order);
    void hold(const std::vector<uint32_t>& words, int spare);
    // lanes() bytes of each of four rows, four a lane.
    void load_quarters_of_four(const Vec& all, const RowAt& row_at);
    void permute_bytes(const Vec& d, const std::vector<uint32_t>& index, const Vec& a, const Vec& b);
    void permute_bytes(const std::vector<Vec>& list, const std::vector<uint32_t>& index);
    void fold_step(Fold op, const Xbyak::Xmm& v, const Xbyak::Xmm& moved);
    void add_halves(const Vec& v);
    void permute_both(const Vec& a, const Vec& b, const std::vector<uint32_t>& first,
                      const std::vector<uint32_t>& second);
    void sum_quarters(const Xbyak::Xmm* v);
    void round_bits_to_bf16(const Vec& v);
    void gather_halves(const Xbyak::Xmm& x, const RegExp* at, int count, int each);
    void gather_all_halves(const Vec& v, const std::vector<RegExp>& at, int each);
    void split_nibbles(const Vec& low, const Vec& high, int zero);
    Vec of_kind(int index) const;
    Vec take(const Vec& r, const std::string& name);

    bool holds_upper_half_ = false;
    std::vector<std::string> vec_names_, gpr_names_;
    std::map<std::vector<uint32_t>, Label> pool_;
    std::map<std::vector<uint32_t>, Vec> held_;
    std::vector<uint8_t> buffer_;
};

}  // namespace quire::jit
