// Scores of many query rows: tiles of codes with their scales.
#include <cstddef>
#include <functional>
#include <vector>

#include "jit/prefetch.h"
#include "jit/qk_amx_scores.h"
#include "jit/row_list.h"
#include "jit/scaled_amx.h"
#include "jit/upper_nibbles.h"

namespace quire::jit {
namespace {

using Xbyak::Tmm;

// for each 16 keys:
//   shares of their scales, and tops
//   for each 64 bytes of a row: tiles[part][digit][key] = digits of the codes times their groups' shares,
//     beside products of the bytes before, at first those of the last keys, whose sums are stored then:
//     sums += tiles of both digits * those of the query, in int32                             emit_step
//   of the keys before: scores[r] = the sums together * top of the key * factors[r]           emit_sums
class QkScaledAmx : public AmxScores {
public:
    explicit QkScaledAmx(const RowKey& key)
        : AmxScores(key), key_(key), scaled_(key), prefetch_(*this, key), digits_(*this) {
        begin();
        digits_.set();
        load_args();
        Shares shares(*this, key_, false, float(1 << lost_bits()));
        shares.begin();
        Label each, last, sums, done;
        L(each);
        cmp(count_, 0);
        je(last, T_NEAR);
        shares.emit(scales_, numbers_ + shares_at(), tops_ + kTops);
        add(scales_, kAmxRows * key_.scales_stride() * 4);
        begin_rows();
        emit_step(0, steps() - 1);
        store_sums();
        for (int i = 1; i < steps(); ++i) emit_step(i, i - 1);
        end_rows();
        L(sums);
        lea(rax, ptr[numbers_ + tops_at()]);
        cmp(tops_, rax);
        jb(done, T_NEAR);
        emit_sums();
        L(done);
        add(tops_, kTops);
        sub(count_, kAmxRows);
        jns(each, T_NEAR);
        Label end_of_all;
        jmp(end_of_all, T_NEAR);
        L(last);
        for (const auto& product : products_of(steps() - 1)) product();
        store_sums();
        jmp(sums, T_NEAR);
        L(end_of_all);
        shares.finish();
        end();
    }

private:
    static constexpr int kTile = ScaledAmx::kTileBytes;
    static constexpr int kTops = kAmxRows * 4;
    // In numbers: tiles of a step and of the one before, shares, tops, sums.
    int chunks() const { return int(form_.chunks.size()); }
    int steps() const { return chunks() / scaled_.parts; }
    static int tile_at(int part, int digit) { return (part * ScaledAmx::kDigits + digit) * kTile; }
    int share_bytes() const { return scaled_.share_stride() * 4; }
    int shares_at() const { return 2 * tile_at(scaled_.parts, 0); }
    int tops_at() const { return shares_at() + kAmxRows * share_bytes() + kTops; }
    int sums_at() const { return tops_at() + kBlock * 4 + kTops; }

    // Bits that sums together have lost at their lower end.
    int lost_bits() const {
        constexpr int kWhole = 256;  // elements
        int bits = 8;
        for (int dim = kWhole; dim < key_.dim; dim *= 2) ++bits;
        return bits;
    }

    void load_args() {
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        mov(numbers_, ptr[args() + offsetof(QkArgs, numbers)]);
        mov(tiles_, numbers_);
        lea(before_, ptr[numbers_ + tile_at(scaled_.parts, 0)]);
        lea(tops_, ptr[numbers_ + tops_at() - kTops]);
        mov(tile_row_, ScaledAmx::kTileRow);
        rows_.set(args() + offsetof(QkArgs, rows));
        prefetch_.turns_of(kAmxRows);
        prefetch_.set(args() + offsetof(QkArgs, next), 0);
        if (rest() < 64) {
            mov(rax, (uint64_t(1) << rest()) - 1);
            kmovq(rest_, rax);
        }
        load_query();
    }

    // ---- codes with their scales ----

    int rest() const { return form_.chunks.back().bytes; }  // bytes of the last chunk of a part

    void begin_rows() {
        stage("codes times shares");
        if (scaled_.parts == 2) vmovups(upper_ = vec("upper nibbles"), splat_bits(0xf0f0f0f0));
        if (together() > 1) vmovups(order_ = vec("groups of words"), constant(groups_of_words()));
        rows_.turn(row_);
    }
    void end_rows() {
        if (scaled_.parts == 2) free(upper_);
        if (together() > 1) free(order_);
        rows_.move(kAmxRows);
        prefetch_.move(kAmxRows);
    }
    void emit_step(int i, int before) {
        stage("step " + std::to_string(i));
        const std::vector<std::function<void()>> products = products_of(before);
        const size_t count = products.size();
        for (int key = 0; key < kAmxRows; ++key) {
            prefetch_.some(kAmxRows, i * kAmxRows + key, steps() * kAmxRows);
            stage_codes(key, i);
            for (size_t k = size_t(key) * count / kAmxRows; k < size_t(key + 1) * count / kAmxRows; ++k)
                products[k]();
        }
        xchg(tiles_, before_);
    }
    void stage_codes(int key, int i) {
        Temp v(*this, "codes"), share(*this, "share");
        const int at = form_.chunks[size_t(i)].at;
        const RegExp row = rows_.in_turn(key, row_) + at;
        i + 1 < steps() || rest() == 64 ? vmovups(v, ptr[row]) : vmovdqu8(z(v) | rest_ | T_z, ptr[row]);
        load_share(share, key, at / scaled_.group_bytes);
        if (scaled_.parts == 2) {
            Temp low(*this, "low nibbles");  // times 16
            part_nibbles(*this, low, v, upper_);
            store_digits(low, share, 0, key);
        }
        store_digits(v, share, scaled_.parts - 1, key);
    }
    void store_digits(const Vec& codes, const Vec& share, int part, int key) {
        Temp high(*this, "upper digits"), even(*this, "even ones"), odd(*this, "odd ones");
        digits_.part(even, odd, codes);
        digits_.scale(high, even, odd, share, share);
        vmovups(ptr[tiles_ + tile_at(part, 0) + key * 64], *high);
        vmovups(ptr[tiles_ + tile_at(part, 1) + key * 64], *odd);
    }

