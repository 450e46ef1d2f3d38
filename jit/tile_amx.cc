#include "jit/tile_amx.h"

#include <cstddef>

#include "jit/amx.h"
#include "jit/pack_amx.h"
#include "jit/tile_product.h"

namespace quire::jit {
namespace {

using Xbyak::Tmm;

class TileAmx : public Emitter {
protected:
    explicit TileAmx(const TileKey& key) : Emitter(*key.target), key_(key), ahead_(*this, *key.target) {}

    int panel_bytes() const { return key_.vecs * vec_bytes(); }  // a row of queries, scores, outputs
    // Rows `row_bytes` (a register) apart.
    static Xbyak::Address rows_at(const RegExp& at, const Gpr& row_bytes) {
        return Xbyak::util::ptr[at + row_bytes];
    }

    // Tiles of these shapes for what `body` emits, in place of standard ones.
    template <typename Body>
    void with_tiles(const std::vector<TileShape>& shapes, const Body& body) {
        const std::vector<uint32_t> config = tile_config(shapes), standard = standard_tiles();
        if (config != standard) ldtilecfg(constant(config));
        body();
        if (config != standard) ldtilecfg(constant(standard));
    }

    // With the products of a step, some 50 cycles: as many as others ask for in that time.
    static constexpr int kLinesAhead = 2;

    const TileKey key_;
    TileAhead ahead_;
};

// for each 16 keys (and 8 that are left):
//   c[w] = 0
//   for each 16 pairs of a key: c[w] += keys[16][pair] * query[pair][w]         (the last ones may be fewer)
//   scores[16][w] = c[w]
// new_max[w] = max(new_max[w], scores[..][w])
class TileQkAmx : public TileAmx {
public:
    explicit TileQkAmx(const TileKey& key) : TileAmx(key) {
        begin();
        mov(keys_, ptr[args() + offsetof(TileQkArgs, keys)]);
        mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(TileQkArgs, count)]);
        mov(key_bytes_, key.key_stride * 4);
        mov(panel_bytes_, panel_bytes());
        ahead_.begin(args() + offsetof(TileQkArgs, ahead));
        emit_keys(kAmxRows);
        emit_keys(kTileStep);
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        emit_new_max();
        end();
    }

private:
    static Tmm sum(int w) { return Tmm(w); }
    const Tmm element_{3}, row_{4}, last_element_{5}, last_row_{6};
    int pairs() const { return (key_.dim + 1) / 2; }

    std::vector<TileShape> shapes(int keys) const {
        const int left = pairs() % kAmxPairs;
        std::vector<TileShape> shapes(8, {keys, 64});
        shapes[size_t(row_.getIdx())] = {kAmxPairs, 64};
        if (left > 0) {
            shapes[size_t(last_element_.getIdx())] = {keys, 4 * left};
            shapes[size_t(last_row_.getIdx())] = {left, 64};
        }
        return shapes;
    }

    void emit_keys(int keys) {
        stage("tiles of " + std::to_string(keys) + " keys");
        Label none, each;
        cmp(count_, keys);
        jl(none, T_NEAR);
        with_tiles(shapes(keys), [&] {
            L(each);
            for (int w = 0; w < key_.vecs; ++w) tilezero(sum(w));
            for (int pair = 0; pair < pairs(); pair += kAmxPairs) emit_products(pair);
            for (int w = 0; w < key_.vecs; ++w)
                tilestored(rows_at(scores_ + w * vec_bytes(), panel_bytes_), sum(w));
            add(keys_, keys * key_.key_stride * 4);
            add(scores_, keys * panel_bytes());
            sub(count_, keys);
            cmp(count_, keys);
            jge(each, T_NEAR);
        });
        L(none);
    }

    void emit_products(int pair) {
        const bool whole = pair + kAmxPairs <= pairs();
        const Tmm &element = whole ? element_ : last_element_, &row = whole ? row_ : last_row_;
        tileloadd(element, rows_at(keys_ + pair * 4, key_bytes_));
        for (int w = 0; w < key_.vecs; ++w) {
            tileloadd(row, rows_at(query_ + pair * panel_bytes() + w * vec_bytes(), panel_bytes_));
            tdpbf16ps(sum(w), element, row);
        }
        for (int i = 0; i < kLinesAhead; ++i) ahead_.some(1);
    }

