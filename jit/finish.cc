#include "jit/finish.h"

#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

// for d in 0..dim step L, four vectors at a time:
//   x = sums[d ..] * factor; poison[i] += x * 0    (of one alone each would wait for another)
//   output[d ..] = x, as numbers of the type
// poison = all of these, added up
class Finish : public Emitter {
public:
    Finish(const Target& target, quire_type type, int dim) : Emitter(target), type_(type) {
        begin();
        mov(sums_, ptr[args() + offsetof(FinishArgs, sums)]);
        mov(output_, ptr[args() + offsetof(FinishArgs, output)]);
        broadcast(factor_, ptr[args() + offsetof(FinishArgs, factor)]);
        for (const Vec& poison : poison_) zero(poison);
        const int turn = kVecs * lanes(), turns = dim / turn;
        if (turns > 0)
            times(turns, "turns left", [&] {
                for (int i = 0; i < kVecs; ++i) emit_vector(i, lanes());
                add(sums_, turn * 4);
                add(output_, turn * type_bits(type_) / 8);
            });
        const int left = dim % turn;
        for (int i = 0; i * lanes() < left; ++i) emit_vector(i, std::min(lanes(), left - i * lanes()));
        for (size_t i = 1; i < kVecs; ++i) vaddps(poison_[0], poison_[0], poison_[i]);
        fold_to_first(Fold::sum, poison_[0]);
        mov(sums_, ptr[args() + offsetof(FinishArgs, poison)]);
        vmovss(ptr[sums_], Xbyak::Xmm(poison_[0].getIdx()));
        end();
    }

private:
    static constexpr int kVecs = 4;

    void emit_vector(int i, int n) {
        Temp x(*this, "x");
        vmulps(x, factor_, ptr[sums_ + i * vec_bytes()]);
        vfmadd231ps(poison_[size_t(i)], x, splat(0.f));
        store_number(type_, output_ + i * lanes() * type_bits(type_) / 8, x, n);
    }

    const quire_type type_;
    const Gpr sums_ = gpr("sums"), output_ = gpr("output");
    const Vec factor_ = vec("factor");
    const std::vector<Vec> poison_ = vecs("poison", kVecs);
};

}  // namespace

Status generate_finish(const Target& target, quire_type type, int dim, std::vector<uint8_t>* code) {
    return Finish(target, type, dim).finish(code);
}

}  // namespace quire::jit
