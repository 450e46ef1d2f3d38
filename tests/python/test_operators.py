"""quire.append, quire.merge_states, int4, and mixed formats in quire.attention."""

import numpy as np
import pytest
import quire
import reference
from arrays import assert_attention, dense


@pytest.mark.parametrize("quant_bit", [0, 8, 4])
def test_append_then_attention(quant_bit):
    """Two paged sequences, written in two steps, against quantising and attending in NumPy."""
    rng = np.random.default_rng(3)
    lengths, page_size = [5, 9], 4
    table = np.array([[8, 20, -1], [0, 12, 28]])
    tokens = [rng.normal(size=(2, length, 2, 16)).astype(np.float32) for length in lengths]
    width = {0: 16, 8: 16, 4: 8}[quant_bit]
    cache = np.zeros((2, 32, 2, width), {0: np.float16, 8: np.int8, 4: np.uint8}[quant_bit])
    scales = np.full((2, 32, 2, 4), np.nan, np.float32) if quant_bit else (None, None)
    for begin, end in ((0, 3), (3, 99)):
        new = [np.concatenate([part[i][begin:end] for part in tokens]) for i in (0, 1)]
        counts = [len(part[0][begin:end]) for part in tokens]
        quire.append(
            *new, *cache, *scales, np.cumsum([0, *counts]), [begin, begin], table, page_size=page_size
        )
    query = rng.normal(size=(2, 4, 16)).astype(np.float32)
    output, _ = quire.attention(
        query, *cache, *scales, [0, 1, 2], np.cumsum([0, *lengths]), table, page_size=page_size
    )
    for b, part in enumerate(tokens):
        if quant_bit:
            key, value = (reference.dequantise(*reference.quantise(x, quant_bit, 4)) for x in part)
        else:
            key, value = part.astype(np.float16).astype(float)
        assert_attention(output[b : b + 1], query[b : b + 1], key, value)
    unused = np.ones(32, bool)
    for b, length in enumerate(lengths):
        unused[reference.rows_of(table, b, np.arange(length), 1, page_size)] = False
    assert not cache[:, unused].any()


def test_append_to_a_cache_of_one_sequence():
    _, key, value = dense(keys=4)
    cache = np.full((2, 10, 2, 16), 7, np.float32)
    quire.append(key, value, *cache, start_pos=3)
    np.testing.assert_array_equal(cache[:, 3:7], [key, value])
    assert (cache[:, :3] == 7).all() and (cache[:, 7:] == 7).all()
    with pytest.raises(quire.Error, match="cachestarts is None"):
        quire.append(key, value, *cache, seqstarts=[0, 2, 4], start_pos=[0, 0])
    with pytest.raises(quire.Error, match="start_pos is None"):
        quire.append(key, value, *cache)


def test_append_of_batches():
    """[B, S, Hk, D] to rows, and to [B, T, Hk, D]: what the packed form stores."""
    rng = np.random.default_rng(5)
    new = rng.normal(size=(2, 3, 4, 2, 16)).astype(np.float32)  # keys and values of 3 sequences, 4 tokens
    flat, starts, begin = new.reshape(2, 12, 2, 16), [0, 4, 8, 12], [1, 0, 5]
    wanted, rows, dense_rows = (np.zeros((2, 30, 2, 16), np.float16) for _ in range(3))
    quire.append(*flat, *wanted, None, None, starts, begin, [0, 10, 20])
    quire.append(*new, *rows, start_pos=begin, cachestarts=[0, 10, 20])
    quire.append(
        *new.swapaxes(2, 3).copy().swapaxes(2, 3), *dense_rows.reshape(2, 3, 10, 2, 16), start_pos=begin
    )
    for stored in (rows, dense_rows):
        np.testing.assert_array_equal(stored, wanted)
    again = np.zeros((2, 1, 10, 2, 16), np.float16)
    quire.append(*new[:, :1], *again[:, 0], start_pos=2)
    quire.append(*flat[:, :4], *again, start_pos=6)
    np.testing.assert_array_equal(again[:, 0, 2:6], again[:, 0, 6:])
    for message, wrong in {
        "new_key has 5 dimensions: must be [n, Hk, D] or [B, S, Hk, D]": {"new_key": new[:1]},
        "new_value has 3 dimensions: must be [B, S, Hk, Dv]": {"new_value": flat[1]},
        "value has 3 dimensions: must be [B, T, Hk, Dv]": {"value": rows[1]},
        "cachestarts is None: must be given with more than one sequence": {"key": rows[0], "value": rows[1]},
        "start_pos[1] is 7": {"start_pos": [0, 7, 0]},
    }.items():
        wide = dense_rows.reshape(2, 3, 10, 2, 16)
        names = {"new_key": new[0], "new_value": new[1], "key": wide[0], "value": wide[1], "start_pos": 0}
        with pytest.raises(quire.Error) as error:
            quire.append(**{**names, **wrong})
        assert message in str(error.value)


