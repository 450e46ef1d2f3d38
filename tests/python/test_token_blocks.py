"""Caches in blocks of 16 tokens: append, attention and repack, against the same codes in rows."""

import re

import numpy as np
import pytest
import quire

FORMATS = ["int8_b16_g8", "int8_b16_g32", "int4_b16_g16", "int4_b16_g64"]
D, DV, HK = 64, 128, 2


def group_of(name):
    return int(name.split("_g")[1])


def rows_of(name, slots, dim):
    """Empty rows and scales."""
    int8 = name.startswith("int8")
    codes = np.zeros((slots, HK, dim if int8 else dim // 2), np.int8 if int8 else np.uint8)
    return codes, np.zeros((slots, HK, dim // group_of(name)), np.float16)


def blocks_of(name, slots, dim):
    return np.full((slots // 16, HK, quire.block_bytes(name, dim)), 0xFF, np.uint8)  # NaN scales


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("name", FORMATS)
def test_append_then_attention(name, precision):
    """Prompts, then tokens one by one, that fill blocks in part, over pages that are shuffled."""
    generator = np.random.default_rng(3)
    key, key_scale = rows_of(name, 160, D)
    value, value_scale = rows_of(name, 160, DV)
    key_blocks, value_blocks = blocks_of(name, 160, D), blocks_of(name, 160, DV)
    pages = np.array([[96, 0, 64], [32, 128, -1]])
    lengths = np.array([0, 0])
    for new in ([37, 5], [1, 1], [1, 1], [9, 20], [1, 1]):
        starts = np.concatenate([[0], np.cumsum(new)])
        new_key = generator.normal(size=(sum(new), HK, D)).astype(np.float32)
        new_value = generator.normal(size=(sum(new), HK, DV)).astype(np.float32)
        query = generator.normal(size=(sum(new), 4 * HK, D)).astype(np.float32)
        common = dict(seqstarts=starts, cachestarts=pages, page_size=32)
        quire.append(new_key, new_value, key, value, key_scale, value_scale, start_pos=lengths, **common)
        formats = dict(key_format=name, value_format=name)
        quire.append(new_key, new_value, key_blocks, value_blocks, start_pos=lengths, **formats, **common)
        lengths = lengths + new
        common.update(kvstarts=np.concatenate([[0], np.cumsum(lengths)]), is_causal=True, return_lse=True)
        wanted, wanted_lse = quire.attention(query, key, value, key_scale, value_scale, **common)
        output, lse = quire.attention(
            query, key_blocks, value_blocks, precision=precision, **formats, **common
        )
        tolerance = 1e-5 if precision == "highest" else 2e-3
        np.testing.assert_allclose(output, wanted, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(lse, wanted_lse, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("side, dim", [("key", D), ("value", DV)])
@pytest.mark.parametrize("layout", range(4))
@pytest.mark.parametrize("name", FORMATS)
def test_repack(name, layout, side, dim):
    """What append stores in blocks is what it stores in rows of a PMX layout, moved; and back."""
    generator = np.random.default_rng(4)
    axes = [(40, 3, 2, HK), (3, 40, 2, HK), (3, 2, 40, HK), (3, 2, HK, 40)][layout]
    order = [(1, 2, 0, 3), (0, 2, 1, 3), (0, 1, 2, 3), (0, 1, 3, 2)][layout]

    def view(array):  # layer 1, keys or values: [40, HK, ...]
        return array.transpose(*order, 4)[1, int(side == "value")]

    codes, scales = rows_of(name, 1, dim)
    cache = np.zeros((*axes, codes.shape[2]), codes.dtype)
    scale = np.zeros((*axes, scales.shape[2]), np.float16)
    new = generator.normal(size=(40, HK, dim)).astype(np.float32)
    quire.append(
        new,
        new,
        view(cache),
        view(cache).copy(),
        view(scale),
        view(scale).copy(),
        start_pos=0,
        cachestarts=[0],
    )
    other, blocks = blocks_of(name, 48, dim), blocks_of(name, 48, dim)
    sides = (blocks, other) if side == "key" else (other, blocks)
    quire.append(new, new, *sides, start_pos=0, cachestarts=[0], key_format=name, value_format=name)
    moved = blocks_of(name, 48, dim)
    quire.repack(view(cache), view(scale), moved, name, side)
    np.testing.assert_array_equal(moved, blocks)
    back, back_scale = np.zeros_like(cache), np.zeros_like(scale)
    quire.repack(view(back), view(back_scale), moved, name, side, to_rows=True)
    np.testing.assert_array_equal(back, cache)
    np.testing.assert_array_equal(back_scale, scale)


def test_block_bytes():
    assert quire.block_bytes("int8_b16_g32", 128) == 16 * (128 + 2 * 4)
    assert quire.block_bytes("int4_b16_g8", 64) == 16 * (32 + 2 * 8)


def test_errors():
    query = np.zeros((1, 1, 64), np.float32)
    name = "int8_b16_g32"
    blocks = np.zeros((3, 1, quire.block_bytes(name, 64)), np.uint8)

    def wrong(message, call):
        with pytest.raises(quire.Error, match=re.escape(message)):
            call()

    def attend(key=blocks, value=blocks, key_format=name, value_format=name, **options):
        return lambda: quire.attention(
            query, key, value, key_format=key_format, value_format=value_format, **options
        )

    assert np.isfinite(attend()()[0]).all()
    wrong("key_format is 'int8_b16': must be None or one of 'q8_0'", attend(key_format="int8_b16"))
    wrong("key_format is 'int8_b16_g': must be", attend(key_format="int8_b16_g"))
    wrong("key_format is 'int8_b16_g1x': must be", attend(key_format="int8_b16_g1x"))
    wrong("key has type float32: must be uint8, the bytes of int8_b16", attend(key=query))
    wrong(
        "value has a last dimension of 70: must be the bytes of a block of int8_b16_g32",
        attend(value=blocks[:, :, :70]),
    )
    wrong("key_format.quant_group is 12: must be a multiple of 8", attend(key_format="int8_b16_g12"))
    wrong(
        "key_scale is given, but key is int8_b16, which holds its scales",
        attend(key_scale=np.ones((3, 1, 2), np.float16)),
    )
    wrong(
        "page_size is 8: must be a multiple of 16 for int8_b16",
        attend(page_size=8, kvstarts=[0, 3], cachestarts=[[0]]),
    )
    wrong(
        "cachestarts[0] is 8: must be a multiple of 16 for int8_b16",
        attend(kvstarts=[0, 3], cachestarts=[8]),
    )
    wrong("format is 'int8': must be 'int8_b16_gN' or 'int4_b16_gN'", lambda: quire.block_bytes("int8", 64))
    wrong(
        "format is 'int8_b16_g12': its group must be a multiple of 8 that divides head_dim, 64",
        lambda: quire.block_bytes("int8_b16_g12", 64),
    )
    rows, scales = np.zeros((48, 1, 64), np.int8), np.zeros((48, 1, 2), np.float16)
    wrong("side is 3: must be 'key' or 'value'", lambda: quire.repack(rows, scales, blocks, name, 3))
    wrong(
        "slot_begin is 9: must be 0 to 0, so that its 48 tokens lie in 48 slots",
        lambda: quire.repack(rows, scales, blocks, name, "key", slot_begin=9),
    )
    locked = blocks.copy()
    locked.flags.writeable = False
    wrong(
        "blocks is read-only: it is changed in place", lambda: quire.repack(rows, scales, locked, name, "key")
    )
