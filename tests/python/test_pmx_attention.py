"""PMX MultiHeadAttention and MultiHeadCacheAttention: random problems against the float64 definition."""

import contexts
import numpy as np
import pytest
import quire
from hypothesis import given, settings
from hypothesis import strategies as st
from pmx_problems import FixedProblem, PlainProblem, fixed_attention, random_mask
from problems import Problem
from test_properties import TOLERANCE, assert_same_bits, lengths, options

ACTIVATIONS = st.sampled_from(["float32", "float16"])


@st.composite
def head_sizes(draw, quant_bit=0):
    """(head_dim, quant_group)"""
    odd_sizes = [1, 3, 7] if quant_bit == 0 else [2, 10]
    head_dim = draw(st.sampled_from([8, 16, 24, 40, 64, 80, 128, *odd_sizes]))
    groups = [group for group in (1, 2, 4, 5, 8, 16, 32, 64, head_dim) if head_dim % group == 0]
    return head_dim, draw(st.sampled_from(groups))


@st.composite
def plain_problems(draw):
    fewer_keys = draw(st.booleans())  # than queries: early rows see nothing
    sequences = [
        (queries, max(queries + past, 0))
        for queries, past in draw(lengths())
        for past in ([past - 20] if fewer_keys else [past])
    ]
    return PlainProblem(
        lengths=sequences,
        kv_heads=draw(st.integers(1, 3)),
        heads_per_kv=draw(st.sampled_from([1, 2, 3, 4, 7])),
        head_dim=draw(head_sizes())[0],
        activation=draw(ACTIVATIONS),
        mask=draw(st.sampled_from(["none", "none", "2d", "3d", "1d"])),
        with_sinks=draw(st.booleans()),
        decoding_batches=draw(st.integers(0, len(sequences))),
        is_causal=draw(st.booleans()),
        options=draw(options()),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def masks(draw):
    """Letters of the last two to four dimensions, each broadcast or not; or None."""
    rank = draw(st.sampled_from([0, 2, 3, 4]))
    if rank == 0:
        return None
    return tuple(draw(st.sampled_from([letter, letter, 1])) for letter in "BHST"[4 - rank :])


@st.composite
def fixed_problems(draw):
    quant_bit = draw(st.sampled_from([0, 8, 4]))
    head_dim, quant_group = draw(head_sizes(quant_bit))
    num_layer = draw(st.integers(1, 2))
    return FixedProblem(
        batch=draw(st.sampled_from([1, 2, 3, 0])),
        new=draw(st.sampled_from([1, 2, 5, 0, 40])),
        past=draw(st.sampled_from([0, 1, 7, 130, 1100])),
        kv_heads=draw(st.integers(1, 3)),
        heads_per_kv=draw(st.sampled_from([1, 2, 3, 7])),
        head_dim=head_dim,
        activation=draw(ACTIVATIONS),
        cache_type=draw(ACTIVATIONS),
        scale_type=draw(ACTIVATIONS),
        quant_bit=quant_bit,
        quant_group=quant_group,
        cache_layout=draw(st.integers(0, 1)),
        num_layer=num_layer,
        layer_idx=draw(st.integers(0, num_layer - 1)),
        mask=draw(masks()),
        with_sinks=draw(st.booleans()),
        is_causal=draw(st.booleans()),
        options=draw(options()),
        seed=draw(st.integers(0, 1000)),
    )


def assert_close(problem, results, wanted):
    assert results[0].dtype == problem.query.dtype and results[1].dtype == np.float32
    np.testing.assert_allclose(results[0].astype(float), wanted[0], **TOLERANCE[problem.activation])
    np.testing.assert_allclose(results[1], wanted[1], atol=3e-5, rtol=2e-5)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=plain_problems())
def test_dynamic_attention(target, problem):
    assert_close(problem, problem.attend(contexts.context(target)), problem.reference())


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=fixed_problems())
def test_static_cache_attention(target, problem):
    output, lse, cache, scale = problem.attend(contexts.context(target))
    wanted = problem.reference()
    assert cache.tobytes() == wanted[2].tobytes(), "cache is not what was to be stored"
    assert scale is None or scale.tobytes() == wanted[3].tobytes(), "scale is not what was to be stored"
    assert_close(problem, (output, lse), wanted)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=fixed_problems())
