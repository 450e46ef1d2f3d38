"""quire.onnx.attention: random calls against the float64 definition, and wrong calls."""

import contexts
import ml_dtypes
import numpy as np
import pytest
import quire
import reference_onnx
from arrays import OnlyDLPack
from hypothesis import given, settings
from hypothesis import strategies as st

TOLERANCE = {"float32": 2e-5, "float16": 1.5e-3, "bfloat16": 1.2e-2}


def draw_mask(draw, normal, rng, shape):
    B, H, S, T = shape
    kind = draw(st.sampled_from([None, "bool", "float", "float32", "int"]))
    if kind is None:
        return {}
    columns = draw(st.sampled_from([T, T, max(0, T - 2), min(1, T)]))
    lead = draw(st.sampled_from([(B, H, S), (B, 1, S), (1, H, 1), (H, S), (S,), (1,), (B, 1, 1), ()]))
    if kind == "bool":
        mask = rng.random((*lead, columns)) < 0.7
    elif kind == "int":
        mask = rng.integers(-2, 3, (*lead, columns))
    else:
        mask = normal(*lead, columns)
        mask[rng.random(mask.shape) < 0.2] = -np.inf
        mask = mask.astype(np.float32) if kind == "float32" else mask
    return {"attn_mask": mask}


@st.composite
def calls(draw):
    """Arguments of attention."""
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))

    def normal(*shape):
        return rng.normal(size=shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    B, Hk = draw(st.sampled_from([1, 2, 3, 0])), draw(st.integers(1, 3))
    H = Hk * draw(st.sampled_from([1, 2, 4]))
    D, Dv = draw(st.sampled_from([1, 3, 8, 16, 20, 64])), draw(st.sampled_from([2, 16, 24]))
    S, N = draw(st.sampled_from([1, 2, 5, 33, 0])), draw(st.sampled_from([1, 4, 7, 70, 0]))
    arguments = {"is_causal": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        arguments |= {"Q": normal(B, H, S, D), "K": normal(B, Hk, N, D), "V": normal(B, Hk, N, Dv)}
    else:
        arguments |= {"Q": normal(B, S, H * D), "K": normal(B, N, Hk * D), "V": normal(B, N, Hk * Dv)}
        arguments |= {"q_num_heads": H, "kv_num_heads": Hk}
    past = 0
    cache = draw(st.sampled_from([None, "past", "nonpad"]))
    if cache == "past":
        past = draw(st.sampled_from([0, 1, 6, 40]))
        arguments |= {"past_key": normal(B, Hk, past, D), "past_value": normal(B, Hk, past, Dv)}
    elif cache == "nonpad":
        arguments["nonpad_kv_seqlen"] = rng.integers(0, N + 1, B)
    arguments |= draw_mask(draw, normal, rng, (B, H, S, past + N))
    if draw(st.booleans()):
        arguments["scale"] = draw(st.sampled_from([0.05, 0.3]))
    if draw(st.integers(0, 2)) == 0:
        arguments["softcap"] = draw(st.sampled_from([0.5, 4.0, 30.0]))
    if draw(st.integers(0, 2)) == 0:
        arguments["left_window_size"] = draw(st.integers(-1, 6))
        arguments["right_window_size"] = draw(st.integers(-1, 3))
    return arguments


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(
    arguments=calls(), mode=st.sampled_from([None, 0, 1, 2, 3]), present=st.sampled_from([None, False, True])
)
def test_definition(target, arguments, mode, present):
    if "nonpad_kv_seqlen" in arguments and present:
        present = None
    Y, key, value, matmul = quire.onnx.attention(
        **arguments, qk_matmul_output_mode=mode, present=present, context=contexts.context(target)
    )
    wanted = reference_onnx.attention(**arguments, qk_matmul_output_mode=mode or 0)
    tolerance = TOLERANCE[Y.dtype.name]
    assert Y.dtype == arguments["Q"].dtype
    np.testing.assert_allclose(Y.astype(float), wanted[0], atol=tolerance, rtol=tolerance)
    if present or (present is None and "past_key" in arguments):
        assert (key == wanted[1]).all() and (value == wanted[2]).all()
        assert key.shape == wanted[1].shape and value.shape == wanted[2].shape
        assert not np.shares_memory(key, arguments["K"]) and key.dtype == arguments["K"].dtype
    else:
        assert key is None and value is None
    if mode is None:
        assert matmul is None
    else:
        assert matmul.dtype == arguments["Q"].dtype
        np.testing.assert_allclose(matmul.astype(float), wanted[3], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("target", contexts.TARGETS)
@settings(max_examples=50)
@given(arguments=calls())
def test_same_bits_in_every_threading(target, arguments):
    inline = quire.onnx.attention(**arguments, context=contexts.context(target))[0]
    for threading in contexts.THREADINGS:
        result = quire.onnx.attention(**arguments, context=contexts.context(target, threading))[0]
        assert result.tobytes() == inline.tobytes(), threading


def inputs(B=2, H=4, Hk=2, S=3, N=5, D=8, Dv=6):
    rng = np.random.default_rng(1)
    shapes = {"Q": (B, H, S, D), "K": (B, Hk, N, D), "V": (B, Hk, N, Dv)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_any_strides_and_libraries():
    plain = inputs()
    wanted = quire.onnx.attention(**plain)[0]
    columns = {name: np.asfortranarray(array) for name, array in plain.items()}
    np.testing.assert_array_equal(quire.onnx.attention(**columns)[0], wanted)
    foreign = {name: OnlyDLPack(array) for name, array in plain.items()}
    np.testing.assert_array_equal(quire.onnx.attention(**foreign)[0], wanted)


def test_values_of_another_type():
    arguments = inputs()
    arguments["V"] = arguments["V"].astype(np.float16)
    Y = quire.onnx.attention(**arguments)[0]
    assert Y.dtype == np.float32
    np.testing.assert_allclose(Y, reference_onnx.attention(**arguments)[0], atol=2e-5)


def test_padding_may_hold_anything():
    arguments = {**inputs(), "nonpad_kv_seqlen": np.array([2, 5]), "is_causal": 1}
    wanted = quire.onnx.attention(**arguments)[0]
    for name in "KV":
        arguments[name][0, :, 2:] = np.nan
    np.testing.assert_array_equal(quire.onnx.attention(**arguments)[0], wanted)


PLAIN = inputs()
FLAT = {name: array.swapaxes(1, 2).reshape(2, array.shape[2], -1) for name, array in PLAIN.items()}
PAST = np.zeros((2, 2, 3, 8), np.float32), np.zeros((2, 2, 3, 6), np.float32)
WRONG_CALLS = {
    "Q has type float64: must be float32, float16, bfloat16": {"Q": PLAIN["Q"].astype(float)},
    "K has type float16: must be float32": {"K": PLAIN["K"].astype(np.float16)},
    "Q has 2 dimensions: must be [B, H, S, D] or [B, S, H * D]": {"Q": PLAIN["Q"][0, 0]},
    "K has 3 dimensions: must have as many as Q, 4": {"K": PLAIN["K"][0]},
    "q_num_heads is 3: must be Q's number of heads, 4": {"q_num_heads": 3},
    "q_num_heads is None: must be at least 1 with arrays of 3 dimensions": FLAT,
    "V has shape (2, 5, 12): kv_num_heads, 8, must divide": {**FLAT, "q_num_heads": 8, "kv_num_heads": 8},
    "kv_num_heads is 2.0: must be an integer": {**FLAT, "q_num_heads": 4, "kv_num_heads": 2.0},
    "K has shape (2, 2, 5, 7): B must be 2 and D 8, as in Q": {"K": PLAIN["K"][..., :7]},
    "V has shape (2, 2, 4, 6): B must be 2, N 5 and Hk 2, as in Q and K": {"V": PLAIN["V"][:, :, :4]},
    "K has 2 heads: must divide Q's 3": {"Q": PLAIN["Q"][:, :3]},
    "past_value is None: must be given with past_key": {"past_key": PAST[0]},
    "past_value has shape (2, 2, 2, 6): must be [2, 2, past, 6]": {
        "past_key": PAST[0],
        "past_value": PAST[1][:, :, :2],
    },
    "nonpad_kv_seqlen is given: must be None with past_key": {
        "past_key": PAST[0],
        "past_value": PAST[1],
        "nonpad_kv_seqlen": [3, 3],
    },
    "nonpad_kv_seqlen is given: must be None where the presents": {
        "nonpad_kv_seqlen": [3, 3],
        "present": True,
    },
    "nonpad_kv_seqlen has type float64: must be integers": {"nonpad_kv_seqlen": [3.0, 3.0]},
    "nonpad_kv_seqlen has shape (3,): must be (2,)": {"nonpad_kv_seqlen": [3, 3, 3]},
    "nonpad_kv_seqlen[1] is 6: must be 0 to 5": {"nonpad_kv_seqlen": [3, 6]},
    "attn_mask has shape (2, 5): must broadcast to (2, 4, 3, 5)": {"attn_mask": np.ones((2, 5), bool)},
    "attn_mask has shape (3, 6): must broadcast to (2, 4, 3, 5)": {"attn_mask": np.ones((3, 6), bool)},
    "attn_mask has 5 dimensions: must be 1 to 4": {"attn_mask": np.ones((1, 1, 1, 3, 5), bool)},
    "attn_mask has type complex128: must be bool or real numbers": {"attn_mask": np.ones((3, 5), complex)},
    "left_window_size is -2: must be -1 or more": {"left_window_size": -2},
    "right_window_size is None: must be an integer": {"right_window_size": None},
    "softmax_precision is 2: must be 1, 10, 11 or 16": {"softmax_precision": 2},
    "qk_matmul_output_mode is 4: must be 0, 1, 2 or 3": {"qk_matmul_output_mode": 4},
    "scale is 0": {"scale": 0},
}


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls(message, wrong):
    with pytest.raises(quire.Error) as error:
        quire.onnx.attention(**{**PLAIN, **wrong})
    assert message in str(error.value)
