// Tiles of AMX: what decode's kernels and those of tiles have in common.
//
// A processor with AMX multiplies a tile of up to 16 rows of 64 bytes by one of 16 rows of 64 bytes in 16
// cycles: eight times what vectors do. With tiles in use vectors have one pipe of products in place of two,
// and the first product of tiles after 2000 cycles without one takes 1000 more.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/status.h"
#include "src/target.h"

namespace quire::jit {

// What ldtilecfg takes: for each tile rows, and bytes of one.
struct TileShape {
    int rows, bytes;
};
inline std::vector<uint32_t> tile_config(const std::vector<TileShape>& shapes) {
    constexpr int kBytes = 16, kRows = 48;  // where they begin
    std::array<uint8_t, 64> bytes = {1};    // the palette
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        bytes[kBytes + 2 * i] = uint8_t(shapes[i].bytes);
        bytes[kRows + i] = uint8_t(shapes[i].rows);
    }
    std::vector<uint32_t> words;
    for (std::size_t i = 0; i < bytes.size(); i += 4)
        words.push_back(uint32_t(bytes[i]) | uint32_t(bytes[i + 1]) << 8 | uint32_t(bytes[i + 2]) << 16 |
                        uint32_t(bytes[i + 3]) << 24);
    return words;
}

// As all kernels find them, and leave them: of 16 rows of 64 bytes. To say so takes 200 cycles.
inline std::vector<uint32_t> standard_tiles() { return tile_config(std::vector<TileShape>(8, {16, 64})); }

// Elements of a group whose digits are multiplied by signed bytes, so that no sum is too large.
constexpr int kMostOfGroup = 512;
static_assert(int64_t(kMostOfGroup) * 128 * (127 * 256 + 128) < int64_t(1) << 31);

struct NoArgs {};

Status generate_tiles_begin(const Target& target, std::vector<uint8_t>* code);  // void(const NoArgs*)
Status generate_tiles_end(const Target& target, std::vector<uint8_t>* code);    // the same

}  // namespace quire::jit
