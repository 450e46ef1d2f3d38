#include "jit/token_pv_amx.h"

#include <cstddef>

#include "jit/pv_amx_tiles.h"
#include "jit/token_pv_passes.h"
#include "jit/upper_nibbles.h"

namespace quire::jit {
namespace {

// A pass is of some tiles' elements, a turn of a block. Dwords of 16 elements are a row of a tile as they
// lie, of nibbles two: low ones, and high ones, both * 16.                                  emit_tokens At a
// pass's end: jit/pv_amx_tiles.h
class TokenPvAmx : public TokenPvPasses {
public:
    explicit TokenPvAmx(const RowKey& key) : TokenPvPasses(key), tiles_(*this, key) { generate(); }

private:
    void emit_kept() override {
        mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
        mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
        // The last three are set anew by the next pass, as is the place.
        tiles_.set_up({numbers_, weights_, scales_, output_, rescale_, dwords_, count_, block_, blocks_});
        if (tiles_.form().nibbles) vmovups(upper_ = vec("upper bits"), splat_bits(0xf0f0f0f0));
    }
    int most_rows() const override { return key_.rows; }
    int widest(int) const override { return tiles_.form().tiles(); }
    int sums() const override { return 0; }
    int dwords_a_turn() const override { return kBlockTokens / codes_.of_dword(); }
    int weights_step() const override { return 0; }
    bool asks_within() const override { return true; }
    // Products and outputs take as long as tiles of values.
    int turns_of_end() const override { return 6; }

    void emit_begin(const std::vector<Vec>&, const Pass&) override { tiles_.begin_chunk(); }

    void emit_tokens(const std::vector<Vec>&, const Pass& pass) override {
        const int dwords = dwords_a_turn();
        for (int i = 0; i < dwords; ++i) {
            emit_asks(pass, i, dwords);
            for (int tile = 0; tile < pass.width; ++tile) emit_dwords(pass, i, tile);
        }
        tiles_.next_turn();
    }
    void emit_dwords(const Pass& pass, int i, int tile) {
        Temp v(*this, "codes");
        vmovups(v, ptr[block_ + (i * key_.dim + (pass.vec + tile) * lanes()) * 4]);
        if (!tiles_.form().nibbles) return vmovups(ptr[tiles_.row_at(tile, i)], *v);
        Temp low(*this, "low nibbles");
        part_nibbles(*this, low, v, upper_);
        vmovups(ptr[tiles_.row_at(tile, 2 * i)], *low);
        vmovups(ptr[tiles_.row_at(tile, 2 * i + 1)], *v);
    }

    void emit_end(const std::vector<Vec>&, const Pass& pass) override {
        tiles_.end_chunk(pass.vec / tiles_.form().tiles(),
                         [&](int part, int parts) { emit_last_asks(part, parts); });
    }

    const Gpr numbers_ = gpr("numbers");
    Vec upper_;
    PvAmxTiles tiles_;
};

}  // namespace

Status generate_token_pv_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenPvAmx(key).finish(code);
}

}  // namespace quire::jit
