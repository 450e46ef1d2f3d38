#include "bench/limits_loops.h"

#include <xbyak/xbyak.h>
#include <xbyak/xbyak_util.h>

#include <algorithm>

namespace bench {
namespace {

using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;
using Xbyak::util::Cpu;

// Latency of a 32-bit multiplication: 3 on every core of AMD since 2017, of Intel since 2008.
constexpr int kChain = 8, kMultiplyCycles = 3;

struct Machine {
    bool fma, zmm, vnni, avx_vnni, avx2;
    static const Machine& get() {
        static const Machine machine = [] {
            const Cpu cpu;  // asks XCR0 as well as CPUID
            return Machine{cpu.has(Cpu::tFMA), cpu.has(Cpu::tAVX512BW),
                           cpu.has(Cpu::tAVX512BW) && cpu.has(Cpu::tAVX512_VNNI), cpu.has(Cpu::tAVX_VNNI),
                           cpu.has(Cpu::tAVX2)};
        }();
        return machine;
    }
    bool has_dot() const { return vnni || (!zmm && avx_vnni); }
};

// rounds x accumulators() independent steps of the loop's instructions.
class Loop : public Xbyak::CodeGenerator {
public:
    static const Loop& get(LimitLoop kind) {
        static const Loop loops[] = {Loop(LimitLoop::fma), Loop(LimitLoop::dot16), Loop(LimitLoop::dot8),
                                     Loop(LimitLoop::cycles)};
        return loops[int(kind)];
    }
    double work() const {
        const double lanes = m_.zmm ? 16 : 8, steps = accumulators();
        switch (kind_) {
            case LimitLoop::fma: return m_.fma ? steps * lanes * 2 : 0;
            case LimitLoop::dot16: return m_.avx2 ? steps * lanes * 4 : 0;
            case LimitLoop::dot8: return m_.avx2 ? steps * lanes * 8 : 0;
            default: return kChain * kMultiplyCycles;
        }
    }
    void run(uint64_t rounds) const { getCode<void (*)(uint64_t)>()(rounds); }

private:
    explicit Loop(LimitLoop kind)
        : CodeGenerator(4096, Xbyak::DontSetProtectRWE), kind_(kind), m_(Machine::get()) {
        Xbyak::Label loop;
        const bool vectors = kind != LimitLoop::cycles && work() > 0;
        if (vectors) clear();
        mov(eax, 3);
        L(loop);
        if (kind == LimitLoop::cycles)
            for (int i = 0; i < kChain; ++i) imul(eax, eax);
        else if (vectors)
            for (int i = 0; i < accumulators(); ++i) step(vector(i));
        sub(rdi, 1);
        jnz(loop);
        if (vectors) vzeroupper();
        ret();
        setProtectModeRE();
    }

    Xmm vector(int i) const { return m_.zmm ? Xmm(Zmm(i)) : Xmm(Ymm(i)); }
    int accumulators() const { return m_.zmm ? 24 : 10; }
    // Behind the accumulators: two operands, two for what comes between.
    Xmm operand(int i) const { return vector(accumulators() + i); }

    void clear() {
        for (int i = 0; i < accumulators() + 4; ++i) {
            if (m_.zmm)
                vpxord(vector(i), vector(i), vector(i));
            else
                vpxor(vector(i), vector(i), vector(i));
        }
    }

    // Without dot products, products are added in pairs first: what an AVX2 kernel has to do.
    void step(const Xmm& sum) {
        const Xmm a = operand(0), b = operand(1), between = operand(2 + sum.getIdx() % 2);
        const auto encoding = m_.zmm ? Xbyak::EvexEncoding : Xbyak::VexEncoding;
        switch (kind_) {
            case LimitLoop::fma: vfmadd231ps(sum, a, b); break;
            case LimitLoop::dot16:
                if (m_.has_dot()) return vpdpwssd(sum, a, b, encoding);
                vpmaddwd(between, a, b);
                vpaddd(sum, sum, between);
                break;
            default:
                if (m_.has_dot()) return vpdpbusd(sum, a, b, encoding);
                vpmaddubsw(between, a, b);
                vpmaddwd(between, between, b);
                vpaddd(sum, sum, between);
        }
    }

    const LimitLoop kind_;
    const Machine m_;
};

}  // namespace

double loop_work(LimitLoop loop) { return Loop::get(loop).work(); }
void run_loop(LimitLoop loop, uint64_t rounds) { Loop::get(loop).run(rounds); }

}  // namespace bench
