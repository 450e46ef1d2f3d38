#include "jit/tile_amx.h"

#include <cstddef>

#include "jit/amx.h"
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
        tilerelease();
        emit_new_max();
        end();
    }

private:
    static Tmm sum(int w) { return Tmm(w); }
    const Tmm element_{3}, row_{4}, last_element_{5}, last_row_{6};
    int pairs() const { return (key_.dim + 1) / 2; }

    std::vector<uint32_t> config(int keys) const {
        const int left = pairs() % kAmxPairs;
        std::vector<TileShape> shapes(3, {keys, 64});
        shapes.insert(shapes.end(), {{keys, 64}, {kAmxPairs, 64}});
        if (left > 0) shapes.insert(shapes.end(), {{keys, 4 * left}, {left, 64}});
        return tile_config(shapes);
    }

    void emit_keys(int keys) {
        stage("tiles of " + std::to_string(keys) + " keys");
        Label none, each;
        cmp(count_, keys);
        jl(none, T_NEAR);
        ldtilecfg(constant(config(keys)));
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
        // The next keys: a load of a tile waits for all its rows.
        for (int i = 0; i < kAmxRows; ++i)
            prefetcht0(ptr[keys_ + (kAmxRows + i) * key_.key_stride * 4 + pair * 4]);
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

// for each four panels (and single ones that are left), and each vector w:
//   c[i] = output[panel + i][w] * rescale[w]        (multiplied beside the products of the panels before
//   them) for each 16 pairs of keys: c[i] += values[panel + i][8][pair] * probabilities[pair][w] output[panel
//   + i][w] = c[i]
// and without rescale the same of 8 pairs that are left
class TilePvAmx : public TileAmx {
public:
    explicit TilePvAmx(const TileKey& key) : TileAmx(key), factor_(vecs("factor", key.vecs)) {
        begin();
        mov(panel_bytes_, panel_bytes());
        mov(row_bytes_, kAmxPairs * 4);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        emit_factors();
        emit_whole_blocks();
        emit_rest();
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        tilerelease();
        end();
    }

private:
    static constexpr int kPanels = 4, kBlockBytes = kAmxPairs * kValuePanel * 4;
    static Tmm sum(int i) { return Tmm(i); }
    const Tmm value_{4}, row_{5};
    const Xbyak::Opmask kept_{1};  // none where output holds nothing yet

    void emit_factors() {
        with_rescale(
            *this, left_,
            [&] {
                for (int w = 0; w < key_.vecs; ++w) vmovups(factor_[size_t(w)], ptr[left_ + w * vec_bytes()]);
                kxnorw(kept_, kept_, kept_);
            },
            [&] {
                for (const Vec& v : factor_) zero(v);
                kxorw(kept_, kept_, kept_);
            });
    }

    // Of `share` of `shares` of so many panels' output, from `panel` on.
    void rescale(int panel, int panels, int share = 0, int shares = 1) {
        const int all = panels * kValuePanel * key_.vecs;
        Temp out(*this, "output");
        for (int i = share * all / shares; i < (share + 1) * all / shares; ++i) {
            const Address at = ptr[output_ + panel * kValuePanel * panel_bytes() + i * vec_bytes()];
            vmulps(*out | kept_ | T_z, factor_[size_t(i % key_.vecs)], at);
            vmovups(at, out);
        }
    }

    void emit_whole_blocks() {
        stage("blocks of 16 pairs");
        Label none, done, each, single;
        begin_panels();
        jz(none, T_NEAR);
        ldtilecfg(constant(config(kAmxPairs)));
        cmp(panels_, kPanels);
        jl(single, T_NEAR);
        rescale(0, kPanels);
        L(each);
        for (int w = 0; w < key_.vecs; ++w) {
            emit_panels(kPanels, w, true);
            Label last;
            cmp(panels_, 2 * kPanels);
            jl(last, T_NEAR);
            rescale(kPanels, kPanels, w, key_.vecs);
            L(last);
        }
        next_panels(kPanels);
        jge(each, T_NEAR);
        L(single);
        for_single_panels([&] {
            rescale(0, 1);
            for (int w = 0; w < key_.vecs; ++w) emit_panels(1, w, true);
        });
        jmp(done, T_NEAR);
        L(none);
        for_single_panels([&] { rescale(0, 1); });
        L(done);
    }

    void emit_rest() {
        stage("a block of 8 pairs");
        Label none, each, single;
        begin_panels();
        test(byte[args() + offsetof(TilePvArgs, count)], uint8_t(kKeyPadding));
        jz(none, T_NEAR);
        ldtilecfg(constant(config(kKeyPadding / 2)));
        cmp(panels_, kPanels);
        jl(single, T_NEAR);
        L(each);
        for (int w = 0; w < key_.vecs; ++w) emit_panels(kPanels, w, false);
        next_panels(kPanels);
        jge(each, T_NEAR);
        L(single);
        for_single_panels([&] {
            for (int w = 0; w < key_.vecs; ++w) emit_panels(1, w, false);
        });
        L(none);
    }

    std::vector<uint32_t> config(int pairs) const {
        std::vector<TileShape> shapes(kPanels, {kValuePanel, 64});
        shapes.insert(shapes.end(), {{kValuePanel, 4 * pairs}, {pairs, 64}});
        return tile_config(shapes);
    }

    // The flags say whether there are blocks of kAmxPairs pairs.
    void begin_panels() {
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(values_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(panels_, ptr[args() + offsetof(TilePvArgs, panels)]);
        mov(blocks_, ptr[args() + offsetof(TilePvArgs, count)]);
        shr(blocks_, 5);
    }
    // The flags say whether as many are left.
    void next_panels(int panels) {
        add(output_, panels * kValuePanel * panel_bytes());
        add(values_, panels * kPairPanelStride * 4);
        sub(panels_, panels);
        cmp(panels_, panels);
    }
    template <typename Body>
    void for_single_panels(const Body& body) {
        Label none, each;
        test(panels_, panels_);
        jz(none, T_NEAR);
        L(each);
        body();
        next_panels(1);
        jge(each, T_NEAR);
        L(none);
    }

    // The panels' values stay in the first-level cache for all vectors.
    void emit_panels(int panels, int w, bool whole) {
        const auto output_at = [&](int i) {
            return rows_at(output_ + i * kValuePanel * panel_bytes() + w * vec_bytes(), panel_bytes_);
        };
        for (int i = 0; i < panels; ++i) tileloadd(sum(i), output_at(i));
        mov(row_at_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(value_at_, values_);
        whole ? emit_blocks(panels, w) : emit_last_block(panels, w);
        for (int i = 0; i < panels; ++i) tilestored(output_at(i), sum(i));
    }

    void emit_blocks(int panels, int w) {
        Label each;
        mov(left_, blocks_);
        L(each);
        emit_products(panels, w);
        add(row_at_, kAmxPairs * panel_bytes());
        add(value_at_, kBlockBytes);
        dec(left_);
        jnz(each, T_NEAR);
    }
    void emit_last_block(int panels, int w) {
        imul(left_, blocks_, kAmxPairs * panel_bytes());
        add(row_at_, left_);
        imul(left_, blocks_, kBlockBytes);
        add(value_at_, left_);
        emit_products(panels, w);
    }

    void emit_products(int panels, int w) {
        tileloadd(row_, rows_at(row_at_ + w * vec_bytes(), panel_bytes_));
        for (int i = 0; i < panels; ++i) {
            tileloadd(value_, rows_at(value_at_ + i * kPairPanelStride * 4, row_bytes_));
            tdpbf16ps(sum(i), value_, row_);
        }
        // Of the next panels, each vector a share.
        const int rows = kValuePanel * panels, end = (w + 1) * rows / key_.vecs;
        for (int i = w * rows / key_.vecs; i < end; ++i)
            prefetcht0(ptr[value_at_ + (panels + i / kValuePanel) * kPairPanelStride * 4 +
                           i % kValuePanel * kAmxPairs * 4]);
        for (int i = 0; i < kLinesAhead; ++i) ahead_.some(1);
    }

    const std::vector<Vec> factor_;
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
