#include "tests/code_check.h"

#ifdef QUIRE_HAVE_ZYDIS
#include <Zydis/Zydis.h>

#include <cstdio>
#include <map>
#include <set>
#endif

namespace quire::test {

#ifdef QUIRE_HAVE_ZYDIS
namespace {

// Names of Zydis' instruction sets, by their beginning. Legacy SSE is in none: mixed with VEX code it is
// slow. PREFETCH_NOP: prefetchw, which does nothing on 64-bit processors that do not know it.
const char* const kAnyX86[] = {"I86",  "I186",    "I386",     "I486REAL",     "PENTIUMREAL", "PPRO",
                               "CMOV", "FAT_NOP", "LONGMODE", "SSE_PREFETCH", "PREFETCH_NOP"};
const char* const kAvx2[] = {"AVX", "AVX2", "AVX2GATHER", "FMA", "F16C"};
const char* const kAvx512[] = {"AVX512F_", "AVX512BW_",
                               "AVX512DQ_"};  // with VL, which has no name of its own

bool begins_with(const std::string& text, const std::string& begin) { return text.rfind(begin, 0) == 0; }

bool target_has(const Target& target, const std::string& isa) {
    for (const char* name : kAnyX86)
        if (isa == name) return true;
    for (const char* name : kAvx2)
        if (isa == name) return true;
    const bool wide = target.vector_bits == 512;
    for (const char* name : kAvx512)
        if (wide && begins_with(isa, name)) return true;
    if (target.vnni && (wide ? begins_with(isa, "AVX512_VNNI_") : isa == "AVX_VNNI")) return true;
    if (target.amx && (isa == "AMX_TILE" || isa == "AMX_BF16" || isa == "AMX_INT8")) return true;
    if (target.vbmi && begins_with(isa, "AVX512_VBMI_")) return true;
    if (target.amx && begins_with(isa, "AVX512_VBMI2_")) return true;
    return target.bf16 && begins_with(isa, "AVX512_BF16_");
}

// Moves that fault on an address that is not a multiple of the vector. Tensors may be unaligned.
bool needs_alignment(ZydisMnemonic mnemonic) {
    switch (mnemonic) {
        case ZYDIS_MNEMONIC_VMOVAPS:
        case ZYDIS_MNEMONIC_VMOVAPD:
        case ZYDIS_MNEMONIC_VMOVDQA:
        case ZYDIS_MNEMONIC_VMOVDQA32:
        case ZYDIS_MNEMONIC_VMOVDQA64:
        case ZYDIS_MNEMONIC_VMOVNTPS:
        case ZYDIS_MNEMONIC_VMOVNTPD:
        case ZYDIS_MNEMONIC_VMOVNTDQ:
        case ZYDIS_MNEMONIC_VMOVNTDQA: return true;
        default: return false;
    }
}

class Checker {
public:
    Checker(const Target& target, const std::vector<uint8_t>& bytes) : target_(target), bytes_(bytes) {
        ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
        ZydisFormatterInit(&formatter_, ZYDIS_FORMATTER_STYLE_INTEL);
    }

    std::string check() {
        size_t at = 0;
        bool returned = false;
        while (!returned) {
            if (at >= bytes_.size()) return "no ret before the end";
            if (!decode(at)) return where(at) + "not an instruction";
            starts_.insert(at);
            const std::string wrong = check_instruction(at);
            if (!wrong.empty()) return where(at) + text(at) + ": " + wrong;
            returned = instruction_.mnemonic == ZYDIS_MNEMONIC_RET;
            at += instruction_.length;
        }
        return check_after(at);
    }

private:
    bool decode(size_t at) {
        return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes_.data() + at, bytes_.size() - at,
                                                   &instruction_, operands_));
    }

