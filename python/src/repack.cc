// quire.block_bytes and quire.repack
#include "python/src/error.h"
#include "python/src/format.h"
#include "python/src/operators.h"
#include "python/src/scalar.h"

namespace quire_python {

namespace {

constexpr const char* kBytesDoc = R"(Bytes of a block of 16 tokens of one kv head, with their scales.

Args:
    format: "int8_b16_gN" or "int4_b16_gN"; N values share a scale, a multiple of 8 that divides head_dim.
    head_dim: values of a head.)";

quire_format block_format(nb::handle name) {
    const quire_format format = token_format(name);
    if (!format.type)
        fail("format",
             std::string("is ") + nb::repr(name).c_str() + ": must be 'int8_b16_gN' or 'int4_b16_gN'");
    return format;
}

int64_t block_bytes(nb::handle format, nb::handle head_dim) {
    const int32_t dim = to_int32(head_dim, "head_dim");
    const int64_t bytes = quire_block_bytes(block_format(format), dim);
    if (bytes == 0)
        fail("format", std::string("is ") + nb::repr(format).c_str() +
                           ": its group must be a multiple of 8 that divides head_dim, " +
                           std::to_string(dim));
    return bytes;
}

constexpr const char* kDoc = R"(Moves tokens of keys or of values between plain rows and blocks of 16 tokens.

The same codes and scales in other places: there and back is the same bytes. Rows row_begin .. + count and slots
slot_begin .. + count are each other's; with pages, a call for each page.

Args:
    rows: [slots, Hk, D] int8, or uint8: packed int4, in any layout.
    scales: [slots, Hk, D / N] float16.
    blocks: [slots / 16, Hk, quire.block_bytes(format, D)] uint8.
    format: "int8_b16_gN" or "int4_b16_gN".
    side: "key" or "value": the order of both differs.
    to_rows: False: blocks are written; True: rows and scales.
    row_begin, slot_begin: the first row and the first slot.
    count: tokens; None: all rows from row_begin on.)";

void repack(nb::handle rows_array, nb::handle scales_array, nb::handle blocks_array, nb::handle format,
            nb::handle side, nb::handle to_rows, nb::handle row_begin, nb::handle slot_begin,
            nb::handle count) {
    const bool out = to_bool(to_rows, "to_rows");
    const TypeSet codes = bit(QUIRE_INT8) | bit(QUIRE_INT4);
    Tensor rows(rows_array, out ? in_place("rows", codes) : input("rows", codes));
    Tensor scales(scales_array, out ? in_place("scales", bit(QUIRE_F16)) : input("scales", bit(QUIRE_F16)));
    Tensor blocks(blocks_array, out ? input("blocks", bit(QUIRE_INT4)) : in_place("blocks", bit(QUIRE_INT4)));
    blocks.take_as_token_blocks(block_format(format).type, "blocks of tokens");
    rows.require_rank(3, "[slots, Hk, D]");
    const bool is_key =
        PyUnicode_Check(side.ptr()) && PyUnicode_CompareWithASCIIString(side.ptr(), "key") == 0;
    const bool is_value =
        PyUnicode_Check(side.ptr()) && PyUnicode_CompareWithASCIIString(side.ptr(), "value") == 0;
    if (!is_key && !is_value)
        fail("side", std::string("is ") + nb::repr(side).c_str() + ": must be 'key' or 'value'");
    quire_repack_args args{};
    args.struct_size = sizeof args;
    args.rows = rows;
    args.scales = scales;
    args.blocks = blocks;
    args.is_value = is_value;
    args.to_rows = out;
    args.row_begin = to_int64(row_begin, "row_begin");
    args.slot_begin = to_int64(slot_begin, "slot_begin");
    args.count = count.is_none() ? rows.shape(0) - args.row_begin : to_int64(count, "count");
    nb::gil_scoped_release unlocked;
    check(quire_repack(&args));
}

}  // namespace

void bind_repack(nb::module_& module) {
    define(module, "block_bytes", block_bytes, kBytesDoc, arg("format"), arg("head_dim"));
    define(module, "repack", repack, kDoc, arg("rows"), arg("scales"), arg("blocks"), arg("format"),
           arg("side"), nb::kw_only(), arg("to_rows") = false, arg("row_begin") = 0, arg("slot_begin") = 0,
           arg("count") = nb::none());
}

}  // namespace quire_python
