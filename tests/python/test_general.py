"""quire.append, quire.attention and quire.merge_states on random problems, against the float64 definition.

Ragged batches over caches whose keys and values have formats and head sizes of their own; batches of one
length are in test_batched.py.
"""

from dataclasses import dataclass

import contexts
import ml_dtypes
import numpy as np
import pytest
import quire
import reference
from hypothesis import given
from hypothesis import strategies as st
from test_properties import lengths, options

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"float32": 2e-5, "float16": 1.5e-3, "bfloat16": 1.2e-2}
TYPES = st.sampled_from(["float32", "float32", "float16", "bfloat16"])


@dataclass
class Side:
    """Keys or values: rows [slots, Hk, dim] (int4 held one to an int8) and scales, or None."""

    rows: np.ndarray
    scale: np.ndarray
    quant_bit: int
    quant_group: int

    def dequantised(self, at):
        if self.scale is None:
            return self.rows[at].astype(float)
        return reference.dequantise(self.rows[at], self.scale[at])

    def passed(self):
        """Copies of rows and scales, as quire takes them."""
        rows = quire.pack_int4(self.rows) if self.quant_bit == 4 else self.rows.copy()
        return rows, None if self.scale is None else self.scale.copy()


@st.composite
def sides(draw, rng, slots, kv_heads):
    quant_bit = draw(st.sampled_from([0, 8, 4]))
    odd_sizes = [1, 3, 7, 45] if quant_bit == 0 else [2, 10]
    dim = draw(st.sampled_from([8, 16, 40, 64, 128, *odd_sizes]))
    groups = [group for group in (1, 2, 4, 5, 8, 16, 32, 64, dim) if dim % group == 0]
    group = draw(st.sampled_from(groups))
    numbers = rng.normal(size=(slots, kv_heads, dim)).astype(np.float32)
    if quant_bit == 0:
        return Side(numbers.astype(DTYPES[draw(TYPES)]), None, 0, 0)
    codes, scale = reference.quantise(numbers, quant_bit, group)
    return Side(codes, scale.astype(draw(st.sampled_from(["float32", "float16"]))), quant_bit, group)


def place(rng, totals, page_size):
    """(cachestarts, slots): sequences, or their pages, in random order with gaps between them."""
    pages = [-(-total // page_size) if page_size else 1 for total in totals]
    sizes = [page_size or total for total, count in zip(totals, pages) for _ in range(count)]
    order = rng.permutation(len(sizes))
    starts, row = np.zeros(len(sizes), np.int64), 0
    for i in order:
        starts[i] = row + rng.integers(0, 3)
        row = starts[i] + sizes[i]
    if not page_size:
        return starts, row
    table = np.full((len(totals), max(pages, default=0)), -1)
    for b, first in enumerate(np.cumsum([0, *pages])[:-1]):
        table[b, : pages[b]] = starts[first : first + pages[b]]
    return table, row


@dataclass
class Problem:
    seqstarts: np.ndarray
    kvstarts: np.ndarray
    start_pos: np.ndarray
    cachestarts: np.ndarray
    page_size: int
    key: Side
    value: Side
    query: np.ndarray
    new_key: np.ndarray
    new_value: np.ndarray
    options: dict  # of quire.attention

    def rows(self, b):
        positions = np.arange(self.kvstarts[b + 1] - self.kvstarts[b])
        return reference.rows_of(self.cachestarts, b, positions, int(self.page_size > 0), self.page_size)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    new, past = np.array(draw(lengths()), np.int64).reshape(-1, 2).T
    kv_heads, activation = draw(st.integers(1, 3)), DTYPES[draw(TYPES)]
    heads = kv_heads * draw(st.sampled_from([1, 2, 3, 4, 7]))
    page_size = draw(st.sampled_from([0, 1, 3, 16]))
    cachestarts, slots = place(rng, new + past, page_size)
    key, value = draw(sides(rng, slots, kv_heads)), draw(sides(rng, slots, kv_heads))
    seqstarts, kvstarts = (np.concatenate([[0], np.cumsum(x)]) for x in (new, new + past))

    def normal(*shape):
        return rng.normal(size=shape).astype(activation)

    n, columns = seqstarts[-1], kvstarts[-1] + draw(st.integers(0, 3))
    chosen = draw(options()) | {"is_causal": draw(st.booleans())}
    chosen["scale"] = chosen.pop("softmax_scale", None)
    chosen["decoding_batches"] = draw(st.integers(0, len(new)))
    if draw(st.booleans()):
        chosen["sinks"] = rng.normal(size=heads).astype(np.float32)
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(n, columns), (1, n, columns), (heads, n, columns)]))
        mask = rng.normal(size=shape).astype(np.float32)
        mask[rng.random(shape) < 0.2] = -np.inf
        chosen["attn_mask"] = mask > -0.5 if draw(st.booleans()) else mask
    if draw(st.booleans()):
        chosen["key_begin"], chosen["key_end"] = np.sort(
            rng.integers(0, new + past + 1, (2, len(new))), axis=0
        )
    return Problem(
        *(seqstarts, kvstarts, past, cachestarts, page_size, key, value),
        query=normal(n, heads, key.rows.shape[2]),
        new_key=normal(n, kv_heads, key.rows.shape[2]),
        new_value=normal(n, kv_heads, value.rows.shape[2]),
        options=chosen,
    )


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems())
def test_append(target, problem):
    p = problem
    (key, key_scale), (value, value_scale) = p.key.passed(), p.value.passed()
    quire.append(
        *(
            p.new_key,
            p.new_value,
            key,
            value,
            key_scale,
            value_scale,
            p.seqstarts,
            p.start_pos,
            p.cachestarts,
        ),
        page_size=p.page_size,
        context=contexts.context(target),
    )
    rows = reference.written_rows(
        *(p.seqstarts, p.start_pos, p.cachestarts), cache_mode=int(p.page_size > 0), page_size=p.page_size
    )
    for new, side, got, got_scale in (
        (p.new_key, p.key, key, key_scale),
        (p.new_value, p.value, value, value_scale),
    ):
        wanted = Side(side.rows.copy(), None if side.scale is None else side.scale.copy(), side.quant_bit, 0)
        reference.store(new, rows, wanted.rows, wanted.scale, side.quant_bit, side.quant_group)
        assert got.tobytes() == wanted.passed()[0].tobytes()
        assert got_scale is None or got_scale.tobytes() == wanted.scale.tobytes()


