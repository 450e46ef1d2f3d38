#include "src/target.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace quire {
namespace {

constexpr Target kTargets[] = {
    {"portable", 0, false, false, false, false, "plain C++, any x86-64: the definition and the last resort"},
    {"avx2", 256, false, false, false, false,
     "AVX2 + FMA + F16C: every server and desktop since 2013 (Intel), 2015 (AMD)"},
    {"avx2_vnni", 256, true, false, false, false,
     "AVX-VNNI: desktops without AVX-512 (Alder Lake and later)"},
    {"avx512", 512, false, false, false, false, "AVX-512 F, BW, DQ, VL: Skylake-X"},
    {"avx512_vnni", 512, true, false, false, false, "with 8-bit dot products: Cascade Lake"},
    {"avx512_vnni_vbmi", 512, true, true, false, false, "with permutations of bytes: Ice Lake and later"},
    {"avx512_vnni_bf16", 512, true, true, true, false, "with bfloat16 dot products: Zen 4 and later"},
    {"avx512_vnni_bf16_amx", 512, true, true, true, true,
     "with tiles of bfloat16 and of bytes, and VBMI2: Sapphire Rapids and later"},
};

struct Features {
    bool avx2 = false, avx_vnni = false, avx512 = false, avx512_vnni = false, avx512_vbmi = false,
         avx512_bf16 = false, amx_bf16 = false;
    bool intel = false;
};

uint64_t xcr0() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
}

Features detect() {
    Features found;
    uint32_t a, b, c, d;
    found.intel = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
                  d == signature_INTEL_edx;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
    const bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx) return found;
    // The operating system must save what the instructions use: XMM+YMM, and for AVX-512 k and zmm too.
    const uint64_t saved = xcr0();
    if ((saved & 0x6) != 0x6) return found;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    found.avx2 = fma && f16c && (b >> 5 & 1);
    const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
    found.avx512 = found.avx2 && f && dq && bw && vl && (saved & 0xe6) == 0xe6;
    found.avx512_vnni = found.avx512 && (c >> 11 & 1);
    found.avx512_vbmi = found.avx512_vnni && (c >> 1 & 1);
    const bool tiles = (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1) && (saved & 0x60000) == 0x60000,
               vbmi2 = c >> 6 & 1;
    const uint32_t leaves = a;
    if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        found.avx_vnni = found.avx2 && (a >> 4 & 1);
        found.avx512_bf16 = found.avx512_vbmi && (a >> 5 & 1);
        found.amx_bf16 = found.avx512_bf16 && vbmi2 && tiles;
    }
    return found;
}

const Features& features() {
    static const Features found = detect();
    return found;
}

// Linux keeps the tiles of a process that has asked; not of one with a signal stack too small for them.
bool may_use_tiles() {
    constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool granted = features().amx_bf16 && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
    return granted;
}

bool machine_has(const Target& target) {
    const Features& found = features();
    if (target.amx) return may_use_tiles();
    if (!target.jit()) return true;
    if (target.vector_bits == 256) return found.avx2 && (!target.vnni || found.avx_vnni);
    return found.avx512 && (!target.vnni || found.avx512_vnni) && (!target.vbmi || found.avx512_vbmi) &&
           (!target.bf16 || found.avx512_bf16);
}

const Target* best_up_to(const Target* cap) {
    const Target* best = kTargets;
    for (const Target& target : kTargets) {
        if (&target > cap) break;
        if (machine_has(target)) best = &target;
    }
    return best;
}

}  // namespace

const Target* target_table(int* count) {
    *count = int(std::size(kTargets));
    return kTargets;
}

const Target* find_target(const std::string& name) {
    for (const Target& target : kTargets)
        if (name == target.name) return &target;
    return nullptr;
}

bool has_large_l1() {
    static const bool large = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;
    return large;
}
namespace {
std::atomic<bool>& large_l2() {
    static std::atomic<bool> large(sysconf(_SC_LEVEL2_CACHE_SIZE) >= 1 << 20);
    return large;
}
}  // namespace
bool has_large_l2() { return large_l2().load(std::memory_order_relaxed); }
void assume_large_l2(bool large) { large_l2() = large; }

const Target* machine_target() { return best_up_to(std::end(kTargets) - 1); }

const Target* quickest_target() {
    const Target* best = machine_target();
    return features().intel && best->bf16 && !best->amx ? best_up_to(best - 1) : best;
}

const Target& without_tiles(const Target& target) {
    return target.amx ? *find_target("avx512_vnni_vbmi") : target;
}

Status resolve_target(const char* cap, const Target** target) {
    const char* source = "target";
    if (cap == nullptr) {
        cap = std::getenv("QUIRE_TARGET");
        source = "QUIRE_TARGET";
    }
    if (cap == nullptr || *cap == 0) {
        *target = quickest_target();
        return {};
    }
    const Target* wanted = find_target(cap);
    if (wanted == nullptr) {
        std::string names;
        for (const Target& row : kTargets) names += std::string(names.empty() ? "" : ", ") + row.name;
        return invalid("%s is \"%s\": must be one of %s", source, cap, names.c_str());
    }
    *target = best_up_to(wanted);
    return {};
}

}  // namespace quire