    // Two chains for each vector. NaN does not count.
    void emit_new_max() {
        stage("maximum");
        const std::vector<Vec> max = vecs("max", 2 * key_.vecs), score = vecs("score", 2 * key_.vecs);
        mov(rax, ptr[args() + offsetof(TileQkArgs, new_max)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(TileQkArgs, count)]);
        for (size_t i = 0; i < max.size(); ++i) vmovups(max[i], ptr[rax + int(i) % key_.vecs * vec_bytes()]);
        Label each;
        L(each);
        for (size_t i = 0; i < max.size(); ++i) {
            vmovups(score[i], ptr[scores_ + int(i) * vec_bytes()]);
            vmaxps(max[i], score[i], max[i]);
        }
        add(scores_, 2 * panel_bytes());
        sub(count_, 2);
        jnz(each);
        for (int w = 0; w < key_.vecs; ++w) {
            vmaxps(max[size_t(w)], max[size_t(w)], max[size_t(key_.vecs + w)]);
            vmovups(ptr[rax + w * vec_bytes()], max[size_t(w)]);
        }
    }

    const Gpr keys_ = gpr("keys"), query_ = gpr("query"), scores_ = gpr("scores"), count_ = gpr("count"),
              key_bytes_ = gpr("key bytes"), panel_bytes_ = gpr("panel bytes");
};