    std::string check_instruction(size_t at) {
        const std::string isa = ZydisISASetGetString(instruction_.meta.isa_set);
        if (!target_has(target_, isa)) return "is of " + isa;
        if (target_.vector_bits < 512 && instruction_.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
            return "has an EVEX encoding";
        switch (instruction_.meta.category) {
            case ZYDIS_CATEGORY_CALL: return "a call";
            case ZYDIS_CATEGORY_INTERRUPT:
            case ZYDIS_CATEGORY_SYSCALL:
            case ZYDIS_CATEGORY_SYSTEM:
            case ZYDIS_CATEGORY_IO: return "no business of a kernel";
            default: break;
        }
        const bool branch = instruction_.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE &&
                            instruction_.mnemonic != ZYDIS_MNEMONIC_RET;
        for (int i = 0; i < instruction_.operand_count_visible; ++i) {
            const std::string wrong = check_operand(at, operands_[i], branch);
            if (!wrong.empty()) return wrong;
        }
        return "";
    }

    std::string check_operand(size_t at, const ZydisDecodedOperand& operand, bool branch) {
        if (branch) {
            if (operand.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !operand.imm.is_relative)
                return "goes to an address of its own";
            branches_[at] = int64_t(at) + instruction_.length + operand.imm.value.s;
            return "";
        }
        if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && instruction_.raw.imm[0].size == 64) {
            const uint64_t value = operand.imm.value.u;
            if ((value & (value + 1)) != 0) return "64 bits that are no mask: an address?";
        }
        if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) return "";
        if (operand.mem.base == ZYDIS_REGISTER_RIP) {
            const int64_t address = int64_t(at) + instruction_.length + operand.mem.disp.value;
            constants_[at] = {address, address + operand.size / 8};
            return "";
        }
        if (operand.mem.base == ZYDIS_REGISTER_NONE) return "an absolute address";
        if (operand.mem.segment == ZYDIS_REGISTER_FS || operand.mem.segment == ZYDIS_REGISTER_GS)
            return "an address in a segment";
        return needs_alignment(instruction_.mnemonic) ? "needs an aligned address" : "";
    }

    // `end` is after the ret: what follows, and what the code refers to.
    std::string check_after(size_t end) {
        const size_t pool = (end + 63) / 64 * 64;
        if (pool > bytes_.size())
            return "ends at " + std::to_string(bytes_.size()) + ", not at a multiple of 64";
        if ((bytes_.size() - pool) % size_t(target_.vector_bits / 8) != 0)
            return "a pool of " + std::to_string(bytes_.size() - pool) + " bytes, not of whole vectors";
        for (size_t at = end; at < pool; at += instruction_.length)
            if (!decode(at) || instruction_.mnemonic != ZYDIS_MNEMONIC_NOP)
                return where(at) + "no nop after the ret";
        for (const auto& [at, to] : branches_)
            if (to < 0 || starts_.count(size_t(to)) == 0)
                return where(at) + text(at) + ": goes to " + std::to_string(to) +
                       ", where no instruction begins";
        for (const auto& [at, range] : constants_)
            if (range.first < int64_t(pool) || range.second > int64_t(bytes_.size()))
                return where(at) + text(at) + ": reads " + std::to_string(range.first) + ", outside the pool";
        return "";
    }

    static std::string where(size_t at) { return "at " + std::to_string(at) + ": "; }
    std::string text(size_t at) {
        char buffer[128] = "?";
        if (decode(at))
            ZydisFormatterFormatInstruction(&formatter_, &instruction_, operands_,
                                            instruction_.operand_count_visible, buffer, sizeof buffer, at,
                                            nullptr);
        return buffer;
    }

    const Target& target_;
    const std::vector<uint8_t>& bytes_;
    ZydisDecoder decoder_;
    ZydisFormatter formatter_;
    ZydisDecodedInstruction instruction_;
    ZydisDecodedOperand operands_[ZYDIS_MAX_OPERAND_COUNT];
    std::set<size_t> starts_;
    std::map<size_t, int64_t> branches_;                       // from, to
    std::map<size_t, std::pair<int64_t, int64_t>> constants_;  // from, bytes read
};

}  // namespace

bool can_decode() { return true; }
std::string check_code(const Target& target, const std::vector<uint8_t>& bytes) {
    return Checker(target, bytes).check();
}

#else

bool can_decode() { return false; }
std::string check_code(const Target&, const std::vector<uint8_t>&) { return ""; }

#endif

}  // namespace quire::test
