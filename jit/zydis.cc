#include "jit/zydis.h"

#if __has_include(<Zydis/Disassembler.h>)  // new in 4.0, as are the functions below in this form
#include <Zydis/Zydis.h>
#include <dlfcn.h>
#define QUIRE_KNOWS_ZYDIS
#endif

namespace quire::jit {

#ifdef QUIRE_KNOWS_ZYDIS

// Of the version that the header is of: another one may have other structs.
struct Disassembler::Library {
    void* handle;
    decltype(&ZydisDecoderInit) decoder_init = nullptr;
    decltype(&ZydisDecoderDecodeFull) decode_full = nullptr;
    decltype(&ZydisFormatterInit) formatter_init = nullptr;
    decltype(&ZydisFormatterFormatInstruction) format = nullptr;
    decltype(&ZydisRegisterGetClass) class_of = nullptr;
    decltype(&ZydisRegisterGetId) id_of = nullptr;
    ZydisDecoder decoder{};
    ZydisFormatter formatter{};

    static std::string file() {
        return "libZydis.so." + std::to_string(ZYDIS_VERSION_MAJOR(ZYDIS_VERSION)) + "." +
               std::to_string(ZYDIS_VERSION_MINOR(ZYDIS_VERSION));
    }
    Library() : handle(dlopen(file().c_str(), RTLD_NOW | RTLD_LOCAL)) {}
    ~Library() {
        if (handle != nullptr) dlclose(handle);
    }
    Library(const Library&) = delete;

    template <typename Function>
    bool find(const char* name, Function* function) const {
        *function = reinterpret_cast<Function>(dlsym(handle, name));
        return *function != nullptr;
    }
    bool ready() {
        return handle != nullptr && find("ZydisDecoderInit", &decoder_init) &&
               find("ZydisDecoderDecodeFull", &decode_full) && find("ZydisFormatterInit", &formatter_init) &&
               find("ZydisFormatterFormatInstruction", &format) && find("ZydisRegisterGetClass", &class_of) &&
               find("ZydisRegisterGetId", &id_of) &&
               ZYAN_SUCCESS(decoder_init(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) &&
               ZYAN_SUCCESS(formatter_init(&formatter, ZYDIS_FORMATTER_STYLE_INTEL));
    }

    void add_name(ZydisRegister reg, const RegisterNames& names, std::string* text) const {
        const int id = id_of(reg);
        const std::string* name = nullptr;
        switch (class_of(reg)) {
            case ZYDIS_REGCLASS_XMM:
            case ZYDIS_REGCLASS_YMM:
            case ZYDIS_REGCLASS_ZMM: name = &names.vectors[id]; break;
            case ZYDIS_REGCLASS_GPR32:
            case ZYDIS_REGCLASS_GPR64: name = &names.general[id]; break;
            default: break;
        }
        if (name != nullptr && !name->empty()) *text += (text->empty() ? "" : ", ") + *name;
    }
};

Disassembler::Disassembler() : library_(std::make_unique<Library>()) {
    if (!library_->ready()) why_not_ = Library::file() + " can't be loaded";
}

bool Disassembler::decode(const uint8_t* bytes, size_t size, size_t address, const RegisterNames& names,
                          Instruction* instruction) const {
    const Library& z = *library_;
    ZydisDecodedInstruction decoded;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    char text[128];
    if (!why_not_.empty() || !ZYAN_SUCCESS(z.decode_full(&z.decoder, bytes, size, &decoded, operands)) ||
        !ZYAN_SUCCESS(z.format(&z.formatter, &decoded, operands, decoded.operand_count_visible, text,
                               sizeof text, address, nullptr)))
        return false;
    *instruction = {decoded.length, text, ""};
    for (int i = 0; i < decoded.operand_count_visible; ++i) {
        const ZydisDecodedOperand& operand = operands[i];
        if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER)
            z.add_name(operand.reg.value, names, &instruction->names);
        if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
            z.add_name(operand.mem.base, names, &instruction->names);
            z.add_name(operand.mem.index, names, &instruction->names);
        }
    }
    return true;
}

#else

struct Disassembler::Library {};
Disassembler::Disassembler() : why_not_("this library was compiled without Zydis 4") {}
bool Disassembler::decode(const uint8_t*, size_t, size_t, const RegisterNames&, Instruction*) const {
    return false;
}

#endif

Disassembler::~Disassembler() = default;

}  // namespace quire::jit
