"""quire.rotate, quire.append with rotations, and quire.cache_alloc, against NumPy in float64."""

import gc

import contexts
import numpy as np
import pytest
import quire
from hypothesis import given
from hypothesis import strategies as st

DTYPES = {np.float32: 3e-6, np.float16: 2e-3}


def hadamard(block):
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(block)


def rotated(x, positions, rotary, cos, sin, by_hadamard):
    """x [..., D] in float64, positions [...] of its tokens with one more axis for heads."""
    x = x.astype(float)
    if rotary is not None:
        half = cos.shape[1]
        first = np.arange(half) if rotary == "halves" else np.arange(half) * 2
        second = first + (half if rotary == "halves" else 1)
        c, s = (table.astype(float)[positions][..., None, :] for table in (cos, sin))
        a, b = x[..., first], x[..., second]
        x[..., first], x[..., second] = a * c - b * s, b * c + a * s
    if by_hadamard:
        dim = x.shape[-1]
        block = dim & -dim
        x = (x.reshape(*x.shape[:-1], dim // block, block) @ hadamard(block)).reshape(x.shape)
    return x


@st.composite
def rotations(draw):
    dim = draw(st.sampled_from([2, 4, 6, 12, 16, 40, 64, 80, 96, 128, 192]))
    rotary = draw(st.sampled_from([None, "halves", "interleaved"]))
    rotary_dim = 2 * draw(st.integers(1, dim // 2))
    return dim, rotary, rotary_dim, rotary is None or draw(st.booleans())


@given(
    rotations(),
    st.booleans(),
    st.sampled_from(list(DTYPES)),
    st.integers(0, 2**32 - 1),
    st.sampled_from(
        [(target, threading) for target in contexts.TARGETS for threading in contexts.THREADINGS]
    ),
)
def test_rotate(rotation, batched, dtype, seed, context):
    dim, rotary, rotary_dim, by_hadamard = rotation
    rng = np.random.default_rng(seed)
    tokens = (2, 3) if batched else (5,)
    x = rng.normal(size=(*tokens, 3, dim)).astype(dtype)
    positions = rng.integers(0, 50, tokens)
    cos, sin = quire.rotary_tables(50, rotary_dim, 500.0)
    arguments = dict(hadamard=by_hadamard, context=contexts.context(*context))
    if rotary:
        arguments |= dict(positions=positions, rotary=rotary, rotary_cos=cos, rotary_sin=sin)
    got = quire.rotate(x, **arguments)
    wanted = rotated(x, positions, rotary, cos, sin, by_hadamard)
    assert got.dtype == dtype and np.abs(got - wanted).max() < DTYPES[dtype] * max(1, np.abs(wanted).max())
    assert quire.rotate(x, output=x, **arguments) is x
    assert np.array_equal(x, got)


def test_tables():
    cos, sin = quire.rotary_tables(7, 6)
    angles = np.arange(7)[:, None] * 10000.0 ** (-np.arange(3) / 3)
    assert cos.dtype == sin.dtype == np.float32
    assert np.allclose(cos, np.cos(angles), atol=1e-7) and np.allclose(sin, np.sin(angles), atol=1e-7)


@pytest.mark.parametrize("rotary", ["halves", "interleaved"])
@pytest.mark.parametrize("quant_bit", [8, 4])
def test_append_then_attention_is_attention_of_rotated_rows(rotary, quant_bit):
    rng = np.random.default_rng(quant_bit)
    slots, heads, kv_heads, dim, groups = 24, 4, 2, 64, 2
    query = rng.normal(size=(3, heads, dim)).astype(np.float32)
    key, value = (rng.normal(size=(20, kv_heads, dim)).astype(np.float32) for _ in range(2))
    cos, sin = quire.rotary_tables(32, 32)
    embedding = dict(rotary=rotary, rotary_cos=cos, rotary_sin=sin)
    shape, dtype = ((dim, np.int8), (dim // 2, np.uint8))[quant_bit == 4]

    def cache():
        rows = [quire.cache_alloc((slots, kv_heads, shape), dtype) for _ in range(2)]
        return rows + [np.zeros((slots, kv_heads, groups), np.float16) for _ in range(2)]

    in_the_pass, before = cache(), cache()
    quire.append(key, value, *in_the_pass, start_pos=2, hadamard_keys=True, hadamard_values=True, **embedding)
    rotated_key = quire.rotate(key, positions=np.arange(2, 22), hadamard=True, **embedding)
    quire.append(rotated_key, quire.rotate(value, hadamard=True), *before, start_pos=2)
    assert all(np.array_equal(a, b) for a, b in zip(in_the_pass, before))

    rotated_query = quire.rotate(query, positions=[19, 20, 21], hadamard=True, **embedding)
    rows = [side[2:] for side in in_the_pass]
    output, _ = quire.attention(rotated_query, *rows, kvstarts=[0, 20], is_causal=True)
    output = quire.rotate(output, hadamard=True)
    plain_query = quire.rotate(query, positions=[19, 20, 21], **embedding)
    plain_key = quire.rotate(key, positions=np.arange(2, 22), **embedding)
    exact, _ = quire.attention(plain_query, plain_key, value, is_causal=True)
    error = np.sqrt(np.mean((output - exact) ** 2) / np.mean(exact**2))
    assert error < (0.02 if quant_bit == 8 else 0.3)


WRONG = [
    (dict(rotary="pairs"), "rotary is 'pairs': must be None, 'halves' or 'interleaved'"),
    (dict(), "rotary and hadamard are 0: must ask for a rotation"),
    (dict(rotary="halves"), r"positions is NULL: must be a tensor \[n\]"),
    (dict(hadamard=True, positions=[1, 2]), "positions is given: must be NULL without a rotary embedding"),
    (dict(hadamard=True, output=np.zeros((2, 2, 6), np.float32)), "dimension 2 of .* must be 8"),
]


@pytest.mark.parametrize("arguments, message", WRONG)
def test_wrong_calls(arguments, message):
    with pytest.raises(quire.Error, match=message):
        quire.rotate(np.zeros((2, 2, 8), np.float32), **arguments)


@pytest.mark.parametrize("shape", [7, (3, 5, 2), (0, 4), (1 << 20,)])
@pytest.mark.parametrize("dtype", [np.int8, np.float16, "float32"])
def test_cache_alloc(shape, dtype):
    array = quire.cache_alloc(shape, dtype)
    assert array.shape == np.zeros(shape, dtype).shape and array.dtype == np.dtype(dtype)
    assert not array.any() and array.flags.c_contiguous and array.flags.writeable
    if array.size:
        assert array.ctypes.data % (2 << 20) == 0
        array[...] = 1


def test_cache_alloc_lives_as_long_as_a_view_of_it():
    view = quire.cache_alloc((1 << 20, 4), np.int8)[5:]
    gc.collect()
    view[...] = 3
    assert view[-1, -1] == 3


def test_cache_alloc_gives_its_memory_back():
    def mapped_kb():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmSize:"))

    before = mapped_kb()
    array = quire.cache_alloc(1 << 30, np.int8)
    assert mapped_kb() - before >= 1 << 20
    del array
    gc.collect()
    assert mapped_kb() - before < 1 << 19


def test_cache_alloc_refuses():
    with pytest.raises(quire.Error, match="bytes is 4611686018427387904: no address space has so much"):
        quire.cache_alloc(1 << 62, np.int8)
    with pytest.raises(ValueError, match="must be >= 0"):
        quire.cache_alloc((3, -1), np.int8)