def test_static_cache_attention_has_the_same_bits_in_every_threading(target, problem):
    inline = problem.attend(contexts.context(target))
    for threading in contexts.THREADINGS:
        assert_same_bits(threading, inline, problem.attend(contexts.context(target, threading)))
    for start_pos in (np.int64(problem.past), np.array(problem.past), np.array([problem.past], np.int32)):
        again = problem.attend(contexts.context(target), start_pos)
        assert_same_bits(f"start_pos {start_pos!r}", inline, again)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=plain_problems(), mask=masks())
def test_static_attention(target, problem, mask):
    """More or fewer keys than queries: the definition, and the bits of dynamic_batching."""
    if not problem.lengths:
        problem.lengths = [(3, 5)]
    queries, keys = problem.lengths[0]
    batch, rng = 2, np.random.default_rng(problem.seed)
    query, key, value = (
        rng.normal(size=(batch, length, heads, problem.head_dim)).astype(problem.activation)
        for length, heads in ((queries, problem.heads), (keys, problem.kv_heads), (keys, problem.kv_heads))
    )
    sizes = {"B": batch, "H": problem.heads, "S": queries, "T": keys, 1: 1}
    attn_mask = random_mask(rng, mask and tuple(sizes[letter] for letter in mask), problem.activation)
    context, attributes = contexts.context(target), {**problem.attributes, "return_lse": True}
    results = quire.pmx.multi_head_attention(query, key, value, attn_mask, **attributes, context=context)
    options = {"is_causal": problem.is_causal, "sinks": problem.sinks, **problem.options}
    options["scale"] = options.pop("softmax_scale", None)
    assert_close(problem, results, fixed_attention(query, key, value, attn_mask, **options))
    if mask is None:
        ragged = quire.pmx.dynamic_batching.multi_head_attention(
            *(x.reshape(-1, *x.shape[2:]) for x in (query, key, value)),
            [0, queries, 2 * queries],
            [0, keys, 2 * keys],
            *(0, queries, keys),
            **attributes,
            context=context,
        )
        assert_same_bits("dynamic_batching", [x.reshape(y.shape) for x, y in zip(ragged, results)], results)


@pytest.mark.parametrize("target", contexts.TARGETS)
@settings(max_examples=50)
@given(problem=plain_problems())
def test_attention_has_the_same_bits_in_every_threading(target, problem):
    inline = problem.attend(contexts.context(target))
    one = [np.stack([x[:n]] * 3) for x, n in ((problem.query, 9), (problem.key, 70), (problem.value, 70))]
    attributes = {**problem.attributes, "return_lse": True}
    static = quire.pmx.multi_head_attention(*one, **attributes, context=contexts.context(target))
    for threading in contexts.THREADINGS:
        context = contexts.context(target, threading)
        assert_same_bits(threading, inline, problem.attend(context))
        again = quire.pmx.multi_head_attention(*one, **attributes, context=context)
        assert_same_bits(f"static, {threading}", static, again)


def with_gaps(array):
    """The same numbers, in rows that do not follow each other."""
    wide = np.full((*array.shape[:-1], array.shape[-1] + 3), 77).astype(array.dtype)
    view = wide[..., 1:-2]
    view[...] = array
    return view


