#include "jit/pack.h"

#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/pack_amx.h"
#include "jit/row_loader.h"
#include "jit/tile_ahead.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// for key in 0..count:                                       (values as bfloat16: for each two)
//   for each vector of the row:                              (keys as bfloat16: for each two)
//     v = dequantised lanes of rows[key]                          (row loader)
//     bfloat16: v = those of both, in pairs                       emit_pairs
//     keys:   tile[key][..] = v                                   emit_store
//     values: tile[panel][key][0..8] = each eight of v
//     (AMX: tile[16 values][key][0..16] = v, then turn_value_blocks)
class Pack : public Emitter {
public:
    Pack(const RowKey& key, bool panels)
        : Emitter(*key.target),
          key_(key),
          panels_(panels),
          loader_(RowLoader::make(*this, key.format, key.dim)),
          ahead_(*this, *key.target) {
        const int keys = key_.bfloats() && panels_ ? 2 : 1, step = key_.bfloats() && !panels_ ? 2 : 1;
        begin();
        mov(rows_, ptr[args() + offsetof(PackArgs, rows)]);
        mov(scales_, ptr[args() + offsetof(PackArgs, scales)]);
        mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
        mov(count_, ptr[args() + offsetof(PackArgs, count)]);
        if (asks_ahead(key)) ahead_.begin(args() + offsetof(PackArgs, ahead));
        Label each_key;
        L(each_key);
        mov(row_, ptr[rows_]);
        if (keys == 2) mov(second_, ptr[rows_ + 8]);
        for (int vec = 0; vec < loader_->vecs(); vec += step) {
            Temp v(*this, "v");
            loader_->load(v, vec, row_, scales_);
            if (key_.bfloats()) emit_pairs(v, vec);
            emit_store(v, vec / step);
        }
        for (int i = 0; asks_ahead(key) && i < kLinesOfPackedRow * keys; ++i) ahead_.line();
        add(rows_, 8 * keys);
        add(scales_, keys * key_.scales_stride() * 4);
        add(tile_, (!panels_ ? key_.tile_lanes() : turned() ? kAmxRows : kValuePanel) * 4);
        keys == 1 ? dec(count_) : sub(count_, keys);
        jnz(each_key, T_NEAR);
        if (turned()) {
            mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
            mov(count_, ptr[args() + offsetof(PackArgs, count)]);
            add(count_, 2 * kAmxPairs - 1);
            shr(count_, 5);
            turn_value_blocks(*this, tile_, loader_->vecs(), count_);
        }
        if (asks_ahead(key)) ahead_.end(args() + offsetof(PackArgs, ahead));
        end();
    }

private:
    bool turned() const { return panels_ && key_.bfloats() && key_.target->amx; }

    // Of keys, elements that follow each other; of values, one element of two rows.
    void emit_pairs(const Vec& v, int vec) {
        Temp other(*this, "other");
        if (panels_) {
            loader_->load(other, vec, second_, scales_ + key_.scales_stride() * 4);
            return pair_bfloats(v, v, other);
        }
        vec + 1 < loader_->vecs() ? loader_->load(other, vec + 1, row_, scales_) : zero(other);
        join_bfloats(v, v, other);
    }

    void emit_store(const Vec& v, int vec) {
        if (!panels_) return vmovups(ptr[tile_ + vec * vec_bytes()], v);
        if (turned()) return vmovups(ptr[tile_ + vec * kAmxValueStride * 4], v);
        const int stride = key_.bfloats() ? kPairPanelStride : kPanelStride;
        for (int half = 0; half < halves(); ++half)
            store_half(tile_ + (vec * halves() + half) * stride * 4, v, half);
    }

    const RowKey key_;
    const bool panels_;
    const std::unique_ptr<RowLoader> loader_;
    TileAhead ahead_;
    const Gpr rows_ = gpr("rows"), scales_ = gpr("scales"), tile_ = gpr("tile"), count_ = gpr("count"),
              row_ = gpr("row"), second_ = gpr("second row");
};

