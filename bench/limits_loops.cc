#include "bench/limits_loops.h"

#include <xbyak/xbyak.h>
#include <xbyak/xbyak_util.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

namespace bench {
namespace {

using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;
using Xbyak::util::Cpu;

// Latency of a 32-bit multiplication: 3 on every core of AMD since 2017, of Intel since 2008.
constexpr int kChain = 8, kMultiplyCycles = 3;

struct Machine {
    bool fma, zmm, vnni, avx_vnni, bf16, amx, avx2;
    static Machine of(const std::string& target) {
        static const Cpu cpu;  // asks XCR0 as well as CPUID
        const auto named = [&](const char* part) {
            return target.empty() || target.find(part) != std::string::npos;
        };
        Machine m{};
        m.fma = cpu.has(Cpu::tFMA), m.avx2 = cpu.has(Cpu::tAVX2);
        m.zmm = cpu.has(Cpu::tAVX512BW) && named("avx512");
        m.vnni = m.zmm && cpu.has(Cpu::tAVX512_VNNI) && named("vnni");
        m.avx_vnni = cpu.has(Cpu::tAVX_VNNI) && named("vnni");
        m.bf16 = m.zmm && cpu.has(Cpu::tAVX512_BF16) && named("bf16");
        // Where quire has such a target, it has asked Linux for the tiles.
        m.amx = cpu.has(Cpu::tAMX_BF16) && !target.empty() && named("amx");
        return m;
    }
    bool has_dot() const { return vnni || (!zmm && avx_vnni); }
};

// rounds x accumulators() independent steps of the loop's instructions.
class Loop : public Xbyak::CodeGenerator {
public:
    Loop(LimitLoop kind, const std::string& target)
        : CodeGenerator(4096, Xbyak::DontSetProtectRWE), kind_(kind), m_(Machine::of(target)) {
        Xbyak::Label loop;
        const bool vectors = kind != LimitLoop::cycles && work() > 0;
        Xbyak::Label tiles;
        if (vectors) clear();
        if (by_tiles()) ldtilecfg(ptr[rip + tiles]);
        mov(eax, 3);
        L(loop);
        if (kind == LimitLoop::cycles)
            for (int i = 0; i < kChain; ++i) imul(eax, eax);
        else if (vectors)
            for (int i = 0; i < accumulators(); ++i) step(vector(i));
        sub(rdi, 1);
        jnz(loop);
        if (by_tiles()) tilerelease();
        if (vectors) vzeroupper();
        ret();
        if (by_tiles()) {
            align(64);
            L(tiles);
            for (uint8_t part : full_tiles()) db(part);
        }
        setProtectModeRE();
    }
    double work() const {
        const double lanes = m_.zmm ? 16 : 8, steps = accumulators();
        switch (kind_) {
            case LimitLoop::fma: return m_.fma ? steps * lanes * 2 : 0;
            case LimitLoop::dot16: return m_.avx2 ? steps * lanes * 4 : 0;
            case LimitLoop::dot8: return m_.avx2 ? steps * lanes * 8 : 0;
            case LimitLoop::bf16:
                if (by_tiles()) return steps * kTileRows * kTileRows * 2 * kTileRows * 2;
                return m_.bf16 ? steps * lanes * 4 : 0;
            default: return kChain * kMultiplyCycles;
        }
    }

private:
    static constexpr int kTileRows = 16, kTiles = 8;
    bool by_tiles() const { return kind_ == LimitLoop::bf16 && m_.amx; }
    // What ldtilecfg takes for eight tiles of 16 rows of 64 bytes.
    static std::array<uint8_t, 64> full_tiles() {
        std::array<uint8_t, 64> config = {1};
        for (size_t i = 0; i < kTiles; ++i) config[16 + 2 * i] = 64, config[48 + i] = kTileRows;
        return config;
    }

    Xmm vector(int i) const { return m_.zmm ? Xmm(Zmm(i)) : Xmm(Ymm(i)); }
    // Eight would do for two pipes and four cycles, but Zen 5 comes to 96 % of them with ten.
    int accumulators() const { return m_.zmm ? 24 : 12; }
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
            case LimitLoop::bf16:
                if (by_tiles()) return tdpbf16ps(Xbyak::Tmm(sum.getIdx() % 6), Xbyak::Tmm(6), Xbyak::Tmm(7));
                vdpbf16ps(sum, a, b);
                break;
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

LimitCode limit_code(LimitLoop loop, const std::string& target) {
    static std::map<std::pair<LimitLoop, std::string>, std::unique_ptr<Loop>> loops;
    std::unique_ptr<Loop>& code = loops[{loop, target}];
    if (!code) code = std::make_unique<Loop>(loop, target);
    return {code->work(), code->getCode<void (*)(uint64_t)>()};
}

}  // namespace bench
