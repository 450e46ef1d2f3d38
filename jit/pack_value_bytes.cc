#include "jit/byte_loader.h"
#include "jit/pack.h"

namespace quire::jit {
namespace {

constexpr int kKeys = 4;  // of a lane, whose bytes are of these:
constexpr int kOrder[kKeys] = {0, 2, 1, 3};

// for each four keys: tile[panel][four][0..8] = their codes, of the other sign where a scale is negative
class PackValueBytes : public Emitter {
public:
    explicit PackValueBytes(const RowKey& key)
        : Emitter(*key.target), key_(key), loader_(ByteLoader::make(*this, key.format, key.dim)) {
        begin();
        mov(rows_, ptr[args() + offsetof(PackArgs, rows)]);
        mov(scales_, ptr[args() + offsetof(PackArgs, scales)]);
        mov(tile_, ptr[args() + offsetof(PackArgs, tile)]);
        mov(count_, ptr[args() + offsetof(PackArgs, count)]);
        Label each_four;
        L(each_four);
        for (int chunk = 0; chunk < loader_->chunks(); ++chunk) emit_chunk(chunk);
        add(rows_, 8 * kKeys);
        add(scales_, kKeys * key_.scales_stride() * 4);
        add(tile_, kValuePanel * 4);
        sub(count_, kKeys);
        jnz(each_four, T_NEAR);
        end();
    }

private:
    int parts() const { return loader_->parts(); }

    // Of quarter q of part p, byte i is element first(p, q) + i: nibbles of pairs are interleaved, and those
    // of blocks lie so.
    int first(int chunk, int part, int quarter) const {
        return chunk * parts() * vec_bytes() + (quarter * parts() + part) * 16;
    }

    void emit_chunk(int chunk) {
        stage("chunk " + std::to_string(chunk));
        const std::vector<Vec> v = vecs("codes", kKeys * parts());
        for (int key = 0; key < kKeys; ++key) {
            const Vec* const k = &v[size_t(key * parts())];
            mov(row_, ptr[rows_ + 8 * kOrder[key]]);
            loader_->load(k, chunk, row_);
            if (parts() == 2 && !block_info(key_.format.type)) interleave_bytes(k[0], k[1]);
            for (int part = 0; part < parts(); ++part) emit_signs(k[part], chunk, part, key);
        }
        for (int part = 0; part < parts(); ++part) {
            const std::vector<Vec> fours = {v[size_t(part)], v[size_t(parts() + part)],
                                            v[size_t(2 * parts() + part)], v[size_t(3 * parts() + part)]};
            transpose_bytes(fours);
            for (int i = 0; i < kKeys; ++i) emit_store(fours[size_t(i)], chunk, part, i);
        }
        free(v);
    }

    void emit_signs(const Vec& v, int chunk, int part, int key) {
        vpsubb(v, v, splat_bits(0x01010101u * uint32_t(byte_zero(key_.format))));
        std::vector<int> groups;
        for (int lane = 0; lane < lanes(); ++lane) {
            const int element = first(chunk, part, lane / 4) + lane % 4 * 4;
            groups.push_back(std::min(element, key_.dim - 1) / scale_group(key_.format));
        }
        Temp sign(*this, "sign");
        load_lanes(sign, scales_ + kOrder[key] * key_.scales_stride() * 4, groups);
        vpsrad(sign, sign, 31);
        bit_xor(v, v, sign);
        vpsubsb(v, v, sign);
    }

    // Elements 4 i .. 4 i + 3 of each quarter.
    void emit_store(const Vec& v, int chunk, int part, int i) {
        for (int quarter = 0; quarter < lanes() / 4; ++quarter) {
            const int element = first(chunk, part, quarter) + 4 * i;
            if (element >= key_.dim) return;
            store_quarter(tile_ + (element / kValuePanel * kFourPanelStride + element % kValuePanel) * 4, v,
                          quarter);
        }
    }

    const RowKey key_;
    const std::unique_ptr<ByteLoader> loader_;
    const Gpr rows_ = gpr("rows"), scales_ = gpr("scales"), tile_ = gpr("tile"), count_ = gpr("count"),
              row_ = gpr("row");
};

}  // namespace

Status generate_pack_value_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return PackValueBytes(key).finish(code);
}

}  // namespace quire::jit
