"""What the binding itself promises: names, arrays in and out without copies, numbers."""

import doctest
import gc
import sys

import ml_dtypes
import numpy as np
import pytest
import quire
from arrays import BFloat16DLPack, OldDLPack, OnlyDLPack, assert_attention, dense
from problems import Problem


def test_public_names():
    for name in quire.__all__:
        assert getattr(quire, name) is not None
    assert quire.__version__.count(".") == 2
    assert issubclass(quire.Error, ValueError) and quire.Error.__module__ == "quire"
    assert quire.target_name() == quire.Context().target_name
    assert quire.num_threads() >= 1


FUNCTIONS = [quire.attention, quire.append, quire.merge_states, quire.directml.multihead_attention1]
FUNCTIONS += [getattr(quire.pmx, name) for name in quire.pmx.__all__ if name != "dynamic_batching"]
FUNCTIONS += [getattr(quire.pmx.dynamic_batching, name) for name in quire.pmx.dynamic_batching.__all__]


def parameters(function):
    """{name: default, as written} of the signature that the documentation begins with."""
    signature = function.__doc__.split("\n", 1)[0]
    assert signature.startswith(f"{function.__name__}(") and signature.endswith(")")
    parts = signature.split("(", 1)[1][:-1].split(", ")
    return dict(part.partition("=")[::2] for part in parts if part != "*")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_documentation_names_every_parameter(function):
    names, text = parameters(function), function.__doc__.split("\n", 1)[1]
    assert len(names) >= 5
    others = "The others: as in" in text or "as in quire." in text
    assert others or [name for name in names if name not in text] == []
    # They are the names that the function takes: None gets as far as the message that names an argument.
    with pytest.raises(quire.Error):
        function(**dict.fromkeys(names))


def test_examples_in_the_documentation():
    failed, tried = doctest.testmod(quire)
    assert tried >= 4 and failed == 0


def test_positional_arguments_are_in_the_documents_order():
    problem = Problem([(2, 3), (1, 6)], quant_bit=8)
    names = """query current_key current_value seqstarts kvstarts cachestarts start_pos decoding_batches
        max_seqlen max_kvlen cache scale attn_mask""".split()
    arguments = dict(zip(names, (*problem.inputs(), problem.cache.copy(), problem.scale.copy(), None)))
    output = quire.pmx.dynamic_batching.multi_head_cache_attention(**arguments, **problem.attributes)
    assert output.tobytes() == problem.call()[0].tobytes()


def test_second_output_only_when_asked_for():
    query, key, value = dense()
    output, lse = quire.attention(query, key, value)
    assert lse is None
    output_2, lse = quire.attention(query, key, value, return_lse=True)
    assert lse.shape == (3, 4) and lse.dtype == np.float32
    assert output.tobytes() == output_2.tobytes()


def test_unknown_and_missing_arguments_are_type_errors():
    query, key, value = dense()
    with pytest.raises(TypeError):
        quire.attention(query, key)
    with pytest.raises(TypeError):
        quire.attention(query, key, value, sale=1)


@pytest.mark.parametrize("wrap", [OnlyDLPack, OldDLPack])
def test_dlpack_input(wrap):
    query, key, value = dense()
    output, _ = quire.attention(wrap(query), wrap(key), wrap(value), seqstarts=wrap(np.array([0, 3])))
    assert_attention(output, query, key, value)


def test_dlpack_in_place():
    query, key, value = dense()
    out = np.zeros_like(query)
    wrapped = OnlyDLPack(out)
    assert quire.attention(query, key, value, out=wrapped)[0] is wrapped
    assert_attention(out, query, key, value)


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyDLPack])
def test_views_of_any_strides(wrap):
    query, key, value = dense()
    wide = np.full((3, 8, 16), np.nan, np.float32)
    wide[:, ::-2] = query
    swapped = np.ascontiguousarray(key.swapaxes(0, 1)).swapaxes(0, 1)
    fortran = np.asfortranarray(value)
    tall = np.full((9, 5, 16), np.nan, np.float32)
    tall[:, 1:3] = value
    output, _ = quire.attention(wrap(wide[:, ::-2]), wrap(swapped), wrap(tall[:, 1:3]))
    assert_attention(output, query, key, value)
    with pytest.raises(quire.Error, match="value"):  # rows must be dense
        quire.attention(query, key, wrap(fortran))


