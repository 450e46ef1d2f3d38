"""Random small problems against the float64 definition, and the same bits however a problem is run."""

import contexts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import Problem

TOLERANCE = {"float32": {"atol": 2e-5, "rtol": 2e-5}, "float16": {"atol": 1e-3, "rtol": 1e-3}}


@st.composite
def lengths(draw):
    """Ragged, also without sequences or tokens; sometimes a long one, beyond the borders of key ranges."""
    short = st.tuples(st.sampled_from([1, 2, 3, 4, 5, 6, 16, 0]), st.integers(0, 40))
    decode = st.tuples(st.integers(0, 3), st.integers(250, 1100))
    prefill = st.tuples(st.integers(20, 70), st.integers(0, 90))
    sequences = draw(st.lists(short, min_size=draw(st.sampled_from([1, 2, 3, 0])), max_size=4))
    if draw(st.booleans()):
        sequences.insert(draw(st.integers(0, len(sequences))), draw(decode | prefill))
    return sequences


@st.composite
def options(draw):
    """Attributes beyond the cache's."""
    chosen = {"is_alibi": draw(st.booleans())}
    if draw(st.booleans()):
        chosen["softmax_scale"] = draw(st.sampled_from([0.05, 0.3, -0.2]))
    if draw(st.integers(0, 2)) == 0:
        chosen["window_left"], chosen["window_right"] = draw(st.integers(-1, 20)), draw(st.integers(-1, 5))
    if draw(st.integers(0, 2)) == 0:
        chosen["logits_soft_cap"] = draw(st.sampled_from([0.5, 4.0, 30.0]))
    return chosen


@st.composite
def problems(draw):
    quant_bit = draw(st.sampled_from([0, 8, 4]))
    odd_sizes = [1, 3, 7] if quant_bit == 0 else [2, 10]
    head_dim = draw(st.sampled_from([8, 16, 24, 40, 64, 80, 128, *odd_sizes]))
    groups = [group for group in (1, 2, 4, 5, 8, 16, 32, 64, head_dim) if head_dim % group == 0]
    sequences = draw(lengths())
    num_layer = draw(st.integers(1, 2))
    types = st.sampled_from(["float32", "float16"])
    return Problem(
        lengths=sequences,
        kv_heads=draw(st.integers(1, 3)),
        heads_per_kv=draw(st.sampled_from([1, 2, 3, 4, 7])),
        head_dim=head_dim,
        activation=draw(types),
        cache_type=draw(types),
        scale_type=draw(types),
        quant_bit=quant_bit,
        quant_group=draw(st.sampled_from(groups)),
        cache_mode=draw(st.integers(0, 1)),
        cache_layout=draw(st.integers(0, 3)),
        page_size=draw(st.sampled_from([1, 3, 4, 8, 16, 64])),
        num_layer=num_layer,
        layer_idx=draw(st.integers(0, num_layer - 1)),
        mask=draw(st.sampled_from(["none", "none", "2d", "3d", "1d"])),
        with_sinks=draw(st.booleans()),
        decoding_batches=draw(st.integers(0, len(sequences))),
        is_causal=draw(st.booleans()),
        options=draw(options()),
        seed=draw(st.integers(0, 1000)),
    )


def assert_same_bits(what, first, second):
    for name, one, other in zip(("attn_output", "lse", "cache", "scale"), first, second):
        same = (one is None and other is None) or one.tobytes() == other.tobytes()
        assert same, f"{what}: {name} has other bits"


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems())
def test_definition(target, problem):
    output, lse, cache, scale = problem.call(contexts.context(target))
    wanted_output, wanted_lse, wanted_cache, wanted_scale = problem.reference()
    assert cache.tobytes() == wanted_cache.tobytes(), "cache is not what was to be stored"
    assert scale is None or scale.tobytes() == wanted_scale.tobytes(), "scale is not what was to be stored"
    assert output.dtype == problem.query.dtype
    np.testing.assert_allclose(output.astype(float), wanted_output, **TOLERANCE[problem.activation])
    np.testing.assert_allclose(lse, wanted_lse, atol=3e-5, rtol=2e-5)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems())
def test_same_bits_in_every_threading(target, problem):
    inline = problem.call(contexts.context(target))
    for threading in contexts.THREADINGS:
        assert_same_bits(threading, inline, problem.call(contexts.context(target, threading)))


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(problem=problems())
def test_same_bits_alone_and_in_a_batch(target, problem):
    context = contexts.context(target)
    output, lse = problem.call(context)[:2]
    for b in range(len(problem.lengths)):
        tokens = slice(problem.seqstarts[b], problem.seqstarts[b + 1])
        alone = problem.call(context, sequence=b)
        assert_same_bits(f"sequence {b}", alone[:2], (output[tokens], lse[tokens]))