// output *= rescale                                       (not where all factors are 1, as most often)
// for each four tiles of 16 values (and single ones, and one of 8 that is left), and each vector w:
//   c[i] = output[tile + i][w]
//   for each 16 pairs of keys: c[i] += values[tile + i][16][pair] * probabilities[pair][w]
//   output[tile + i][w] = c[i]
// and the same of 8 pairs that are left
class TilePvAmx : public TileAmx {
public:
    explicit TilePvAmx(const TileKey& key) : TileAmx(key) {
        begin();
        mov(panel_bytes_, panel_bytes());
        mov(row_bytes_, kAmxPairs * 4);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        emit_rescale();
        emit_blocks_of(kAmxPairs);
        emit_blocks_of(kAmxPairs / 2);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    static constexpr int kTiles = 4, kTilePanels = kAmxRows / kValuePanel, kBlockBytes = kAmxPairs * 64;
    static Tmm sum(int i) { return Tmm(i); }
    const Tmm value_{4}, row_{5}, half_sum_{6}, half_value_{7};

    // Vectors between tiles' products would have both wait.
    void emit_rescale() {
        stage("rescale");
        const std::vector<Vec> factor = vecs("factor", key_.vecs);
        const Xbyak::Opmask kept{1}, other{2};  // none where output holds nothing yet; factors that are not 1
        Label done;
        with_rescale(
            *this, left_,
            [&] {
                constexpr int kNotEqual = 4;
                kxorw(other, other, other);
                for (int w = 0; w < key_.vecs; ++w) {
                    vmovups(factor[size_t(w)], ptr[left_ + w * vec_bytes()]);
                    vcmpps(kept, factor[size_t(w)], splat(1), kNotEqual);
                    korw(other, other, kept);
                }
                kxnorw(kept, kept, kept);
            },
            [&] {
                for (const Vec& v : factor) zero(v);
                kxorw(kept, kept, kept);
                kxnorw(other, other, other);
            });
        kortestw(other, other);
        jz(done, T_NEAR);
        begin_panels();
        for_each(1, [&] {
            Temp out(*this, "output");
            for (int i = 0; i < kValuePanel * key_.vecs; ++i) {
                const Address at = ptr[output_ + i * vec_bytes()];
                vmulps(*out | kept | T_z, factor[size_t(i % key_.vecs)], at);
                vmovups(at, out);
            }
        });
        L(done);
        free(factor);
    }

    void emit_blocks_of(int pairs) {
        stage("blocks of " + std::to_string(pairs) + " pairs");
        Label none;
        const bool whole = pairs == kAmxPairs;
        begin_panels();
        mov(blocks_, ptr[args() + offsetof(TilePvArgs, count)]);
        if (!whole) test(blocks_.cvt8(), uint8_t(kKeyPadding));
        if (!whole) jz(none, T_NEAR);
        shr(blocks_, 5);
        if (whole) jz(none, T_NEAR);
        with_tiles(shapes(pairs), [&] {
            for_each(kTiles * kTilePanels, [&] { emit_vectors(kTiles, whole); });
            for_each(kTilePanels, [&] { emit_vectors(1, whole); });
            if (has_half()) for_each(1, [&] { emit_vectors(0, whole); });
        });
        L(none);
    }

    bool has_half() const { return (key_.dim + kValuePanel - 1) / kValuePanel % kTilePanels != 0; }
    std::vector<TileShape> shapes(int pairs) const {
        std::vector<TileShape> shapes(8, {kAmxRows, 64});
        shapes[size_t(value_.getIdx())] = {kAmxRows, 4 * pairs};
        shapes[size_t(row_.getIdx())] = {pairs, 64};
        if (has_half()) {
            shapes[size_t(half_sum_.getIdx())] = {kValuePanel, 64};
            shapes[size_t(half_value_.getIdx())] = {kValuePanel, 4 * pairs};
        }
        return shapes;
    }

    void begin_panels() {
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(values_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(panels_, ptr[args() + offsetof(TilePvArgs, panels)]);
    }
    template <typename Body>
    void for_each(int panels, const Body& body) {
        Label none, each;
        cmp(panels_, panels);
        jl(none, T_NEAR);
        L(each);
        body();
        add(output_, panels * kValuePanel * panel_bytes());
        add(values_, panels * kPairPanelStride * 4);
        sub(panels_, panels);
        cmp(panels_, panels);
        jge(each, T_NEAR);
        L(none);
    }

    // The tiles' values stay in the first-level cache for all vectors. tiles: 0 for half of one.
    void emit_vectors(int tiles, bool whole) {
        for (int w = 0; w < key_.vecs; ++w) {
            const auto output_at = [&](int i) {
                return rows_at(output_ + i * kAmxRows * panel_bytes() + w * vec_bytes(), panel_bytes_);
            };
            const auto sums = [&](int i) { return tiles > 0 ? sum(i) : half_sum_; };
            for (int i = 0; i < std::max(1, tiles); ++i) tileloadd(sums(i), output_at(i));
            mov(row_at_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
            mov(value_at_, values_);
            whole ? emit_blocks(tiles, w) : emit_last_block(tiles, w);
            for (int i = 0; i < std::max(1, tiles); ++i) tilestored(output_at(i), sums(i));
        }
    }

    void emit_blocks(int tiles, int w) {
        Label each;
        mov(left_, blocks_);
        L(each);
        emit_products(tiles, w);
        add(row_at_, kAmxPairs * panel_bytes());
        add(value_at_, kBlockBytes);
        dec(left_);
        jnz(each, T_NEAR);
    }
    void emit_last_block(int tiles, int w) {
        imul(left_, blocks_, kAmxPairs * panel_bytes());
        add(row_at_, left_);
        imul(left_, blocks_, kBlockBytes);
        add(value_at_, left_);
        emit_products(tiles, w);
    }

    void emit_products(int tiles, int w) {
        constexpr int kTileBytes = kAmxValueStride * 4;
        tileloadd(row_, rows_at(row_at_ + w * vec_bytes(), panel_bytes_));
        if (tiles == 0) {
            tileloadd(half_value_, rows_at(value_at_, row_bytes_));
            tdpbf16ps(half_sum_, half_value_, row_);
        }
        for (int i = 0; i < tiles; ++i) {
            tileloadd(value_, rows_at(value_at_ + i * kTileBytes, row_bytes_));
            tdpbf16ps(sum(i), value_, row_);
        }
        for (int i = 0; i < kLinesAhead; ++i) ahead_.some(1);
    }

    const Gpr output_ = gpr("output"), values_ = gpr("values"), panels_ = gpr("panels"),
              blocks_ = gpr("blocks"), left_ = gpr("left"), row_at_ = gpr("probabilities"),
              value_at_ = gpr("value"), panel_bytes_ = gpr("panel bytes"), row_bytes_ = gpr("row bytes");
};

}  // namespace

Status generate_tile_qk_amx(const TileKey& key, std::vector<uint8_t>* code) {
    return TileQkAmx(key).finish(code);
}
Status generate_tile_pv_amx(const TileKey& key, std::vector<uint8_t>* code) {
    return TilePvAmx(key).finish(code);
}

}  // namespace quire::jit
