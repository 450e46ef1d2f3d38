#include "jit/listing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "jit/zydis.h"

namespace quire::jit {
namespace {

constexpr size_t kRow = 16;  // bytes a line where there are no instructions

std::string hex(const uint8_t* bytes, size_t size) {
    std::string text;
    char digits[4];
    for (size_t i = 0; i < size; ++i) {
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

class Writer {
public:
    Writer(const uint8_t* bytes, size_t size, const Notes& notes)
        : bytes_(bytes), size_(size), notes_(notes) {}

    std::string write(const std::string& name) {
        text_ = "; " + name + ", " + std::to_string(size_) + " bytes\n";
        if (!disassembler_.why_not().empty())
            text_ += "; bytes only: " + disassembler_.why_not() +
                     "; try: objdump -D -b binary -m i386:x86-64 -M intel " + name + ".bin\n";
        for (size_t at = 0; at < size_;) {
            take_notes(at);
            at += data_ ? write_data(at) : write_instruction(at);
        }
        return text_;
    }

private:
    // Those up to `at`.
    void take_notes(size_t at) {
        for (; next_ < notes_.size() && notes_[next_].offset <= at; ++next_) {
            const Note& note = notes_[next_];
            switch (note.kind) {
                case Note::stage: text_ += "; ---- " + note.text + "\n"; break;
                case Note::data:
                    text_ += "; ---- constants\n";
                    data_ = true;
                    break;
                case Note::vector_register:
                    names_.vectors[note.index] = note.text;
                    write_name("v", note);
                    break;
                case Note::general_register:
                    names_.general[note.index] = note.text;
                    write_name("r", note);
                    break;
            }
        }
    }
    // Where instructions have no operands to show the names at.
    void write_name(const char* kind, const Note& note) {
        if (disassembler_.why_not().empty() || note.text.empty()) return;
        text_ += std::string("; ") + kind + std::to_string(note.index) + " = " + note.text + "\n";
    }

    size_t write_instruction(size_t at) {
        Instruction found;
        if (!disassembler_.decode(bytes_ + at, size_ - at, at, names_, &found)) return write_data(at);
        write_line(at, found.size, found.text, found.names);
        return found.size;
    }

    // Up to the next note.
    size_t write_data(size_t at) {
        size_t size = std::min(kRow, size_ - at);
        if (next_ < notes_.size()) size = std::min(size, notes_[next_].offset - at);
        write_line(at, size, "", "");
        return size;
    }

    void write_line(size_t at, size_t size, const std::string& instruction, const std::string& names) {
        char line[256];
        if (instruction.empty())
            std::snprintf(line, sizeof line, "%6zx  %s", at, hex(bytes_ + at, size).c_str());
        else
            std::snprintf(line, sizeof line, names.empty() ? "%6zx  %-24s %s" : "%6zx  %-24s %-60s ; %s", at,
                          hex(bytes_ + at, size).c_str(), instruction.c_str(), names.c_str());
        text_ += std::string(line) + "\n";
    }

    const uint8_t* const bytes_;
    const size_t size_;
    const Notes& notes_;
    Disassembler disassembler_;
    RegisterNames names_;
    size_t next_ = 0;
    bool data_ = false;
    std::string text_;
};

// Under another name first: two processes may write the same kernel.
Status write_file(const std::string& directory, const std::string& name, const void* data, size_t size) {
    const std::string path = directory + "/" + name, part = path + "." + std::to_string(getpid()) + ".part";
    const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = file >= 0;
    const char* at = static_cast<const char*>(data);
    while (good && size > 0) {
        const ssize_t n = write(file, at, size);
        if (n < 0 && errno == EINTR) continue;
        good = n > 0;
        at += n > 0 ? n : 0;
        size -= n > 0 ? size_t(n) : 0;
    }
    if (file >= 0) good = close(file) == 0 && good;
    good = good && rename(part.c_str(), path.c_str()) == 0;
    if (good) return {};
    const int reason = errno;
    unlink(part.c_str());
    return unsupported("can't write to %s: %s", directory.c_str(), std::strerror(reason));
}

}  // namespace

std::string listing(const std::string& name, const uint8_t* bytes, size_t size, const Notes& notes) {
    return Writer(bytes, size, notes).write(name);
}

Status write_listing(const std::string& directory, const Code& code, const Notes& notes) {
    const auto* bytes = static_cast<const uint8_t*>(code.memory.entry());
    const std::string text = listing(code.name, bytes, code.code_size, notes);
    QUIRE_TRY(write_file(directory, code.name + ".bin", bytes, code.code_size));
    return write_file(directory, code.name + ".lst", text.data(), text.size());
}

}  // namespace quire::jit
