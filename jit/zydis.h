// The decoder of listings. Only zydis.cc knows Zydis, and nothing is linked to it: it is loaded when a
// listing is asked for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace quire::jit {

// "" where a register has no name.
struct RegisterNames {
    std::string vectors[32], general[16];
};

struct Instruction {
    size_t size = 0;
    std::string text;   // Intel syntax
    std::string names;  // of the registers in it, in order
};

class Disassembler {
public:
    Disassembler();
    ~Disassembler();
    // Why there are no instructions; empty where there are.
    const std::string& why_not() const { return why_not_; }
    // The instruction at `bytes`, whose address is `address`. False: none.
    bool decode(const uint8_t* bytes, size_t size, size_t address, const RegisterNames& names,
                Instruction* instruction) const;

private:
    struct Library;
    std::unique_ptr<Library> library_;
    std::string why_not_;
};

}  // namespace quire::jit