def test_append_refuses_what_it_cannot_write():
    _, key, value = dense(keys=4)
    cache = np.zeros((2, 10, 2, 16), np.float32)
    cache.flags.writeable = False
    with pytest.raises(quire.Error, match="key is read-only"):
        quire.append(key, value, *cache, start_pos=3)
    with pytest.raises(quire.Error, match="key has type float64"):
        quire.append(key, value, *cache.astype(float), start_pos=3)
    with pytest.raises(quire.Error, match="key is of class list"):
        quire.append(key, value, cache[0].tolist(), cache[1].tolist(), start_pos=3)


def test_key_and_value_of_other_formats_and_sizes():
    """int8 keys of 16 with groups of 8, packed int4 values of 24 with groups of 12."""
    rng = np.random.default_rng(4)
    query, key = (
        rng.normal(size=(2, 4, 16)).astype(np.float32),
        rng.normal(size=(7, 2, 16)).astype(np.float32),
    )
    value = rng.normal(size=(7, 2, 24)).astype(np.float16)
    key_codes, key_scale = reference.quantise(key, 8, 8)
    value_codes, value_scale = reference.quantise(value, 4, 12)
    output, _ = quire.attention(query, key_codes, quire.pack_int4(value_codes), key_scale, value_scale)
    wanted = reference.dequantise(key_codes, key_scale), reference.dequantise(value_codes, value_scale)
    assert output.shape == (2, 4, 24)
    assert_attention(output, query, *wanted)


def test_merge_states():
    query, key, value = dense(keys=12)
    parts = [
        quire.attention(query, key[part], value[part], return_lse=True)
        for part in np.split(np.arange(12), [5])
    ]
    output, lse = quire.merge_states(*parts[0], *parts[1])
    wanted, wanted_lse = reference.attention(query, key, value)
    np.testing.assert_allclose(output, wanted, atol=2e-5)
    np.testing.assert_allclose(lse, wanted_lse, atol=2e-5)
    with pytest.raises(quire.Error, match="lse_b"):
        quire.merge_states(*parts[0], parts[1][0], parts[1][1][:1])


def test_pack_int4():
    values = np.arange(-8, 8).reshape(2, 8)
    packed = quire.pack_int4(values)
    assert packed.dtype == np.uint8 and packed.shape == (2, 4)
    assert packed[0, 0] == (0x8 | 0x9 << 4) and packed[1, 3] == (6 | 7 << 4)
    np.testing.assert_array_equal(quire.unpack_int4(packed), values)
    np.testing.assert_array_equal(quire.unpack_int4(packed[:, ::2]), values[:, [0, 1, 4, 5]])
    assert quire.pack_int4(np.zeros((0, 6), np.int8)).shape == (0, 3)
    for wrong in ([1, 2, 3], [1.0, 2.0], [8, 0], [-9, 0], 3):
        with pytest.raises(quire.Error, match="values"):
            quire.pack_int4(wrong)
    with pytest.raises(quire.Error, match="packed"):
        quire.unpack_int4(values)