// for key in 0..count: tile[key] = words, or bytes, of rows[key]                 (word, byte loader)
class PackKeyCodes : public Emitter {
public:
    explicit PackKeyCodes(const RowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        const Gpr rows = gpr("rows"), count = gpr("count");
        mov(rows, ptr[args() + offsetof(PackArgs, rows)]);
        mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
        mov(count, ptr[args() + offsetof(PackArgs, count)]);
        Label each_key;
        L(each_key);
        mov(row_, ptr[rows]);
        key.words() ? emit_words() : emit_bytes();
        add(rows, 8);
        add(tile_, key.tile_lanes() * 4);
        dec(count);
        jnz(each_key, T_NEAR);
        end();
    }

private:
    void emit_words() {
        const auto loader = WordLoader::make(*this, key_.format, key_.dim);
        for (int chunk = 0; chunk < loader->chunks(); ++chunk) {
            const std::vector<Vec> v = vecs("v", 2);
            loader->load_keys(v[0], v[1], chunk, row_);
            for (int i = 0; i < 2; ++i) vmovups(ptr[tile_ + (chunk * 2 + i) * vec_bytes()], v[size_t(i)]);
            free(v);
        }
    }

    void emit_bytes() { ByteLoader::make(*this, key_.format, key_.dim)->store_in_tile(row_, tile_); }

    const RowKey key_;
    const Gpr tile_ = gpr("tile"), row_ = gpr("row");
};

// for each pair of keys: tile[panel][pair][0..8] = words of both rows
class PackValueWords : public Emitter {
public:
    explicit PackValueWords(const RowKey& key) : Emitter(*key.target) {
        const auto loader = WordLoader::make(*this, key.format, key.dim);
        begin();
        const Gpr rows = gpr("rows"), tile = gpr("tile"), count = gpr("count"), row = gpr("row"),
                  second = gpr("second row");
        mov(rows, ptr[args() + offsetof(PackArgs, rows)]);
        mov(tile, ptr[args() + offsetof(PackArgs, tile)]);
        mov(count, ptr[args() + offsetof(PackArgs, count)]);
        Label each_pair;
        L(each_pair);
        mov(row, ptr[rows]);
        mov(second, ptr[rows + 8]);
        const std::vector<Vec> v = vecs("v", 2);
        for (int vec = 0; vec < key.vecs(); vec += 2) {
            loader->load_values(v.data(), vec, row, second);
            loader->restore_order(v.data());
            for (int i = 0; i < 2; ++i) {
                const int to = loader->value_vec(vec + i);
                for (int half = 0; half < halves() && to < key.vecs(); ++half)
                    store_half(tile + (to * halves() + half) * kPairPanelStride * 4, v[size_t(i)], half);
            }
        }
        add(rows, 16);
        add(tile, kValuePanel * 4);
        sub(count, 2);
        jnz(each_pair, T_NEAR);
        end();
    }
};

}  // namespace

bool asks_ahead(const RowKey& key) { return key.bfloats() && key.target->amx; }

bool is_packed_row(const RowKey& key) {
    const quire_type number = key.products == Products::floats    ? QUIRE_F32
                              : key.products == Products::bfloats ? QUIRE_BF16
                                                                  : QUIRE_NONE;
    return key.format.type == number && key.row_bytes() == key.tile_lanes() * 4;
}

Status generate_pack_keys(const RowKey& key, std::vector<uint8_t>* code) {
    if (key.words() || key.query_bytes() > 0) return PackKeyCodes(key).finish(code);
    return Pack(key, false).finish(code);
}
Status generate_pack_values(const RowKey& key, std::vector<uint8_t>* code) {
    if (key.bytes()) return generate_pack_value_bytes(key, code);
    return key.words() ? PackValueWords(key).finish(code) : Pack(key, true).finish(code);
}

}  // namespace quire::jit
