#include "jit/scale_row.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

// for d in 0..dim step L, four vectors at a time:
//   x = from[d ..] * factor; poison[i] += x * 0    (of one alone each would wait for another)
//   to[d ..] = x, as numbers of the type
// poison = all of these, added up
class ScaleRow : public Emitter {
public:
    explicit ScaleRow(const ScaleRowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        mov(from_, ptr[args() + offsetof(ScaleRowArgs, from)]);
        mov(to_, ptr[args() + offsetof(ScaleRowArgs, to)]);
        broadcast(factor_, ptr[args() + offsetof(ScaleRowArgs, factor)]);
        for (const Vec& poison : poison_) zero(poison);
        const int turn = kVecs * lanes(), turns = key.dim / turn, left = key.dim % turn;
        if (turns > 0)
            times(turns, "turns left", [&] {
                for (int i = 0; i < kVecs; ++i) emit_vector(i, lanes());
                add(from_, turn * size_of(key_.from));
                add(to_, turn * size_of(key_.to));
            });
        for (int i = 0; i * lanes() < left; ++i) emit_vector(i, std::min(lanes(), left - i * lanes()));
        for (size_t i = 1; i < kVecs; ++i) vaddps(poison_[0], poison_[0], poison_[i]);
        fold_to_first(Fold::sum, poison_[0]);
        mov(to_, ptr[args() + offsetof(ScaleRowArgs, poison)]);
        vmovss(ptr[to_], Xbyak::Xmm(poison_[0].getIdx()));
        end();
    }

private:
    static constexpr int kVecs = 4;
    static int size_of(quire_type type) { return type_bits(type) / 8; }

    void emit_vector(int i, int n) {
        Temp x(*this, "x");
        load_number(key_.from, x, from_ + i * lanes() * size_of(key_.from), n);
        vmulps(x, x, factor_);
        vfmadd231ps(poison_[size_t(i)], x, splat(0.f));
        store_number(key_.to, to_ + i * lanes() * size_of(key_.to), x, n);
    }

    const ScaleRowKey key_;
    const Gpr from_ = gpr("from"), to_ = gpr("to");
    const Vec factor_ = vec("factor");
    const std::vector<Vec> poison_ = vecs("poison", kVecs);
};

}  // namespace

Status generate_scale_row(const ScaleRowKey& key, std::vector<uint8_t>* code) {
    return ScaleRow(key).finish(code);
}

}  // namespace quire::jit