def test_out_is_written_where_it_is():
    query, key, value = dense()
    wide = np.full((3, 8, 16), 7, np.float32)
    out = wide[:, 1:5]
    output, _ = quire.attention(query, key, value, out=out)
    assert output is out
    assert_attention(wide[:, 1:5], query, key, value)
    assert (wide[:, 0] == 7).all() and (wide[:, 5:] == 7).all()


def test_the_cache_is_changed_in_place():
    problem = Problem([(2, 3)], cache_layout=3, quant_bit=8)
    cache, scale = problem.cache, problem.scale
    # A view with gaps: had it been copied, nothing would arrive in `wide`.
    wide = np.full((*cache.shape[:-1], 48), 99, np.int8)
    wide[..., 16:32] = cache
    where = wide.ctypes.data
    quire.pmx.dynamic_batching.multi_head_cache_attention(
        *problem.inputs(), wide[..., 16:32], scale, **problem.attributes
    )
    assert wide.ctypes.data == where
    _, _, wanted_cache, wanted_scale = Problem([(2, 3)], cache_layout=3, quant_bit=8).reference()
    assert wide[..., 16:32].tobytes() == wanted_cache.tobytes() and scale.tobytes() == wanted_scale.tobytes()
    assert (wide[..., :16] == 99).all() and (wide[..., 32:] == 99).all()


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_half_types(dtype, tolerance):
    query, key, value = dense(dtype=dtype)
    output, lse = quire.attention(query, key, value, return_lse=True)
    assert output.dtype == np.dtype(dtype) and lse.dtype == np.float32
    assert_attention(output, query, key, value, tolerance)
    out = np.empty_like(query)
    assert quire.attention(query, key, value, out=out)[0] is out
    assert out.tobytes() == output.tobytes()


def test_bfloat16_through_dlpack():
    query, key, value = dense(dtype=ml_dtypes.bfloat16)
    wanted, _ = quire.attention(query, key, value)
    output, _ = quire.attention(*map(BFloat16DLPack, (query, key, value)))
    assert output.dtype == np.dtype(ml_dtypes.bfloat16) and output.tobytes() == wanted.tobytes()
    out = np.zeros_like(query)
    quire.attention(query, key, value, out=BFloat16DLPack(out))
    assert out.tobytes() == wanted.tobytes()


def test_read_only_inputs_are_fine_and_read_only_outputs_are_not():
    query, key, value = dense()
    for array in (query, key, value):
        array.flags.writeable = False
    output, _ = quire.attention(query, key, value)
    assert_attention(output, query, key, value)
    for out in (query, OnlyDLPack(query)):
        # An older NumPy does not export read-only arrays at all, and says so.
        with pytest.raises(quire.Error, match="^out (is|cannot .*) read-?only"):
            quire.attention(query, key, value, out=out)


@pytest.mark.parametrize(
    "convert",
    [list, tuple, lambda a: a.astype(np.int32), lambda a: a.astype(np.uint8), lambda a: np.repeat(a, 2)[::2],
     lambda a: OnlyDLPack(a.astype(np.int32)), lambda a: a.astype(">i8")],
)  # fmt: skip
def test_any_integers_as_indices(convert):
    query, key, value = dense()
    starts = [np.array([0, 1, 3]), np.array([0, 4, 9])]
    wanted, _ = quire.attention(query, key, value, None, None, *starts, is_causal=True)
    output, _ = quire.attention(query, key, value, None, None, *map(convert, starts), is_causal=True)
    assert output.tobytes() == wanted.tobytes()


def test_numbers_may_be_arrays_without_dimensions():
    query, key, value = dense()
    wanted, _ = quire.attention(query, key, value, scale=0.5, is_causal=True, window_left=3)
    output, _ = quire.attention(
        query,
        key,
        value,
        scale=np.array(0.5, np.float32),
        is_causal=np.array(True),
        window_left=np.array(3),
        window_right=np.int8(-1),
        logits_soft_cap=np.float16(0),
    )
    assert output.tobytes() == wanted.tobytes()
    assert_attention(output, query, key, value, scale=0.5, is_causal=True, window_left=3)


def test_nothing_is_kept_alive():
    query, key, value = dense()
    counts = [sys.getrefcount(array) for array in (query, key, value)]
    for _ in range(10):
        quire.attention(query, key, value, seqstarts=[0, 3])
        with pytest.raises(quire.Error):
            quire.attention(query, key, value, seqstarts=[0, 4])
    gc.collect()
    assert counts == [sys.getrefcount(array) for array in (query, key, value)]
    query.resize((1,), refcheck=True)  # refused while a buffer of it is held