    int together() const { return std::max(1, 64 / scaled_.group_bytes); }  // groups of a chunk
    std::vector<uint32_t> groups_of_words() const {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < 16; ++i) order.push_back(i * 4 / uint32_t(scaled_.group_bytes));
        return order;
    }
    void load_share(const Vec& v, int key, int group) {
        const Address at = ptr[numbers_ + shares_at() + key * share_bytes() + group * 4];
        switch (together()) {
            case 1: return vpbroadcastd(v, at);
            case 2: vpbroadcastq(z(v), at); break;
            case 4: vbroadcasti32x4(z(v), at); break;
            case 8: vbroadcasti32x8(z(v), at); break;
            default: return vmovups(v, at);
        }
        vpermd(z(v), z(order_), z(v));
    }

    // ---- products ----

    // Tiles of the query stay where there are enough.
    static constexpr int kQuery = 4, kHeld = 2;
    bool holds_query() const { return chunks() <= kHeld; }
    Tmm of_query(int chunk, int digit) const {
        return Tmm(kQuery + chunk % kHeld * ScaledAmx::kDigits + digit);
    }

    Tmm sum(int i) const { return Tmm(i); }
    // Of the step whose tiles are before_.
    std::vector<std::function<void()>> products_of(int step) {
        std::vector<std::function<void()>> list;
        const Tmm keys(3);
        if (step == 0)
            list.push_back([=] {
                for (int i = 0; i < ScaledAmx::kSums; ++i) tilezero(sum(i));
            });
        for (int part = 0; part < scaled_.parts; ++part) {
            const int chunk = part * steps() + step;
            const Tmm high = of_query(chunk, 0), low = of_query(chunk, 1);
            const auto load_query_tile = [&, chunk](const Tmm& tile, int digit) {
                if (holds_query()) return;
                list.push_back(
                    [=] { tileloadd(tile, ptr[query_ + form_.tile_at(digit, chunk) + tile_row_]); });
            };
            list.push_back([=] { tileloadd(keys, ptr[before_ + tile_at(part, 0) + tile_row_]); });
            load_query_tile(high, 0);
            list.push_back([=] { tdpbssd(sum(0), keys, high); });
            load_query_tile(low, 1);
            list.push_back([=] { tdpbssd(sum(1), keys, low); });
            list.push_back([=] { tileloadd(keys, ptr[before_ + tile_at(part, 1) + tile_row_]); });
            list.push_back([=] { tdpbusd(sum(1), keys, high); });
            list.push_back([=] { tdpbusd(sum(2), keys, low); });
        }
        return list;
    }
    void load_query() {
        for (int chunk = 0; holds_query() && chunk < chunks(); ++chunk)
            for (int digit = 0; digit < ScaledAmx::kDigits; ++digit)
                tileloadd(of_query(chunk, digit), ptr[query_ + form_.tile_at(digit, chunk) + tile_row_]);
    }
    void store_sums() {
        for (int i = 0; i < ScaledAmx::kSums; ++i)
            tilestored(ptr[numbers_ + sums_at() + i * kTile + tile_row_], sum(i));
    }

    // ---- sums ----

    void emit_sums() {
        stage("sums");
        const std::vector<Vec> acc = vecs("acc", kAmxRows);
        {
            Temp low(*this, "low");
            for (int key = 0; key < kAmxRows; ++key) {
                const Vec& total = acc[size_t(key)];
                emit_total(total, low, numbers_ + sums_at() + key * 64);
                vmulps(total, total, ptr_b[tops_ + key * 4]);
            }
        }
        emit_scores(acc);
        add(scores_, 4 * kAmxRows);
    }
    void emit_total(const Vec& total, const Vec& low, const RegExp& sums) {
        const auto shifted = [&](const Vec& to, int sum, int left) {
            left > 0 ? vpslld(to, ptr[sums + sum * kTile], uint8_t(left))
                     : vpsrad(to, ptr[sums + sum * kTile], uint8_t(-left));
        };
        shifted(total, 0, 16 - lost_bits());
        if (lost_bits() == 8) {
            vpaddd(total, total, ptr[sums + kTile]);
        } else {
            shifted(low, 1, 8 - lost_bits());
            vpaddd(total, total, low);
        }
        shifted(low, 2, -lost_bits());
        vpaddd(total, total, low);
        vcvtdq2ps(total, total);
    }

    const RowKey key_;
    const ScaledAmx scaled_;
    Prefetch prefetch_;
    const ScaledDigits digits_;
    const Gpr query_ = gpr("query"), scales_ = gpr("scales"), count_ = gpr("count"),
              numbers_ = gpr("numbers"), row_ = gpr("row"), tile_row_ = gpr("bytes of a tile's row"),
              tiles_ = gpr("tiles"), before_ = gpr("tiles of the keys before"), tops_ = gpr("tops");
    RowList rows_{*this, key_, key_.row_bytes(), "rows"};
    const Xbyak::Opmask rest_{4};
    Vec upper_, order_;
};

}  // namespace

Status generate_qk_scaled_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return QkScaledAmx(key).finish(code);
}

}  // namespace quire::jit