def test_views_with_gaps():
    """Every operator takes them, and changes caches in them in place."""
    plain, fixed, paged = PlainProblem([(2, 4), (1, 7)]), FixedProblem(quant_bit=8), Problem([(2, 3), (1, 6)])
    wanted = plain.attend(), fixed.attend(), fixed.read(2), paged.call()
    for problem in (plain, fixed, paged):
        for name in ("query", "key", "value", "current_key", "current_value", "cache", "scale"):
            if getattr(problem, name, None) is not None:
                setattr(problem, name, with_gaps(getattr(problem, name)))
        # Their methods copy the cache; here it is to stay where it is.
        problem._copies = lambda problem=problem: (problem.cache, problem.scale)
    assert_same_bits("dynamic attention", wanted[0], plain.attend())
    before = with_gaps(fixed.cache), with_gaps(fixed.scale)
    assert_same_bits("static cache attention", wanted[1], fixed.attend())
    assert_same_bits("static cache", wanted[1][2:], (fixed.cache, fixed.scale))
    fixed.cache[...], fixed.scale[...] = before
    assert_same_bits("static key_value_cache", wanted[2], fixed.read(2))
    assert fixed.cache.base is not None and (fixed.cache.base[..., 0] == 77).all()
    attributes = {"num_layer": 1, "quant_bit": 0}
    inputs = paged.inputs()
    key, value = quire.pmx.dynamic_batching.key_value_cache(
        *inputs[1:7], *inputs[8:], paged.cache, None, **attributes
    )
    assert paged.cache.tobytes() == wanted[3][2].tobytes()
    assert key.shape == value.shape == (12, 2, 16) and (paged.cache.base[..., 0] == 77).all()
    arrays = [np.stack([x, x]) for x in (plain.query[:2], plain.key[:4], plain.value[:4])]
    one = quire.pmx.multi_head_attention(*arrays, **plain.attributes)
    other = quire.pmx.multi_head_attention(*map(with_gaps, arrays), **plain.attributes)
    assert one.tobytes() == other.tobytes()


def test_results_without_lse_are_an_array():
    problem = PlainProblem([(2, 4)])
    starts = problem.seqstarts, problem.kvstarts, 0, 2, 4
    arrays = problem.query, problem.key, problem.value
    output = quire.pmx.dynamic_batching.multi_head_attention(*arrays, *starts, **problem.attributes)
    np.testing.assert_array_equal(output, problem.attend()[0])
    output = quire.pmx.multi_head_attention(*(x[None] for x in arrays), **problem.attributes)
    np.testing.assert_array_equal(output[0], problem.attend()[0])


WRONG_CALLS = {
    "query has 3 dimensions: must be [B, S, H, D]": {"query": np.zeros((2, 4, 16), np.float32)},
    "current_key has shape [2, 2, 2, 16]": {"current_key": np.zeros((2, 2, 2, 16), np.float32)},
    "current_value has type float64": {"current_value": np.zeros((2, 3, 2, 16))},
    "start_pos is 9: with 3 new tokens must be at most MaxS of cache, 11": {"start_pos": 9},
    "start_pos is -1: must be >= 0": {"start_pos": -1},
    "start_pos has type float64: must be integers": {"start_pos": 1.5},
    "start_pos has shape [2]": {"start_pos": [1, 1]},
    "cache has type int8: must be float32 or float16": {"cache": np.zeros((3, 1, 2, 11, 2, 16), np.int8)},
    "cache has MaxB 1: must be at least": {"cache": np.zeros((1, 1, 2, 11, 2, 16), np.float32)},
    "scale is given: must be NULL where quant_bit is 0": {"scale": np.zeros((3, 1, 2, 11, 2, 2), np.float32)},
    "attn_mask has shape [2, 8]: must broadcast to": {"attn_mask": np.zeros((2, 8), np.float32)},
    "attn_mask has rank 5": {"attn_mask": np.zeros((1, 1, 1, 3, 8), np.float32)},
    "num_kv_heads is 3: must divide num_heads, 4": {"num_kv_heads": 3},
    "softmax_scale is inf: must be finite": {"softmax_scale": np.inf},
    "cache_layout is 2: must be 0 to 1": {"cache_layout": 2},
}


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls_of_static_cache_attention(message, wrong):
    problem = FixedProblem()
    arguments = {name: getattr(problem, name) for name in ("query", "current_key", "current_value", "cache")}
    arguments = {**arguments, "start_pos": problem.past, **problem.attributes, **wrong}
    before = arguments["cache"].copy()
    with pytest.raises(quire.Error) as error:
        quire.pmx.multi_head_cache_attention(**arguments)
    assert message in str(error.value)
    assert arguments["cache"].tobytes() == before.tobytes()
