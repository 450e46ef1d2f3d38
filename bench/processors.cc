// The processors whose pipes are known. Zen 3 and Zen 5: what kernels execute often was measured in loops of
// nothing else, alone and beside FMA, additions and `vpmaddwd` (Zen 3) or `vpshufb` (Zen 5, vectors of 512
// bits); the rest (Zen 3: `vpalignr`, `vpblendvb`, `vinsertps`) has the pipes of what is like it. The others:
// what docs/performance.md found on them; where that says nothing, a µop may take any pipe, so that the bound
// is never too high.
#include <cpuid.h>

#include "bench/pipes.h"

namespace bench {
namespace {

// clang-format off
const Processor kZen3 = {"Zen 3", "zen3", 256, 256, 2, 3, 1, 6, {
    {"v", "0123", nullptr},
    {"vmov", "", nullptr}, {"vmovhps", "", "12"}, {"vmovlps", "", "12"}, {"vmovmsk", "1", nullptr}, {"vzero", "", nullptr},
    {"vmovd", "1", ""}, {"vmovq", "1", ""}, {"vmovdq", "", nullptr},
    {"vbroadcast", "1", ""}, {"vpbroadcast", "1", ""},
    {"vfm", "01", nullptr}, {"vfnm", "01", nullptr}, {"vmul", "01", nullptr}, {"vdiv", "1+1+1", nullptr},
    {"vpsign", "01", nullptr}, {"vblendv", "01", nullptr}, {"vpblendv", "01", nullptr},
    {"vpmadd", "03", nullptr}, {"vpmul", "03", nullptr}, {"vpdp", "03", nullptr},
    {"vadd", "23", nullptr}, {"vsub", "23", nullptr}, {"vmax", "23", nullptr}, {"vmin", "23", nullptr},
    {"vcmp", "23", nullptr}, {"vround", "23", nullptr}, {"vcvt", "23", nullptr},
    {"vcvtph2ps", "23+1", "23"}, {"vcvtps2ph", "23+1", nullptr},
    {"vpunpck", "12", nullptr}, {"vunpck", "12", nullptr}, {"vpshuf", "12", nullptr}, {"vshuf", "12", nullptr},
    {"vpermil", "12", nullptr}, {"vpalign", "12", nullptr}, {"vpack", "12", nullptr},
    {"vpsll", "12", nullptr}, {"vpsrl", "12", nullptr}, {"vpsra", "12", nullptr},
    {"vpmovsx", "12+1", "12"}, {"vpmovzx", "12+1", "12"},
    {"vinsert", "1", nullptr}, {"vinsertps", "12", nullptr}, {"vextract", "1", nullptr}, {"vperm", "1", nullptr},
    {"vpermd", "1", "1+1"}, {"vpermps", "1", "1+1"}, {"vpinsr", "12", nullptr}, {"vptest", "1", nullptr},
}};
const Processor kZen4 = {"Zen 4", "zen4", 256, 256, 2, 3, 1, 6, {
    {"v", "0123", nullptr}, {"vmov", "", nullptr}, {"vzero", "", nullptr},
    {"vbroadcast", "", nullptr}, {"vpbroadcast", "", nullptr}, {"vbroadcastf", "", "012"}, {"vbroadcasti", "", "012"},
    {"vfm", "01", nullptr}, {"vfnm", "01", nullptr}, {"vmul", "01", nullptr}, {"vpmadd", "01", nullptr},
    {"vpmul", "01", nullptr}, {"vpdp", "01", nullptr}, {"vdp", "01", nullptr},
    {"vadd", "23", nullptr}, {"vsub", "23", nullptr}, {"vmax", "23", nullptr}, {"vmin", "23", nullptr},
    {"vcvt", "23", nullptr}, {"vrndscale", "23", nullptr}, {"vreduce", "23+23", nullptr}, {"vscalef", "23+23", nullptr},
    {"vpunpck", "012", nullptr}, {"vunpck", "012", nullptr}, {"vpshuf", "012", nullptr}, {"vshuf", "012", nullptr},
    {"vperm", "012", nullptr}, {"vpack", "012", nullptr}, {"vpmovsx", "12", nullptr}, {"vpmovzx", "12", nullptr},
    {"vpsll", "23", nullptr}, {"vpsrl", "23", nullptr}, {"vpsra", "23", nullptr},
}};
const Processor kZen5 = {"Zen 5", "zen5", 512, 512, 2, 4, 1, 8, {
    {"v", "0123", nullptr}, {"vmov", "", nullptr}, {"vzero", "", nullptr},
    {"vbroadcast", "12", ""}, {"vpbroadcast", "12", ""}, {"vbroadcastf", "12", nullptr}, {"vbroadcasti", "12", nullptr},
    {"vfm", "01", nullptr}, {"vfnm", "01", nullptr}, {"vmul", "01", nullptr}, {"vpmadd", "01", nullptr},
    {"vpmul", "01", nullptr}, {"vpdp", "01", nullptr}, {"vdp", "01", nullptr}, {"vpshld", "01", nullptr},
    {"vadd", "23", nullptr}, {"vsub", "23", nullptr}, {"vmax", "23", nullptr}, {"vmin", "23", nullptr},
    {"vcvt", "23", nullptr}, {"vrndscale", "23", nullptr}, {"vreduce", "23+23", nullptr}, {"vscalef", "23+23", nullptr},
    {"vcvtph2ps", "23+12", nullptr}, {"vcvtps2ph", "23+12", nullptr}, {"vcvtne", "23+12", nullptr},
    {"vpsll", "23", nullptr}, {"vpsrl", "23", nullptr}, {"vpsra", "23", nullptr}, {"vpabs", "03", nullptr},
    {"vpshufb", "12", nullptr}, {"vshuff", "12", nullptr}, {"vshufi", "12", nullptr}, {"vperm", "12", nullptr},
    {"vpermil", "0123", nullptr}, {"vpack", "12", nullptr}, {"vpalign", "12", nullptr},
    {"vpmovsx", "12", nullptr}, {"vpmovzx", "12", nullptr}, {"vinsert", "12", nullptr}, {"vextract", "12", nullptr},
    {"vcmp", "12", nullptr}, {"vpmovd2m", "12", nullptr},
}};
const Processor kIntelNarrow = {"Intel, 256 bits", "", 256, 512, 3, 3, 2, 6, {
    {"v", "012", nullptr}, {"vmov", "", nullptr}, {"vzero", "", nullptr},
    {"vbroadcast", "2", ""}, {"vpbroadcast", "2", ""}, {"vfm", "01", nullptr}, {"vfnm", "01", nullptr}, {"vmul", "01", nullptr},
    {"vpmadd", "01", nullptr}, {"vpmul", "01", nullptr}, {"vpdp", "01", nullptr}, {"vcvt", "01", nullptr}, {"vround", "01", nullptr},
    {"vpsll", "01", nullptr}, {"vpsrl", "01", nullptr}, {"vpsra", "01", nullptr}, {"vperm", "2", nullptr}, {"vpunpck", "12", nullptr},
    {"vpshuf", "12", nullptr}, {"vshuf", "12", nullptr}, {"vpalign", "12", nullptr}, {"vinsert", "2", nullptr}, {"vextract", "2", nullptr},
}};
// Of 512 bits: the two pipes that are left then are 0 and 1 here.
const Processor kIntel = {"Intel with AVX-512", "intel", 512, 512, 2, 3, 1, 6, {
    {"v", "01", nullptr}, {"vmov", "", nullptr}, {"vzero", "", nullptr},
    {"vbroadcast", "1", ""}, {"vpbroadcast", "1", ""},
    {"vpunpck", "1", nullptr}, {"vunpck", "1", nullptr}, {"vpshuf", "1", nullptr}, {"vshuf", "1", nullptr},
    {"vperm", "1", nullptr}, {"vpsll", "0", nullptr}, {"vpsrl", "0", nullptr}, {"vpsra", "0", nullptr},
}, &kIntelNarrow};
// clang-format on

const Processor* const kAll[] = {&kZen3, &kZen4, &kZen5, &kIntel};
const Processor* g_taken = nullptr;

const Processor* this_processor() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return nullptr;
    const bool is_amd = b == signature_AMD_ebx, is_intel = b == signature_INTEL_ebx;
    __get_cpuid(1, &a, &b, &c, &d);
    const unsigned family = (a >> 8 & 15) + (a >> 20 & 255), model = (a >> 4 & 15) + (a >> 12 & 0xf0);
    const bool is_zen4 = (model >= 0x10 && model < 0x20) || model >= 0x60;
    if (is_amd && family == 0x19) return is_zen4 ? &kZen4 : &kZen3;
    if (is_amd && family == 0x1a) return &kZen5;
    if (is_intel && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F)) return &kIntel;
    return nullptr;
}

}  // namespace

const Processor* processor_of_model() { return g_taken ? g_taken : this_processor(); }
bool is_of_this_machine() { return processor_of_model() == this_processor(); }

bool take_pipes_of(const std::string& option) {
    for (const Processor* processor : kAll)
        if (option == processor->option) g_taken = processor;
    return g_taken != nullptr;
}

std::string known_pipes() {
    std::string all;
    for (const Processor* processor : kAll) all += (all.empty() ? "" : ", ") + std::string(processor->option);
    return all;
}

}  // namespace bench
