#include "jit/pv_amx.h"

#include <cstddef>

#include "jit/pv_amx_tiles.h"
#include "jit/pv_passes.h"
#include "jit/upper_nibbles.h"

namespace quire::jit {
namespace {

// A pass is of some runs of 16 bytes of the rows. A turn, of 16 keys:
//   tiles[run][step][row] = bytes of four keys each, of four bits low ones and high ones * 16  emit_four
// At its end: jit/pv_amx_tiles.h
class PvAmx : public PvPasses {
public:
    explicit PvAmx(const RowKey& key) : PvPasses(key), tiles_(*this, key) { generate(); }

private:
    const ValueAmx& form() const { return tiles_.form(); }
    int rows_a_pass() const override { return key_.rows; }
    int widest(int) const override { return step(); }
    int step() const override { return form().tiles(); }
    int sums() const override { return 0; }
    int turn_bytes() const override { return 0; }
    int keys_a_turn() const override { return kKeyPadding; }
    bool asks_within() const override { return true; }
    bool asks_at_end() const override { return true; }

    int chunk_of(const Pass& pass) const { return pass.vec / step(); }

    void emit_start() override {
        mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
        // The last three are set anew by the next pass.
        tiles_.set_up({numbers_, weights_, scales_, output_, rescale_, gpr("place in tiles"), count_,
                       prefetch_end_, row_});
        vmovups(order_, constant(bytes_of_four()));
    }
    std::vector<uint32_t> bytes_of_four() const {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < uint32_t(lanes()); ++i) order.push_back(0x30201000 + 0x01010101 * i);
        return order;
    }

    void emit_begin(const std::vector<Vec>&, const Pass&) override { tiles_.begin_chunk(); }

    void emit_turn(const std::vector<Vec>&, const Pass& pass) override {
        constexpr int kFours = kKeyPadding / 4;
        for (int i = 0; i < kFours; ++i) {
            emit_asks(pass, i, kFours);
            stage("four keys");
            emit_four(i, chunk_of(pass));
        }
        tiles_.next_turn();
    }

    // Lane i: byte i of a run of four rows.
    void emit_four(int four, int chunk) {
        const std::vector<Vec> v = vecs("runs", form().runs_of(chunk));
        for (int i = 0; i < 4; ++i) {
            const RegExp row = rows_.in_turn(4 * four + i, row_) + form().first_run(chunk) * ValueAmx::kRun;
            for (int run = 0; run < int(v.size()); ++run) {
                const Xbyak::Zmm z(v[size_t(run)].getIdx());
                const Address at = ptr[row + run * ValueAmx::kRun];
                i == 0 ? vmovdqu(Xbyak::Xmm(z.getIdx()), at) : vinserti32x4(z, z, at, uint8_t(i));
            }
        }
        for (int run = 0; run < int(v.size()); ++run) {
            const Vec& of_run = v[size_t(run)];
            vpermb(of_run, order_, of_run);
            form().nibbles ? emit_nibbles(of_run, run, four) : vmovups(ptr[tiles_.row_at(run, four)], of_run);
        }
        free(v);
    }
    void emit_nibbles(const Vec& v, int run, int four) {
        Temp low(*this, "low nibbles"), upper(*this, "upper bits");
        vmovups(upper, splat_bits(0xf0f0f0f0));
        part_nibbles(*this, low, v, upper);
        vmovups(ptr[tiles_.row_at(2 * run, four)], low);
        vmovups(ptr[tiles_.row_at(2 * run + 1, four)], v);
    }

    void emit_end(const std::vector<Vec>&, const Pass& pass) override {
        tiles_.end_chunk(chunk_of(pass), [&](int part, int parts) { emit_last_asks(pass, part, parts); });
    }

    const Vec order_ = vec("order");
    PvAmxTiles tiles_;
};

}  // namespace

Status generate_pv_amx(const RowKey& key, std::vector<uint8_t>* code) { return PvAmx(key).finish(code); }

}  // namespace quire::jit
