// quire_repack: rows to blocks of tokens and back.
#include "src/ops/operator.h"

namespace quire {
namespace {

struct Repacking {
    const TokenBlockInfo* info;
    TokenBlockShape shape;
    RowView rows, scales, blocks;
    int64_t heads;
};

Status check_range_of(const char* name, int64_t begin, int64_t count, int64_t slots) {
    if (begin < 0 || begin > slots || count > slots - begin)
        return invalid("%s is %lld: must be 0 to %lld, so that its %lld tokens lie in %lld slots", name,
                       (long long)begin, (long long)(slots - count), (long long)count, (long long)slots);
    return {};
}

Status check_repack(const quire_repack_args& args, Repacking* r) {
    QUIRE_TRY(check_range("is_value", args.is_value, 0, 1));
    QUIRE_TRY(check_range("to_rows", args.to_rows, 0, 1));
    if (args.blocks == nullptr)
        return invalid("blocks is NULL: must be a tensor [blocks, Hk, quire_block_bytes]");
    r->info = token_block_info(args.blocks->type);
    if (!r->info)
        return invalid("blocks has type %s: must be int8_b16 or int4_b16",
                       type_text(args.blocks->type).c_str());
    QUIRE_TRY(
        check_rows("rows", args.rows, r->info->row_type, "[slots, Hk, D]", {kAny, kAny, kAny}, &r->rows));
    const int64_t slots = args.rows->shape[0], D = args.rows->shape[2];
    r->heads = args.rows->shape[1];
    QUIRE_TRY(check_rows("scales", args.scales, QUIRE_F16, "[slots, Hk, D / quant_group]",
                         {slots, r->heads, kAny}, &r->scales));
    const int64_t groups = args.scales->shape[2];
    QUIRE_TRY(check_range("the last dimension of rows", D, 1, kMostHeadDim));
    if (groups < 1 || D % groups != 0)
        return invalid("scales has %lld groups: must divide the %lld elements of a row", (long long)groups,
                       (long long)D);
    const quire_format format{args.blocks->type, int32_t(D / groups), QUIRE_F16};
    QUIRE_TRY(check_format("blocks", format, int(D)));
    QUIRE_TRY(check_rows("blocks", args.blocks, format.type, "[blocks, Hk, quire_block_bytes]",
                         {kAny, r->heads, block_bytes(format, int(D))}, &r->blocks));
    r->shape = {args.is_value ? Side::value : Side::key, int(D), format.quant_group};
    QUIRE_TRY(check_range("count", args.count, 0, INT64_MAX));
    QUIRE_TRY(check_range_of("row_begin", args.row_begin, args.count, slots));
    int64_t tokens = 0;
    if (__builtin_mul_overflow(args.blocks->shape[0], int64_t(kBlockTokens), &tokens)) tokens = INT64_MAX;
    QUIRE_TRY(check_range_of("slot_begin", args.slot_begin, args.count, tokens));
    if (!args.to_rows) return check_written("blocks", *args.blocks);
    QUIRE_TRY(check_written("rows", *args.rows));
    return check_written("scales", *args.scales);
}

}  // namespace

Status repack(const quire_repack_args& args) {
    Repacking r{};
    QUIRE_TRY(check_repack(args, &r));
    for (int64_t i = 0; i < args.count; ++i)
        for (int64_t head = 0; head < r.heads; ++head) {
            const int64_t row = args.row_begin + i, slot = args.slot_begin + i;
            char *codes = r.rows.at(row, head), *scales = r.scales.at(row, head),
                 *block = r.blocks.at(slot / kBlockTokens, head);
            const int token = int(slot % kBlockTokens);
            args.to_rows ? take_row(*r.info, r.shape, block, token, codes, scales)
                         : place_row(*r.info, r.shape, codes, scales, block, token);
        }
    return {};
}

}  // namespace quire
