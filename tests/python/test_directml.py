"""quire.directml.multihead_attention1: random calls against the definition, and calls that must agree."""

import contexts
import numpy as np
import pytest
import quire
import reference_directml
from hypothesis import given
from hypothesis import strategies as st

LOWEST = float(np.finfo(np.float32).min)
RANGE_MASKS = ("KEY_SEQUENCE_LENGTH", "KEY_SEQUENCE_END_START", "KEY_QUERY_SEQUENCE_LENGTH_START_END")
FORMS = ("separate", "query_key", "key_value", "all", "past_only")
# float32 keeps scores to 2^-10 beside a mask_filter_value of -10000.
TOLERANCE = {"float32": 2e-5, "float16": 1.5e-3}
TOLERANCE_OF_PADDING_ALONE = 4e-3


class Arrays:
    """Draws arrays of a type, sometimes as views with gaps between rows, and with dimensions of length 1."""

    def __init__(self, draw, dtype):
        self.draw, self.dtype = draw, dtype
        self.rng = np.random.default_rng(draw(st.integers(0, 1000)))
        self.gaps = draw(st.booleans())

    def normal(self, *shape, gaps=True):
        wide = (*shape[:-1], shape[-1] + 5 * (self.gaps and gaps))
        return self.rng.normal(size=wide).astype(self.dtype)[..., : shape[-1]]

    def with_ones(self, array, most=5):
        extra = self.draw(st.sampled_from([0, 0, 1, 2]))
        return array.reshape((1,) * min(extra, most - array.ndim) + array.shape) if extra else array


def draw_inputs(draw, arrays, form, sizes):
    B, S, N, H, Hk, D, Dv = sizes
    if form == "all":
        return {"stacked_query_key_value": arrays.normal(B, S, H, 3, D)}
    value = {"value": arrays.with_ones(arrays.normal(B, N, Hk * Dv))}
    if form == "query_key":
        return {"stacked_query_key": arrays.normal(B, S, H, 2, D), **value}
    query = {"query": arrays.with_ones(arrays.normal(B, S, H * D))}
    if form == "past_only":
        return query
    if form == "key_value":
        return {**query, "stacked_key_value": arrays.normal(B, N, Hk, 2, D)}
    return {**query, "key": arrays.with_ones(arrays.normal(B, N, Hk * D)), **value}


def draw_mask(draw, arrays, B, H, S, T):
    mask_type = draw(st.sampled_from([None, "NONE", "BOOLEAN", "BOOLEAN", *RANGE_MASKS]))
    filters = st.sampled_from([-10000.0, -2.5, LOWEST, -np.inf])
    chosen = {"mask_type": mask_type, "mask_filter_value": draw(filters)}
    integers = arrays.rng.integers
    if mask_type == "BOOLEAN":
        shapes = [(B, 1, 1, T), (B, 1, S, T), (1, 1, S, T), (B, H, S, T), (S, T), (T,), (1, 1), (H, 1, T)]
        mask = integers(-1, 2, draw(st.sampled_from(shapes)))
    elif mask_type == "KEY_SEQUENCE_LENGTH":
        mask = integers(-1, T + 2, (1, B))
    elif mask_type == "KEY_SEQUENCE_END_START":
        mask = integers(-1, T + 2, (2, B))
    elif mask_type == "KEY_QUERY_SEQUENCE_LENGTH_START_END":
        mask = integers(-1, T + 2, 3 * B + 2)
    else:
        return chosen
    return {**chosen, "mask": arrays.with_ones(mask.astype(np.int32))}


def draw_past(draw, arrays, B, Hk, D, Dv, needed):
    past = draw(st.sampled_from([None, 0, 1, 5, 40])) if not needed else draw(st.sampled_from([1, 3, 6, 300]))
    if past is None:
        return 0, {}
    chosen = {
        "past_key": arrays.with_ones(arrays.normal(B, Hk, past, D)),
        "past_value": arrays.with_ones(arrays.normal(B, Hk, past, Dv)),
    }
    if draw(st.booleans()):
        lengths = arrays.rng.integers(0, past + 1, B)
        dtype = draw(st.sampled_from([np.int32, arrays.dtype]))
        chosen["past_sequence_lengths"] = arrays.with_ones(lengths.astype(dtype))
        for name in ("past_key", "past_value"):  # dead, and never read
            rows = reference_directml.core(chosen[name], 4)
            for b, length in enumerate(lengths):
                rows[b, :, length:] = np.nan
    return past, chosen


