#include "jit/query_tokens.h"

#include "jit/query_emitter.h"

namespace quire::jit {
namespace {

// top = largest magnitude of the row                                           QueryEmitter::begin_row
// digits: factors[0] = top / largest, NaN where top is not finite              take_inverse
// words: factors[0] = top / (largest * largest_factor), as above               emit_unit
// for each run, or vector of eights:
//   for each vector of it:                                                     emit_vector
//     x = elements, of nibbles the even ones of eight before the others
//     bytes: factors[eight] = the eight's largest / 127                        choose_factors
//     words: f[two] = the next whole number of units of the larger one         choose_words
//     number = round(x / factor)
//     bytes[dword] = the number's digits, the highest first, or it and f       store
//     sums += number, or its digits, or number * f
//   starts = -zero * sums                                                      emit_starts
class QueryTokens : public QueryEmitter {
public:
    explicit QueryTokens(const RowKey& key) : QueryEmitter(query_tokens_target(key)), form_(key) {
        begin_row(form_.dim / lanes());
        if (form_.weighs_words)
            emit_unit();
        else
            form_.by_eights() ? take_share() : take_inverse(float(form_.largest));
        const int of_turn = form_.by_eights() ? lanes() : form_.run;
        times(form_.dim / of_turn, "runs left", [&] {
            emit_run(of_turn / lanes());
            add(row_, of_turn * 4);
            add(bytes_, of_turn * form_.dwords());
            form_.by_eights() ? add(factors_, of_turn) : add(starts_, form_.chains * 4);
        });
        end();
    }

private:
    using Vecs = std::vector<Vec>;

    void emit_unit() {
        const float largest = float(form_.largest), most = float(form_.largest_factor);
        take_units(largest, most);
        Temp unit(*this, "unit");
        load_unit(unit, largest, most);
        vmovss(ptr[factors_], Xbyak::Xmm((*unit).getIdx()));
        take_share();
    }

    void emit_run(int vectors) {
        stage("run");
        const Vecs sums = vecs("sum", form_.by_eights() ? 0 : form_.chains);
        for (const Vec& sum : sums) zero(sum);
        for (int i = 0; i < vectors; ++i) emit_vector(i, sums);
        if (!form_.by_eights()) emit_starts(sums);
        free(sums);
    }

    void emit_vector(int i, const Vecs& sums) {
        const Vecs digits = vecs("digit", form_.digits);
        const Vec& x = digits[0];
        Temp words(*this, "factors of two");
        vmovups(x, ptr[row_ + i * vec_bytes()]);
        if (form_.is_nibbles) permute(x, evens_before_odds());
        if (form_.by_eights())
            choose_factors(x);
        else if (form_.weighs_words)
            choose_words(x, words, sums[0]);
        else
            split(digits, sums);
        store(bytes_ + i * lanes() * form_.dwords(), digits, words);
        free(digits);
    }

    std::vector<uint32_t> evens_before_odds() const {
        std::vector<uint32_t> order;
        for (uint32_t lane = 0; lane < uint32_t(lanes()); ++lane)
            order.push_back(lane / 8 * 8 + lane % 4 * 2 + lane % 8 / 4);
        return order;
    }
    // The first `each` of every `of` lanes.
    std::vector<uint32_t> firsts(int each, int of) const {
        std::vector<uint32_t> order;
        for (int first = 0; first < lanes(); first += of)
            for (int i = 0; i < each; ++i) order.push_back(uint32_t(first + i));
        order.resize(size_t(lanes()), 0);
        return order;
    }

    void round(const Vec& x, const Vec& inverse) {
        vmulps(x, x, inverse);
        vcvtps2dq(x, x);
    }

    void choose_factors(const Vec& x) {
        Temp top(*this, "top"), inverse(*this, "inverse"), start(*this, "start");
        vmovaps(top, top_);
        keep_larger(top, x);
        keep_largest(top, TokenBytesForm::kOfFactor);
        choose_factor(top, inverse, float(form_.largest));
        round(x, inverse);
        vmovaps(start, x);
        add_lanes(start, TokenBytesForm::kOfFactor);
        vpmulld(start, start, minus_zero());
        vunpcklps(start, start, top);
        permute(start, firsts(2, TokenBytesForm::kOfFactor));
        store_f32(factors_, start, lanes() / 4);
    }

    void choose_words(const Vec& x, const Vec& words, const Vec& sum) {
        Temp inverse(*this, "inverse");
        vmovaps(words, top_);
        keep_larger(words, x);
        keep_largest(words, 2);
        choose_units(words, inverse);
        round(x, inverse);
        vpmaddwd(inverse, x, words);  // words, of which the upper ones of factors are 0
        vpaddd(sum, sum, inverse);
    }

    // Of two chains the sums are of the higher digits and of whole numbers.
    void split(const Vecs& digits, const Vecs& sums) {
        const Vec& number = digits[0];
        round(number, top_);
        vpaddd(sums.back(), sums.back(), number);
        for (size_t i = digits.size() - 1; i > 0; --i) {
            vmovaps(digits[i], number);
            vpaddd(number, number, splat_bits(0x80));
            vpsrad(number, number, 8);
            if (i == 2 && form_.chains == 2) vpaddd(sums[0], sums[0], number);
        }
    }

    // Of each four elements a dword of every digit, and of words one more. All of these are changed.
    void store(const RegExp& at, const Vecs& digits, const Vec& words) {
        for (const Vec& digit : digits) bit_and(digit, digit, splat_bits(0xff));
        const Vec &first = digits[0], &last = digits.back();
        vpackusdw(first, first, digits.size() > 1 ? digits[1] : first);
        if (digits.size() > 2) vpackusdw(last, last, last);
        vpackuswb(first, first, digits.size() > 2 ? last : first);
        if (form_.weighs_words) {
            vpshufd(words, words, 0x88);
            vpackusdw(words, words, words);
            vpunpckldq(first, first, words);
        }
        permute(first, firsts(form_.dwords(), 4));
        store_f32(at, first, form_.dwords() * lanes() / 4);
    }

    void emit_starts(const Vecs& sums) {
        if (form_.chains == 2) {
            Temp higher(*this, "higher digits");
            vpslld(higher, sums[0], 8);
            vpsubd(sums[1], sums[1], higher);
        }
        for (size_t chain = 0; chain < sums.size(); ++chain) {
            add_lanes(sums[chain], lanes());
            vpmulld(sums[chain], sums[chain], minus_zero());
            vmovss(ptr[starts_ + chain * 4], Xbyak::Xmm(sums[chain].getIdx()));
        }
    }
    Address minus_zero() { return splat_bits(0 - uint32_t(form_.zero)); }

    const TokenBytesForm form_;
};

}  // namespace

const Target& query_tokens_target(const RowKey& key) {
    const TokenBytesForm form(key);
    const int whole = form.by_eights() ? form.dim : form.run;
    return whole % key.target->lanes() == 0 ? *key.target : *find_target("avx2");
}

Status generate_query_tokens(const RowKey& key, std::vector<uint8_t>* code) {
    return QueryTokens(key).finish(code);
}

}  // namespace quire::jit
