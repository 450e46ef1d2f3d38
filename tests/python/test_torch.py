"""NumPy arrays and torch tensors through DLPack: read and written where they are, never copied."""

import ctypes

import numpy as np
import pytest
import quire
from arrays import OnlyDLPack, assert_attention, dense
from problems import Problem
from quire._quire import _data_pointer

torch = pytest.importorskip("torch", reason="TORCH NOT INSTALLED: ./dev test --all installs it")


def as_torch(*arrays):
    return [None if array is None else torch.from_numpy(array) for array in arrays]


TYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int64", "int32", "bool")


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_torch_tensor_is_seen_where_it_is(dtype, writable):
    tensor = torch.zeros(6, 4, 8, dtype=getattr(torch, dtype))
    views = [tensor, tensor[2:], tensor[:, 1], tensor.transpose(0, 1), tensor[::2, ::3], tensor.flatten()]
    views += [tensor[0, 0, :1], tensor.squeeze()]
    for view in views:
        assert _data_pointer(view, writable) == view.data_ptr()
    if not writable:
        expanded = tensor[:1].expand(5, 4, 8)
        assert _data_pointer(expanded, False) == tensor.data_ptr()


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyDLPack])
@pytest.mark.parametrize("dtype", [name for name in TYPES if name != "bfloat16"])
def test_a_numpy_array_is_seen_where_it_is(dtype, wrap):
    array = np.zeros((6, 4, 8), dtype)
    for view in (array, array[2:], array[:, 1], array.swapaxes(0, 1), array[::2, ::3]):
        for writable in (False, True):
            assert _data_pointer(wrap(view), writable) == view.ctypes.data


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_gives_the_bits_of_numpy_arrays(dtype):
    tensors = [tensor.to(getattr(torch, dtype)) for tensor in as_torch(*dense(tokens=5, keys=40))]
    out = torch.full_like(tensors[0], 9)
    where = out.data_ptr()
    starts = torch.tensor([0, 2, 5]), torch.tensor([0, 30, 40], dtype=torch.int32)
    output, _ = quire.attention(*tensors, seqstarts=starts[0], kvstarts=starts[1], is_causal=True, out=out)
    assert output is out and out.data_ptr() == where
    if dtype == "bfloat16":
        import ml_dtypes

        arrays = [tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for tensor in tensors]
    else:
        arrays = [tensor.numpy() for tensor in tensors]
    wanted, _ = quire.attention(*arrays, seqstarts=[0, 2, 5], kvstarts=[0, 30, 40], is_causal=True)
    assert out.view(torch.uint8).numpy().tobytes() == wanted.tobytes()
    with pytest.raises(quire.Error, match="out has length"):
        quire.attention(*tensors, out=out[:4])


def test_views_and_masks():
    """[B, H, S, D] as models have them, a mask that is expanded, keys of one head for all."""
    rng = np.random.default_rng(1)
    query, key, value = (
        torch.from_numpy(rng.normal(size=(2, heads, tokens, 16)).astype(np.float32))
        for heads, tokens in ((4, 3), (2, 9), (2, 9))
    )
    seen = torch.from_numpy(rng.random((2, 1, 1, 9)) < 0.7).expand(2, 4, 3, 9)
    out = torch.empty(2, 3, 4, 16)
    rows = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    quire.attention(*rows, attn_mask=seen, out=out)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, seen, enable_gqa=True)
    torch.testing.assert_close(out.transpose(1, 2), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("quant_bit", [0, 8, 4])
def test_the_cache_is_written_where_it_is(quant_bit):
    problem = Problem([(2, 3), (1, 6)], quant_bit=quant_bit, cache_mode=1, cache_layout=3)
    wanted_output, _, wanted_cache, wanted_scale = problem.call()
    if quant_bit == 4:  # the problem's int4 is not packed
        problem.cache, wanted_cache = quire.pack_int4(problem.cache), quire.pack_int4(wanted_cache)
    cache, scale = as_torch(problem.cache.copy(), None if not quant_bit else problem.scale.copy())
    where = cache.data_ptr()
    output = quire.pmx.dynamic_batching.multi_head_cache_attention(
        *(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in problem.inputs()),
        *(cache, scale),
        **problem.attributes,
    )
    assert cache.data_ptr() == where
    assert ctypes.string_at(where, cache.nbytes) == wanted_cache.tobytes()
    assert scale is None or ctypes.string_at(scale.data_ptr(), scale.nbytes) == wanted_scale.tobytes()
    np.testing.assert_array_equal(output, wanted_output)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_operators_on_torch_tensors(dtype):
    """DirectML's and ONNX's, with masks and lengths: the bits of NumPy arrays."""
    rng = np.random.default_rng(2)
    import ml_dtypes

    numpy_type = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    torch_type = getattr(torch, dtype)
    query, key, value = rng.normal(size=(3, 2, 4, 5, 8)).astype(np.float32)
    mask = rng.random((2, 1, 5, 5)) < 0.7
    lengths = np.array([3, 5])

    def of_torch(array):
        return torch.from_numpy(array).to(torch_type)

    options = {"is_causal": 1, "qk_matmul_output_mode": 1}
    wanted = quire.onnx.attention(
        *(x.astype(numpy_type) for x in (query, key, value)), mask, nonpad_kv_seqlen=lengths, **options
    )
    strided = of_torch(query).transpose(1, 2).contiguous().transpose(1, 2)
    results = quire.onnx.attention(
        *(strided, of_torch(key), of_torch(value), torch.from_numpy(mask)),
        nonpad_kv_seqlen=torch.from_numpy(lengths),
        **options,
    )
    for result, other in zip(results, wanted):
        assert (result is None and other is None) or result.tobytes() == other.tobytes()
    assert results[0].dtype == np.dtype(numpy_type)
    if dtype == "bfloat16":  # DirectML has none
        return
    flat = [x.swapaxes(1, 2).reshape(2, 5, 32) for x in (query, key, value)]
    options = {"query_head_count": 4, "mask_type": "BOOLEAN"}
    seen = mask.astype(np.int32)
    wanted = quire.directml.multihead_attention1(*(x.astype(dtype) for x in flat), mask=seen, **options)
    results = quire.directml.multihead_attention1(
        *map(of_torch, flat), mask=torch.from_numpy(seen), **options
    )
    assert all(result.tobytes() == other.tobytes() for result, other in zip(results, wanted))


def test_append_and_merge_states():
    query, key, value = as_torch(*dense(tokens=3, keys=8))
    rows = torch.zeros(2, 12, 2, 16)
    where = rows.data_ptr()
    quire.append(key, value, rows[0], rows[1], start_pos=2)
    assert ctypes.string_at(where + 2 * 2 * 16 * 4, key.nbytes) == key.numpy().tobytes()
    parts = [quire.attention(query, *rows[:, part], return_lse=True) for part in (slice(2, 6), slice(6, 10))]
    merged, _ = quire.merge_states(*as_torch(*parts[0], *parts[1]))
    assert_attention(merged, query.numpy(), key.numpy(), value.numpy())


def test_a_tensor_that_wants_its_gradient_is_read_as_it_is():
    query, key, value = as_torch(*dense())
    wanted, _ = quire.attention(query, key, value)
    np.testing.assert_array_equal(quire.attention(query.requires_grad_(), key, value)[0], wanted)


def test_tensors_that_cannot_be_used():
    query, key, value = as_torch(*dense())
    with pytest.raises(quire.Error, match="key cannot be read through DLPack: .*meta"):
        quire.attention(query, key.to("meta"), value)
    with pytest.raises(quire.Error, match="value has type torch.float64: must be"):
        quire.attention(query, key, value.double())