@st.composite
def calls(draw):
    """Arguments of multihead_attention1."""
    arrays = Arrays(draw, draw(st.sampled_from([np.float32, np.float16])))
    form = draw(st.sampled_from(FORMS))
    B, Hk = draw(st.sampled_from([1, 2, 3, 0])), draw(st.integers(1, 3))
    H = Hk * (1 if form in ("all", "query_key") else draw(st.sampled_from([1, 2, 4])))
    D = draw(st.sampled_from([1, 3, 8, 16, 20, 64, 80]))
    Dv = D if form in ("all", "key_value") else draw(st.sampled_from([D, D, 2, 24]))
    S = draw(st.sampled_from([1, 2, 5, 33, 0]))
    N = S if form in ("all", "query_key") else draw(st.sampled_from([1, 4, 7, 70, 0]))
    past, chosen = draw_past(draw, arrays, B, Hk, D, Dv, form == "past_only")
    T = past + (0 if form == "past_only" else N)
    arguments = {**draw_inputs(draw, arrays, form, (B, S, N, H, Hk, D, Dv)), **chosen}
    if draw(st.booleans()):
        arguments["bias"] = arrays.with_ones(arrays.normal(H * D + Hk * D + Hk * Dv))
    if draw(st.booleans()):
        shape = [draw(st.sampled_from([length, 1])) for length in (B, H, S, T)]
        bias = arrays.normal(*shape)
        bias[arrays.rng.random(bias.shape) < 0.1] = -np.inf
        arguments["relative_position_bias"] = arrays.with_ones(bias)
    arguments |= draw_mask(draw, arrays, B, H, S, T)
    scale = draw(st.sampled_from([float(1 / np.sqrt(D)), 0.0, -0.3]))
    return {**arguments, "query_head_count": H, "key_value_head_count": Hk, "scale": scale}


def same_bits(first, second):
    return all(one.tobytes() == other.tobytes() for one, other in zip(first, second))


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(arguments=calls())
def test_definition(target, arguments):
    results = quire.directml.multihead_attention1(**arguments, context=contexts.context(target))
    *wanted, alone = reference_directml.multihead_attention1(**arguments)
    dtype = results[0].dtype
    assert all(array.dtype == dtype for name, array in arguments.items() if name in ("query", "past_key"))
    assert all(result.dtype == dtype for result in results)
    output = reference_directml.core(results[0], 3)
    tolerance = max(TOLERANCE[dtype.name], TOLERANCE_OF_PADDING_ALONE if alone else 0)
    np.testing.assert_allclose(output.astype(float), wanted[0], atol=tolerance, rtol=tolerance)
    for present, rows in zip(results[1:], wanted[1:]):
        np.testing.assert_array_equal(reference_directml.core(present, 4), rows)
    # Outputs have as many dimensions as the inputs that they go with.
    assert results[0].ndim == arguments.get("query", output).ndim
    assert results[1].ndim == arguments.get("past_key", output[None]).ndim


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(arguments=calls())
def test_same_bits_in_every_threading(target, arguments):
    inline = quire.directml.multihead_attention1(**arguments, context=contexts.context(target))
    for threading in contexts.THREADINGS:
        context = contexts.context(target, threading)
        assert same_bits(inline, quire.directml.multihead_attention1(**arguments, context=context)), threading


@given(arguments=calls())
def test_without_presents(arguments):
    """The same output, from keys that are then joined elsewhere."""
    with_presents = quire.directml.multihead_attention1(**arguments)
    output, *presents = quire.directml.multihead_attention1(**arguments, present=False)
    assert presents == [None, None] and same_bits([output], with_presents)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("target", contexts.TARGETS)
def test_stacked_tensors_give_the_bits_of_separate_ones(target):
    context = contexts.context(target)
    B, S, H, D = 2, 7, 3, 20
    query, key, value = normal(3, B, S, H * D)
    heads = [array.reshape(B, S, H, D) for array in (query, key, value)]
    options = {"query_head_count": H, "bias": normal(3 * H * D), "context": context}
    separate = quire.directml.multihead_attention1(query, key, value, **options)
    for stacked in (
        {"stacked_query_key_value": np.stack(heads, axis=3)},
        {"stacked_query_key": np.stack(heads[:2], axis=3), "value": value},
        {"stacked_key_value": np.stack(heads[1:], axis=3), "query": query},
    ):
        assert same_bits(separate, quire.directml.multihead_attention1(**stacked, **options)), stacked.keys()


@pytest.mark.parametrize("target", contexts.TARGETS)
def test_presents_are_the_past_of_the_next_call(target):
    """Step by step over padded pasts of unequal lengths: each sequence as if it were alone, whole."""
    context = contexts.context(target)
    H, D, Dv, lengths = 2, 16, 12, np.array([3, 0, 5])
    options = {"query_head_count": H, "context": context}
    keys, values = normal(3, 9, H * D, seed=2), normal(3, 9, H * Dv, seed=3)
    heads = [rows[:, :5].reshape(3, 5, H, -1).swapaxes(1, 2).copy() for rows in (keys, values)]
    for rows in heads:
        for b, length in enumerate(lengths):
            rows[b, :, length:] = np.nan
    for step in range(3):
        query = normal(3, 1, H * D, seed=10 + step)
        fresh = [np.stack([rows[b, [length]] for b, length in enumerate(lengths)]) for rows in (keys, values)]
        output, *heads = quire.directml.multihead_attention1(
            query, *fresh, past_key=heads[0], past_value=heads[1],
            past_sequence_lengths=lengths.astype(np.int32), **options)  # fmt: skip
        lengths = lengths + 1
        for b, length in enumerate(lengths):
            alone = quire.directml.multihead_attention1(
                query[[b]], keys[[b], :length], values[[b], :length], **options
            )
            np.testing.assert_array_equal(heads[0][b, :, :length], alone[1][0])
            np.testing.assert_array_equal(heads[1][b, :, length:], 0)
            np.testing.assert_allclose(output[[b]], alone[0], atol=2e-6)


