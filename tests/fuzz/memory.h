// Memory for the tensors and structs of one call, each between two pages that no access survives: generated
// code is not instrumented, and these pages are what catches it. Mappings are kept from call to call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::fuzz {

enum class Flush { end, begin };  // which of the two pages the data touches

class Memory {
public:
    static constexpr size_t kMost = size_t(1) << 20;  // bytes of one piece

    // A piece of that many bytes (0: an address where nothing may be touched).
    uint8_t* take(size_t bytes, Flush flush);
    // All pieces are given back.
    void reset() { used_ = 0; }

    // Remembers what all pieces, and the bytes beside them, hold.
    void remember();
    // Index, in the order of take(), of a piece that is not as it was, or -1. `may_change[i]`: bytes of piece
    // i that may (empty: none; shorter: not those past its end).
    int changed(const std::vector<std::vector<uint8_t>>& may_change) const;

private:
    struct Piece {
        uint8_t* open = nullptr;  // kMost bytes between the guards
        uint8_t* data = nullptr;
        size_t bytes = 0;
        uint8_t *begin = nullptr, *end = nullptr;  // what is remembered: the data and a page beside it
        std::vector<uint8_t> before;
    };
    std::vector<Piece> pieces_;
    size_t used_ = 0;
};

}  // namespace quire::fuzz
