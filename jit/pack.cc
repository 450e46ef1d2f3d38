#include "jit/pack.h"

#include <cstddef>

#include "jit/row_loader.h"

namespace quire::jit {
namespace {

// for key in 0..count:
//   for each vector of the row:
//     v = dequantised lanes of rows[key]                          (row loader)
//     keys:   tile[key][..] = v                                   emit_store
//     values: tile[panel][key][0..8] = each eight of v
class Pack : public Emitter {
public:
    Pack(const RowKey& key, bool panels)
        : Emitter(*key.target),
          key_(key),
          panels_(panels),
          loader_(RowLoader::make(*this, key.format, key.dim)) {
        begin();
        mov(rows_, ptr[args() + offsetof(PackArgs, rows)]);
        mov(scales_, ptr[args() + offsetof(PackArgs, scales)]);
        mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
        mov(count_, ptr[args() + offsetof(PackArgs, count)]);
        Label each_key;
        L(each_key);
        mov(row_, ptr[rows_]);
        for (int vec = 0; vec < loader_->vecs(); ++vec) {
            Temp v(*this, "v");
            loader_->load(v, vec, row_, scales_);
            emit_store(v, vec);
        }
        add(rows_, 8);
        add(scales_, key_.scales_stride() * 4);
        add(tile_, panels_ ? kValuePanel * 4 : key_.padded() * 4);
        dec(count_);
        jnz(each_key, T_NEAR);
        end();
    }

private:
    void emit_store(const Vec& v, int vec) {
        if (!panels_) return vmovups(ptr[tile_ + vec * vec_bytes()], v);
        for (int half = 0; half < halves(); ++half)
            store_half(tile_ + (vec * halves() + half) * kPanelStride * 4, v, half);
    }

    const RowKey key_;
    const bool panels_;
    const std::unique_ptr<RowLoader> loader_;
    const Gpr rows_ = gpr("rows"), scales_ = gpr("scales"), tile_ = gpr("tile"), count_ = gpr("count"),
              row_ = gpr("row");
};

}  // namespace

Status generate_pack_keys(const RowKey& key, std::vector<uint8_t>* code) {
    return Pack(key, false).finish(code);
}
Status generate_pack_values(const RowKey& key, std::vector<uint8_t>* code) {
    return Pack(key, true).finish(code);
}

}  // namespace quire::jit
