// What a kernel's code depends on: all of it, and never a length. The name spells the key and is the key of
// the code cache, of listings and of profiles.
#pragma once
#include <algorithm>
#include <string>

#include "jit/args.h"
#include "src/format.h"
#include "src/target.h"

namespace quire::jit {

// What a kernel's products are of. Floats, and query numbers of three bytes each: precision `highest`; words,
// and query words of two bytes each, `high`; bytes, scaled words (jit/weights.h), and tiles of bfloat16
// numbers, `medium`. By tiles of AMX numbers of the query, and weights, of two digits are `high`, of three
// `highest`, beside codes, or of two digits beside codes with their scales (jit/scaled_amx.h).
enum class Products {
    floats,
    words,
    bytes,
    bfloats,
    two_bytes,
    three_bytes,
    scaled_words,
    two_digit_tiles,
    three_digit_tiles,
    scaled_tiles
};

inline const char* products_name(Products products) {
    constexpr const char* kNames[] = {"",
                                      "_words",
                                      "_bytes",
                                      "_bfloats",
                                      "_two_bytes",
                                      "_three_bytes",
                                      "_scaled",
                                      "_two_digit_tiles",
                                      "_three_digit_tiles",
                                      "_scaled_tiles"};
    return kNames[int(products)];
}

// Bytes of a number of the query beside codes that are bytes; 0: neither are.
inline int query_bytes_of(Products products) {
    return products == Products::bytes         ? 1
           : products == Products::two_bytes   ? 2
           : products == Products::three_bytes ? 3
                                               : 0;
}

// Where the rows of a block lie, and their scales (decode): anywhere; in runs of kKeyPadding side by side;
// all side by side, without a gap.
enum class Placement { listed, runs, adjacent };

inline const char* placement_name(Placement placement) {
    constexpr const char* kNames[] = {"", "_runs", "_adjacent"};
    return kNames[int(placement)];
}

// Kernels over the rows of one side of the cache (keys or values).
struct RowKey {
    const Target* target;
    quire_format format;
    int dim;   // D or Dv
    int rows;  // query rows (decode, tile_pv_rows), vectors of them (tiles); 0 where it does not matter
    Products products = Products::floats;
    Placement placement = Placement::listed;
    bool packs_keys = false;  // tile_qk_rows: takes rows, and packs them

    std::string name(const char* stage) const {
        std::string text = std::string(stage) + "_d" + std::to_string(dim);
        if (rows != 0) text += "_r" + std::to_string(rows);
        text += "_" + format_name(format) + products_name(products);
        return text + placement_name(placement) + "_" + target->name;
    }
    bool words() const { return products == Products::words || scales_words(); }
    bool scales_words() const { return products == Products::scaled_words; }
    bool bytes() const { return products == Products::bytes; }
    bool bfloats() const { return products == Products::bfloats; }
    // By tiles of AMX (decode): digits of a number; else 0.
    int tile_digits() const {
        return products == Products::two_digit_tiles ? 2 : products == Products::three_digit_tiles ? 3 : 0;
    }
    bool scales_tiles() const { return products == Products::scaled_tiles; }
    // Codes as bytes, and so many for a number of the query; 0: neither.
    int query_bytes() const { return query_bytes_of(products); }
    int vecs() const { return (dim + target->lanes() - 1) / target->lanes(); }
    int padded() const { return vecs() * target->lanes(); }  // V
    int groups() const { return scale_group(format) ? dim / scale_group(format) : 0; }
    bool of_integers() const { return products != Products::floats && products != Products::bfloats; }
    // Of one group: its scale, then its minimum where the format has one. Integer products leave minima out,
    // which then stand behind all scales (minima_at).
    int numbers() const { return has_minima(format) && !of_integers() ? 2 : 1; }
    bool has_minima_apart() const { return has_minima(format) && of_integers(); }
    // A row has one number that scales all of it.
    bool one_scale() const { return groups() == 1 && numbers() == 1; }
    // Floats from one row's f32 scales to the next: rows of few share a vector, whole ones.
    int scales_stride() const { return shared_lanes(groups() * numbers()); }
    // Whether scales of adjacent rows are lists of float16 numbers that vectors of 512 bits hold four of.
    bool has_lists_of_scales() const {
        return placement == Placement::adjacent && target->vector_bits == 512 && !block_info(format.type) &&
               format.scale_type == QUIRE_F16 && groups() > 1 && groups() <= 16;
    }
    // Floats from the scales of a block of keys to their minima.
    int minima_at() const { return (kBlock + kScalesAhead) * scales_stride(); }
    // Floats of so many rows' scales: whole vectors are written and read from any of them on.
    int scales_floats(int count) const {
        return (has_minima_apart() ? minima_at() : 0) + count * scales_stride() + target->lanes();
    }
    // 16-bit words of a query row, padded to the chunks of the word loader.
    int query_words() const {
        return (dim + 4 * target->lanes() - 1) / (4 * target->lanes()) * 4 * target->lanes();
    }
    // Of a key row as bfloat16 numbers, two a lane: whole vectors.
    int bfloat_lanes() const { return (vecs() + 1) / 2 * target->lanes(); }
    // Of a key row as bytes, four a lane: the chunks of the byte loader.
    int byte_lanes() const {
        const int vector = 4 * target->lanes(), chunk = has_two_parts(format) ? 2 * vector : vector;
        return (dim + chunk - 1) / chunk * chunk / 4;
    }
    // 32-bit lanes of a key row in a tile.
    int tile_lanes() const {
        switch (products) {
            case Products::words: return query_words() / 2;
            case Products::bytes:
            case Products::two_bytes:
            case Products::three_bytes: return byte_lanes();
            case Products::bfloats: return bfloat_lanes();
            default: return padded();
        }
    }
    // Integer weights are made of so many groups at a time, and padded to them.
    int weight_lanes() const { return std::min(shared_lanes(groups()), target->lanes()); }
    int weight_stride() const { return (groups() + weight_lanes() - 1) / weight_lanes() * weight_lanes(); }
    // n, or where several of them fit a vector, the power of two that holds it.
    int shared_lanes(int n) const {
        if (n > target->lanes()) return n;
        int lanes = 2;
        while (lanes < n) lanes *= 2;
        return lanes;
    }
    int row_bytes() const { return int(bytes_of(format.type, dim)); }
    // Of a row's scales, where they lie apart from it; else 0.
    int scale_bytes() const { return is_quantised(format) ? groups() * type_bits(format.scale_type) / 8 : 0; }
};

// What is done to the scores before softmax.
struct ScoreKey {
    bool bias;  // additive mask
    bool alibi;
    bool soft_cap;

    std::string name() const {
        return std::string(bias ? "_bias" : "") + (alibi ? "_alibi" : "") + (soft_cap ? "_cap" : "");
    }
};

}  // namespace quire::jit