def wanted_attention(p, b):
    """Output and lse of sequence b."""
    chosen = dict(p.options)
    tokens, columns = slice(*p.seqstarts[b : b + 2]), slice(*p.kvstarts[b : b + 2])
    keys = columns.stop - columns.start
    mask = np.zeros((1, tokens.stop - tokens.start, keys))
    if (given_mask := chosen.pop("attn_mask", None)) is not None:
        given_mask = given_mask[..., tokens, columns]
        added = np.where(given_mask, 0, -np.inf) if given_mask.dtype == bool else given_mask
        mask = mask + added
    begin, end = chosen.pop("key_begin", None), chosen.pop("key_end", None)
    if begin is not None:
        mask[..., (np.arange(keys) < begin[b]) | (np.arange(keys) >= end[b])] = -np.inf
    decoding = b < chosen.pop("decoding_batches")
    chosen["is_causal"] = chosen["is_causal"] and not decoding
    rows = p.rows(b)
    key, value = p.key.dequantised(rows), p.value.dequantised(rows)
    return reference.attention(p.query[tokens], key, value, attn_mask=mask, **chosen)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems())
def test_attention(target, problem):
    p = problem
    (key, key_scale), (value, value_scale) = p.key.passed(), p.value.passed()
    output, lse = quire.attention(
        *(p.query, key, value, key_scale, value_scale, p.seqstarts, p.kvstarts, p.cachestarts),
        **p.options,
        page_size=p.page_size,
        return_lse=True,
        context=contexts.context(target),
    )
    assert output.dtype == p.query.dtype and output.shape[2] == p.value.rows.shape[2]
    tolerance = TOLERANCE[p.query.dtype.name]
    for b in range(len(p.start_pos)):
        tokens = slice(*p.seqstarts[b : b + 2])
        wanted, wanted_lse = wanted_attention(p, b)
        np.testing.assert_allclose(output[tokens].astype(float), wanted, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(lse[tokens], wanted_lse, atol=5e-5, rtol=2e-5)


@given(
    *(st.integers(0, 1000), st.sampled_from([0, 1, 5]), st.sampled_from([0, 1, 3])),
    *(st.sampled_from([1, 2, 40, 300]), TYPES, st.sampled_from([1, 30, 300])),
)
def test_merge_states(seed, tokens, heads, value_head_dim, dtype, spread):
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        lse = (rng.normal(size=(tokens, heads)) * spread).astype(np.float32)
        lse[rng.random(lse.shape) < 0.2] = -np.inf
        parts += [rng.normal(size=(tokens, heads, value_head_dim)).astype(DTYPES[dtype]), lse]
    output, lse = quire.merge_states(*parts)
    wanted, wanted_lse = reference.merge_states(*(part.astype(float) for part in parts))
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(output.astype(float), wanted, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(lse, wanted_lse, atol=1e-6, rtol=1e-6)
