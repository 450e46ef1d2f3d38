#include "tests/support/trampoline.h"

#include <xbyak/xbyak.h>

#include <cstddef>
#include <string>

#include "src/target.h"

namespace quire::test {
namespace {

struct State {
    uint64_t kept_in[6], kept_out[6];  // rbx, rbp, r12, r13, r14, r15
    uint32_t mxcsr_in, mxcsr_out;
    uint64_t flags_out;
    uint8_t uppers[16][16];  // bits 128..255 of ymm0-15 after the call
};

using Enter = void (*)(const void* function, const void* args, State* state);

class Trampoline : public Xbyak::CodeGenerator {
public:
    Trampoline(bool wide, Entry entry) {
        using namespace Xbyak::util;
        const Xbyak::Reg64 kept[] = {rbx, rbp, r12, r13, r14, r15};
        for (const Xbyak::Reg64& r : kept) push(r);
        sub(rsp, 24);  // [rsp]: state, [rsp + 8]: the caller's MXCSR; rsp is now 16-byte aligned
        mov(ptr[rsp], rdx);
        stmxcsr(dword[rsp + 8]);
        ldmxcsr(dword[rdx + offsetof(State, mxcsr_in)]);
        for (int i = 0; i < 6; ++i) mov(kept[i], ptr[rdx + offsetof(State, kept_in) + 8 * i]);
        fill_vectors(wide, entry);
        mov(rax, rdi);
        mov(rdi, rsi);
        mov(rcx, uint64_t(0xfedcba9876543210));
        for (const Xbyak::Reg64& r : {rdx, rsi, r8, r9, r10, r11}) lea(r, ptr[rcx + r.getIdx()]);
        call(rax);
        mov(rdx, ptr[rsp]);
        for (int i = 0; i < 6; ++i) mov(ptr[rdx + offsetof(State, kept_out) + 8 * i], kept[i]);
        stmxcsr(dword[rdx + offsetof(State, mxcsr_out)]);
        pushfq();
        pop(rax);
        mov(ptr[rdx + offsetof(State, flags_out)], rax);
        for (int i = 0; i < 16; ++i)
            vextractf128(ptr[rdx + offsetof(State, uppers) + 16 * i], Xbyak::Ymm(i), 1);
        vzeroupper();
        cld();
        ldmxcsr(dword[rsp + 8]);
        add(rsp, 24);
        for (int i = 5; i >= 0; --i) pop(kept[i]);
        ret();
    }

private:
    void fill_vectors(bool wide, Entry entry) {
        using namespace Xbyak::util;
        for (int i = 0; i < (wide ? 32 : 16); ++i) {
            if (wide) {
                const Xbyak::Zmm z(i);
                entry == Entry::nan ? vpternlogd(z, z, z, 0xff) : vpxord(z, z, z);
            } else {
                const Xbyak::Ymm y(i);
                entry == Entry::nan ? vpcmpeqd(y, y, y) : vpxor(y, y, y);
            }
        }
        for (int i = 0; wide && i < 8; ++i) {
            const Xbyak::Opmask k(i);
            entry == Entry::nan ? kxnorq(k, k, k) : kxorq(k, k, k);
        }
    }
};

Enter trampoline(Entry entry) {
    const bool wide = machine_target()->vector_bits == 512;
    static const Trampoline nan(wide, Entry::nan), zero(wide, Entry::zero);
    return (entry == Entry::nan ? nan : zero).getCode<Enter>();
}

}  // namespace

testing::AssertionResult poisoned_call(const void* function, const void* args, Entry entry) {
    constexpr uint32_t kStatusFlags = 0x3f;  // sticky: any arithmetic may set them
    constexpr uint64_t kDirection = 1 << 10;
    State state = {};
    for (int i = 0; i < 6; ++i) state.kept_in[i] = 0x1111111111111111 * uint64_t(i + 3);
    state.mxcsr_in = 0x1f80;
    trampoline(entry)(function, args, &state);

    std::string broken;
    const char* names[] = {"rbx", "rbp", "r12", "r13", "r14", "r15"};
    for (int i = 0; i < 6; ++i)
        if (state.kept_out[i] != state.kept_in[i]) broken += std::string(" ") + names[i];
    if ((state.mxcsr_out & ~kStatusFlags) != state.mxcsr_in) broken += " MXCSR";
    if (state.flags_out & kDirection) broken += " direction flag";
    for (int i = 0; i < 16; ++i)
        for (uint8_t byte : state.uppers[i])
            if (byte != 0) {
                broken += " upper half of ymm" + std::to_string(i);
                break;
            }
    if (broken.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "not kept:" << broken;
}

}  // namespace quire::test
