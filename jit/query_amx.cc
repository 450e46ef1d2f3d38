// One query row as jit/qk_amx.h takes it.
#include <cstddef>

#include "jit/qk_amx.h"
#include "jit/query_digits_emitter.h"

namespace quire::jit {
namespace {

// Digits (of scaled nibbles, which are times 16, with a sixteenth of the factor); then
// for each plane, step, four bytes of the chunk: the row's columns = 0, but the group's  emit_columns
class QueryAmx : public QueryDigits<KeyAmx> {
public:
    explicit QueryAmx(const RowKey& key) : QueryDigits(key) {
        begin_digits();
        if (form_.parts == 2 && key.scales_tiles()) {
            const Xbyak::Xmm factor(vec("factor").getIdx());
            vmovss(factor, ptr[factors_]);
            vmulss(factor, factor, splat(1 / 16.f));
            vmovss(ptr[factors_], factor);
        }
        emit_digits();
        emit_columns();
        end();
    }

private:
    void emit_columns() {
        stage("columns");
        Temp none(*this, "0");
        zero(none);
        times(form_.planes(), "planes", [&] {
            for (int i = 0; i < int(form_.steps.size()); ++i)
                for (int at = 0; at < chunk_of(i).bytes; at += 4) emit_dword(i, at, none);
            add(bytes_, int(form_.steps.size()) * form_.tile_bytes());
            add(starts_, form_.plane_bytes());
        });
    }
    const KeyAmx::Chunk& chunk_of(int step) const {
        return form_.chunks[size_t(form_.steps[size_t(step)].chunk)];
    }
    void emit_dword(int step, int at, const Vec& none) {
        const KeyAmx::Chunk& chunk = chunk_of(step);
        const auto columns = form_.columns_of(form_.steps[size_t(step)].set, form_.group_of(chunk, at));
        const RegExp to = bytes_ + form_.tile_at(0, step) + at / 4 * form_.lane_bytes();
        if (int(columns.size()) < form_.together) store_none(to, none);
        for (const KeyAmx::Column& column : columns) {
            const int from = form_.part_of(chunk, at) * form_.padded_part() + form_.at_of(chunk, at);
            mov(eax, ptr[starts_ + column.digit * form_.plane_bytes() + from]);
            mov(ptr[to + column.at * 4], eax);
        }
    }
    void store_none(const RegExp& to, const Vec& none) {
        switch (form_.together) {
            case 1: return mov(dword[to], 0);
            case 2: return mov(qword[to], 0);
            case 4: return vmovups(ptr[to], Xbyak::Xmm(none.getIdx()));
            case 8: return vmovups(ptr[to], Xbyak::Ymm(none.getIdx()));
            default: return vmovups(ptr[to], none);
        }
    }
};

}  // namespace

Status generate_query_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return QueryAmx(key).finish(code);
}

}  // namespace quire::jit
