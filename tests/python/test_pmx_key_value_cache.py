"""PMX KeyValueCache, both forms: what is stored and what is given back, to the bit."""

import contexts
import numpy as np
import pytest
import quire
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import Problem
from test_pmx_attention import fixed_problems
from test_properties import problems

CACHE_ATTRIBUTES = (
    "num_layer",
    "layer_idx",
    "quant_bit",
    "quant_group",
    "cache_mode",
    "cache_layout",
    "page_size",
)


def read_dynamic(problem, num_repeat, context=None):
    """(key, value, cache, scale) by quire; the problem stays as it is."""
    cache = quire.pack_int4(problem.cache) if problem.quant_bit == 4 else problem.cache.copy()
    scale = None if problem.scale is None else problem.scale.copy()
    _, key, value, seqstarts, kvstarts, cachestarts, start_pos, _, max_seqlen, max_kvlen = problem.inputs()
    attributes = {name: getattr(problem, name) for name in CACHE_ATTRIBUTES}
    results = quire.pmx.dynamic_batching.key_value_cache(
        *(key, value, seqstarts, kvstarts, cachestarts, start_pos, max_seqlen, max_kvlen),
        *(cache, scale),
        **attributes,
        num_repeat=num_repeat,
        context=context,
    )
    return *results, quire.unpack_int4(cache) if problem.quant_bit == 4 else cache, scale


def dequantised(codes, scale, activation):
    """Numbers as they are, codes times scale in float32; then rounded to the activations' type."""
    if scale is None:
        return codes.astype(np.float32).astype(activation)
    group = codes.shape[-1] // scale.shape[-1]
    return (codes.astype(np.float32) * np.repeat(scale.astype(np.float32), group, axis=-1)).astype(activation)


def wanted_dynamic(problem, num_repeat):
    _, _, cache, scale = problem.reference()
    results = []
    cached = reference.cache_rows(cache, problem.cache_layout, problem.layer_idx)
    scales = reference.cache_rows(scale, problem.cache_layout, problem.layer_idx)
    totals = np.diff(problem.kvstarts)
    rows = [np.zeros(0, np.int64)] + [
        reference.rows_of(problem.cachestarts, b, np.arange(total), problem.cache_mode, problem.page_size)
        for b, total in enumerate(totals)
    ]
    rows = np.concatenate(rows)
    for part, part_scale in zip(cached, scales):
        values = dequantised(part[rows], None if part_scale is None else part_scale[rows], problem.activation)
        results.append(np.repeat(values, num_repeat, axis=1))
    return *results, cache, scale


def assert_same(results, wanted):
    for name, one, other in zip(("key", "value", "cache", "scale"), results, wanted):
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype and one.shape == other.shape, name
            assert one.tobytes() == np.ascontiguousarray(other).tobytes(), f"{name} has other bits"


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems(), num_repeat=st.integers(1, 3))
def test_dynamic(target, problem, num_repeat):
    wanted = wanted_dynamic(problem, num_repeat)
    for threading in ("inline", "onetbb-3", "slices-3"):
        assert_same(read_dynamic(problem, num_repeat, contexts.context(target, threading)), wanted)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=fixed_problems(), num_repeat=st.integers(1, 3))
def test_static(target, problem, num_repeat):
    cache, scale, key, value = problem.stored()
    rounded = [x.astype(np.float32).astype(problem.activation) for x in (key, value)]
    wanted = *(np.repeat(x, num_repeat, axis=2) for x in rounded), cache, scale
    for threading in ("inline", "onetbb-3", "slices-3"):
        assert_same(problem.read(num_repeat, contexts.context(target, threading)), wanted)
    assert_same(problem.read(num_repeat, contexts.context(target), np.array([problem.past])), wanted)


def test_reading_then_attending_is_attending_to_the_cache():
    """The fused operator is KeyValueCache, then MultiHeadAttention."""
    problem = Problem([(3, 60), (1, 0), (20, 7)], cache_mode=1, cache_layout=2, is_causal=True)
    key, value, _, _ = read_dynamic(problem, 2)
    output, lse, _, _ = problem.call()
    starts = problem.seqstarts, problem.kvstarts, 0, 20, 63
    attributes = {"num_heads": 4, "head_dim": 16, "is_causal": True, "return_lse": True}
    apart = quire.pmx.dynamic_batching.multi_head_attention(problem.query, key, value, *starts, **attributes)
    np.testing.assert_allclose(apart[0], output, atol=2e-5)
    np.testing.assert_allclose(apart[1], lse, atol=2e-5)


WRONG_CALLS = {
    "current_key has 2 dimensions: must be [n, Hk, D]": {"current_key": np.zeros((3, 16), np.float32)},
    "current_value has type f16: must be f32": {"current_value": np.zeros((3, 2, 16), np.float16)},
    "seqstarts[2] is 4: must be n, 3": {"seqstarts": [0, 2, 4]},
    "kvstarts[1] - kvstarts[0] is 6: must be start_pos[0] + its new tokens, 5": {"kvstarts": [0, 6, 11]},
    "kvstarts[2] is 3: must be >= kvstarts[1]": {"kvstarts": [0, 5, 3]},
    "cachestarts[1] is 1000": {"cachestarts": [0, 1000]},
    "start_pos[0] is -1": {"start_pos": [-1, 4]},
    "num_repeat is 0: must be 1 to": {"num_repeat": 0},
    "quant_bit is 3": {"quant_bit": 3},
    "cache is read-only": {"cache": np.broadcast_to(np.float32(0), (20, 1, 2, 2, 16))},
}


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls(message, wrong):
    cache = np.zeros((20, 1, 2, 2, 16), np.float32)
    arguments = {
        "current_key": np.ones((3, 2, 16), np.float32),
        "current_value": np.ones((3, 2, 16), np.float32),
        "seqstarts": [0, 2, 3],
        "kvstarts": [0, 5, 10],
        "cachestarts": [0, 10],
        "start_pos": [3, 4],
        "max_seqlen": 2,
        "max_kvlen": 5,
        "cache": cache,
        **wrong,
    }
    with pytest.raises(quire.Error) as error:
        quire.pmx.dynamic_batching.key_value_cache(**arguments)
    assert message in str(error.value)
    assert not cache.any()