def test_rows_of_padding_alone():
    """They are the softmax of their own scores; with the lowest float, the mean of the values."""
    query, key, value = normal(1, 2, 8), normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3)
    options = {"mask": np.zeros((1, 1), np.int32), "mask_type": "KEY_SEQUENCE_LENGTH", "query_head_count": 1}
    plain = quire.directml.multihead_attention1(query, key, value, query_head_count=1)[0]
    padded = quire.directml.multihead_attention1(query, key, value, **options)[0]
    np.testing.assert_allclose(padded, plain, atol=3e-3)
    lowest = quire.directml.multihead_attention1(query, key, value, **options, mask_filter_value=LOWEST)[0]
    np.testing.assert_allclose(lowest, np.broadcast_to(value.mean(axis=1), (1, 2, 8)), atol=1e-6)
    hidden = quire.directml.multihead_attention1(query, key, value, **options, mask_filter_value=-np.inf)[0]
    assert not hidden.any()


QUERY, KEY, VALUE = normal(2, 3, 8), normal(2, 5, 4, seed=2), normal(2, 5, 6, seed=3)
PAST = {"past_key": normal(2, 1, 4, 4), "past_value": normal(2, 1, 4, 6)}
WRONG_CALLS = {  # the message by Python's names: changed arguments
    "query is None: must be given without a stacked_query_key": {"query": None},
    "query has type float64: must be float32 or float16": {"query": QUERY.astype(float)},
    "key has type f16: must be data_type, f32": {"key": KEY.astype(np.float16)},
    "query has a last dimension of 7: must be a multiple of query_head_count, 2": {"query": QUERY[..., :7]},
    "query has rank 2: must be 3 to 5, [B, S, H * D]": {"query": QUERY[0]},
    "key is NULL: must be given with value": {"key": None},
    "value is NULL: must be given with key": {"value": None},
    "key has shape [2, 5, 3]: dimension 2 of [B, N, Hk * D] must be 4": {"key": KEY[..., :3]},
    "value has shape [2, 2, 5, 6]: dimensions before those of": {"value": np.stack([VALUE, VALUE])},
    "stacked_key_value has rank 4: must be 5": {"key": None, "value": None, "stacked_key_value": QUERY[None]},
    "key is given: must be NULL with stacked_query_key_value": {
        "query": None, "value": None, "stacked_query_key_value": normal(2, 3, 1, 3, 4)},
    "bias has shape [20]: dimension 0 of [H * D + Hk * D + Hk * Dv] must be 18": {"bias": normal(20)},
    "mask is given: must be NULL where mask_type is NONE": {"mask": np.ones((1, 2), np.int32)},
    "mask is NULL: must be given where mask_type is not NONE": {"mask_type": "BOOLEAN"},
    "mask has type bool: must be int32": {"mask": np.ones((1, 2), bool), "mask_type": "KEY_SEQUENCE_LENGTH"},
    "mask_type is 'CAUSAL': must be None, 'NONE', 'KEY_SEQUENCE_LENGTH'": {"mask_type": "CAUSAL"},
    "mask has shape [4, 5]: must be [2 or 1, 2 or 1, 3 or 1, 5 or 1]": {
        "mask": np.ones((4, 5), np.int32), "mask_type": "BOOLEAN"},
    "relative_position_bias has rank 2: must be 4 to 5": {"relative_position_bias": normal(3, 5)},
    "past_value is NULL: must be given with past_key": {"past_key": PAST["past_key"]},
    "past_sequence_lengths is given: must be NULL without past_key": {
        "past_sequence_lengths": np.ones(2, np.int32), "present": False},
    "past_sequence_lengths[1] is 5: must be a whole number 0 to 4": {
        **PAST, "past_sequence_lengths": np.array([4, 5], np.int32)},
    "past_sequence_lengths has type int64": {**PAST, "past_sequence_lengths": np.array([4, 4])},
    "key_value_head_count is 3: must divide query_head_count, 2": {
        "key_value_head_count": 3, "key": normal(2, 5, 12), "value": VALUE},
    "query_head_count is 0: must be 1 to 1048576": {"query_head_count": 0, "key_value_head_count": 1},
    "scale is nan: must be finite": {"scale": np.nan},
    "mask_filter_value is inf": {"mask_filter_value": np.inf},
    "precision is 'exact'": {"precision": "exact"},
}  # fmt: skip


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls(message, wrong):
    valid = {"query": QUERY, "key": KEY, "value": VALUE, "query_head_count": 2, "key_value_head_count": 1}
    quire.directml.multihead_attention1(**valid)
    with pytest.raises(quire.Error) as error:
        quire.directml.multihead_attention1(**{**valid, **wrong})
    assert message in str(error.value)
