#include "src/target.h"

#include <cpuid.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace quire {
namespace {

constexpr Target kTargets[] = {
    {"portable", 0, false, false, "plain C++, any x86-64: the definition and the last resort"},
    {"avx2", 256, false, false, "AVX2 + FMA + F16C: every server and desktop since 2013 (Intel), 2015 (AMD)"},
    {"avx2_vnni", 256, true, false, "AVX-VNNI: desktops without AVX-512 (Alder Lake and later)"},
    {"avx512", 512, false, false, "AVX-512 F, BW, DQ, VL: Skylake-X"},
    {"avx512_vnni", 512, true, false, "with 8-bit dot products: Cascade Lake, Ice Lake"},
    {"avx512_vnni_bf16", 512, true, true, "with bfloat16 dot products: Cooper Lake, Zen 4 and later"},
};

struct Features {
    bool avx2 = false, avx_vnni = false, avx512 = false, avx512_vnni = false, avx512_bf16 = false;
};

uint64_t xcr0() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
}

Features detect() {
    Features found;
    uint32_t a, b, c, d;
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
    const uint32_t leaves = a;
    if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        found.avx_vnni = found.avx2 && (a >> 4 & 1);
        found.avx512_bf16 = found.avx512_vnni && (a >> 5 & 1);
    }
    return found;
}

bool machine_has(const Target& target) {
    static const Features found = detect();
    if (!target.jit()) return true;
    if (target.vector_bits == 256) return found.avx2 && (!target.vnni || found.avx_vnni);
    return found.avx512 && (!target.vnni || found.avx512_vnni) && (!target.bf16 || found.avx512_bf16);
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

Status resolve_target(const char* cap, const Target** target) {
    const char* source = "target";
    if (cap == nullptr) {
        cap = std::getenv("QUIRE_TARGET");
        source = "QUIRE_TARGET";
    }
    if (cap == nullptr || *cap == 0) {
        *target = machine_target();
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
