// One query row as jit/token_qk_amx.h takes it.
#include "jit/query_digits_emitter.h"
#include "jit/token_qk_amx.h"

namespace quire::jit {
namespace {

// Digits; then of each set, chunk, group and digit the row's line: those of the chunk's elements that are of
// the group, else 0.
class QueryTokenAmx : public QueryDigits<TokenKeyAmx> {
public:
    explicit QueryTokenAmx(const RowKey& key) : QueryDigits(key) {
        begin_digits();
        emit_digits();
        stage("lines");
        for (int i = 0; i < int(form_.sets.size()); ++i)
            for (int chunk = 0; chunk < form_.sets[size_t(i)].chunks; ++chunk) emit_lines(i, chunk);
        end();
    }

private:
    static constexpr int kChunk = TokenKeyAmx::kChunk;

    void emit_lines(int i, int within) {
        const TokenKeyAmx::Set& set = form_.sets[size_t(i)];
        const int chunk = set.chunk + within, lines = form_.query_at(i, within);
        const std::vector<Vec> digits = vecs("digits", form_.digits);
        for (int digit = 0; digit < form_.digits; ++digit) load_chunk(digits[size_t(digit)], digit, chunk);
        Temp of_group(*this, "of the group");
        for (int group = 0; group < set.groups; ++group) {
            set_bytes(bytes_of(chunk, set.group + group));
            for (int digit = 0; digit < form_.digits; ++digit) {
                vmovdqu8(Xbyak::Zmm((*of_group).getIdx()) | k1 | T_z, digits[size_t(digit)]);
                vmovups(ptr[bytes_ + lines + form_.line_at(set, digit, group)], *of_group);
            }
        }
        free(digits);
    }

    void load_chunk(const Vec& v, int digit, int chunk) {
        const RegExp plane = starts_ + digit * form_.plane_bytes();
        if (form_.parts == 1) return vmovups(v, ptr[plane + form_.chunk_at(chunk)]);
        const RegExp even = plane + chunk * kChunk / 2;
        vmovups(Xbyak::Ymm(v.getIdx()), ptr[even]);
        vinserti64x4(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), ptr[even + form_.padded_part()], 1);
    }

    void set_bytes(uint64_t bytes) {
        mov(eax, uint32_t(bytes));
        kmovd(k1, eax);
        mov(eax, uint32_t(bytes >> 32));
        kmovd(k2, eax);
        kunpckdq(k1, k2, k1);
    }
    uint64_t bytes_of(int chunk, int group) const {
        uint64_t bytes = 0;
        for (int i = 0; i < kChunk; ++i) {
            const int d = form_.element_of(chunk, i);
            if (d >= 0 && d / form_.group_size == group) bytes |= uint64_t(1) << i;
        }
        return bytes;
    }
};

}  // namespace

Status generate_query_token_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return QueryTokenAmx(key).finish(code);
}

}  // namespace quire::jit
