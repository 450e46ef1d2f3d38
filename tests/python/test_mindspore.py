"""quire.mindspore.MultiHeadAttention: random calls against the definition, and calls that must agree."""

import types

import contexts
import numpy as np
import pytest
import quire
import reference_mindspore
from hypothesis import given
from hypothesis import strategies as st

TOLERANCE = {"float32": 3e-5, "float16": 1e-2}
# float32 keeps scores to 2^-10 beside the mask's -10000.
TOLERANCE_OF_MASKED_ROWS = 4e-3
SIZES = {"batch_size": 2, "src_seq_length": 6, "tgt_seq_length": 6, "hidden_size": 24, "num_heads": 3}
DENSES = ("dense1", "dense2", "dense3", "projection")


def weights_of(rng, hidden, dtype):
    weights = {}
    for name in DENSES:
        weights[f"{name}.weight"] = (rng.normal(size=(hidden, hidden)) / np.sqrt(hidden)).astype(dtype)
        weights[f"{name}.bias"] = (rng.normal(size=hidden) / 4).astype(dtype)
    return weights


def set_weights(layer, weights):
    for name, array in weights.items():
        dense, part = name.split(".")
        setattr(getattr(layer, dense), part, array)
    return layer


def draw_mask(draw, rng, shape, dtype):
    B, H, S, T = shape
    kind = draw(st.sampled_from(["none", "causal", "random", "fractions", "heads"]))
    if kind == "none":
        return None
    if kind == "causal":
        return np.broadcast_to(np.tri(S, T, T - S), (B, S, T)).astype(dtype)
    if kind == "fractions":  # a hundredth is a hundred less, or more
        return (1 + rng.integers(-3, 4, size=(B, S, T)) / 2048).astype(dtype)
    if kind == "heads":
        return rng.integers(0, 2, size=(B, draw(st.sampled_from([1, H])), S, T)).astype(dtype)
    return rng.integers(0, 2, size=(B, S, T)).astype(dtype)


@st.composite
def calls(draw, training=(False, True)):
    """Attributes and weights of a layer, a call's tensors, is_first_iteration and training."""
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    types_of = st.sampled_from(["float32", "float16"])
    B, H = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 5]))
    hidden = H * draw(st.sampled_from([1, 3, 8, 16, 20, 64]))
    T = draw(st.sampled_from([1, 2, 7, 33, 70]))
    use_past = draw(st.booleans())
    S = T if use_past else draw(st.sampled_from([1, 3, 8, 40]))
    first = not use_past or draw(st.booleans())
    queries, keys = (S, T) if first else (1, 1)

    def rows(tokens):
        wide = rng.normal(size=(B, tokens, hidden + 4 * draw(st.booleans())))
        array = wide.astype(draw(types_of))[..., :hidden]
        return array.reshape(B * tokens, hidden) if draw(st.booleans()) else array

    tensors = {"query_tensor": rows(queries), "key_tensor": rows(keys), "value_tensor": rows(keys)}
    mask = draw_mask(draw, rng, (B, H, queries, T), draw(types_of))
    if mask is not None:
        tensors["attention_mask"] = mask
    if use_past:
        lengths = rng.integers(0, T + first, size=B).astype(np.int32)
        tensors["batch_valid_length"] = lengths
        if not first or draw(st.booleans()):
            key_past = rng.normal(size=(B, H, hidden // H, T)).astype(np.float16)
            value_past = rng.normal(size=(B, H, T, hidden // H)).astype(np.float16)
            for b, length in enumerate(lengths):  # dead: what is there has no effect
                key_past[b, :, :, length:] = np.nan
                value_past[b, :, length:] = np.inf
            tensors |= {"key_past": key_past, "value_past": value_past}
    attributes = {
        "batch_size": B, "src_seq_length": S, "tgt_seq_length": T, "hidden_size": hidden, "num_heads": H,
        "hidden_dropout_rate": draw(st.sampled_from([0.0, 0.1, 0.6])),
        "attention_dropout_rate": draw(st.sampled_from([0.0, 0.1, 0.6])),
        "compute_dtype": draw(types_of), "softmax_compute_type": draw(types_of),
        "param_init_type": draw(types_of), "use_past": use_past,
    }  # fmt: skip
    weights = weights_of(rng, hidden, attributes["param_init_type"])
    return attributes, weights, tensors, first, draw(st.sampled_from(training))


def run(call, context=None, **options):
    attributes, weights, tensors, first, training = call
    layer = quire.mindspore.MultiHeadAttention(**attributes, **options, seed=11, context=context)
    set_weights(layer, weights)
    layer.is_first_iteration = first
    layer.training, layer.step = training, 3
    output, presents = layer(**tensors)
    assert layer.step == 3 + training
    return output, *presents


def dead_to_zero(past, lengths, axis):
    """A past as the definition may compute with it, with 0 for what has no effect."""
    past = np.moveaxis(past, axis, 1).copy()
    for b, length in enumerate(lengths):
        past[b, length:] = 0
    return np.moveaxis(past, 1, axis)


def masked_rows(tensors):
    mask = tensors.get("attention_mask")
    return mask is not None and bool((mask.astype(float) < 0.9).any())


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(call=calls())
def test_definition(target, call):
    output, key_present, value_present = run(call, contexts.context(target))
    attributes, weights, tensors, first, training = call
    tensors = {**tensors, "B": attributes["batch_size"]}
    past = {name: tensors[name] for name in ("key_past", "value_past") if name in tensors}
    for name, axis in (("key_past", 3), ("value_past", 2)):
        if name in past:
            tensors[name] = dead_to_zero(past[name], tensors["batch_valid_length"], axis)
    rates = attributes["hidden_dropout_rate"], attributes["attention_dropout_rate"]
    wanted = reference_mindspore.multi_head_attention(
        tensors, weights, num_heads=attributes["num_heads"], compute_dtype=attributes["compute_dtype"],
        incremental=not first, rates=rates if training else (0.0, 0.0), seed=11, step=3,
    )  # fmt: skip
    query = tensors["query_tensor"]
    assert output.shape == query.shape and output.dtype == query.dtype
    compute = np.dtype(attributes["compute_dtype"])
    assert key_present.dtype == compute and value_present.dtype == compute
    tolerance = TOLERANCE[max(compute, query.dtype, key=lambda t: TOLERANCE[t.name]).name]
    scale = 1 / (1 - max(rates)) ** 2 if training else 1
    presents = [(key_present, wanted[1], 3), (value_present, wanted[2], 2)]
    if not first:  # dead positions of the past come back as they are
        for (present, _, axis), name in zip(presents, ("key_past", "value_past")):
            got, was = (np.moveaxis(array, axis, 1) for array in (present, past[name]))
            for b, length in enumerate(tensors["batch_valid_length"]):
                np.testing.assert_array_equal(got[b, :length], was[b, :length])
                np.testing.assert_array_equal(got[b, length + 1 :], was[b, length + 1 :])
    for present, rows, axis in presents:
        seen = np.nan_to_num(present.astype(float), posinf=0, nan=0) if not first else present.astype(float)
        if not first:
            seen = dead_to_zero(seen, tensors["batch_valid_length"] + 1, axis)
            rows = dead_to_zero(rows, tensors["batch_valid_length"] + 1, axis)
        np.testing.assert_allclose(seen, rows, atol=TOLERANCE[compute.name], rtol=TOLERANCE[compute.name])
    tolerance = max(tolerance, TOLERANCE_OF_MASKED_ROWS if masked_rows(tensors) else 0) * scale
    got = output.reshape(wanted[0].shape).astype(float)
    np.testing.assert_allclose(got, wanted[0], atol=tolerance, rtol=tolerance)


def same_bits(first, second):
    return all(one.tobytes() == other.tobytes() for one, other in zip(first, second))


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(call=calls())
def test_same_bits_in_every_threading(target, call):
    inline = run(call, contexts.context(target))
    for threading in contexts.THREADINGS:
        assert same_bits(inline, run(call, contexts.context(target, threading), parallel_config=2)), threading


@given(call=calls(training=(False,)))
def test_inference_drops_nothing(call):
    attributes, *rest = call
    still = {**attributes, "hidden_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    assert same_bits(run(call), run((still, *rest)))


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def layer_of(weights_seed=5, **options):
    attributes = {**SIZES, "compute_dtype": "float32", **options}
    layer = quire.mindspore.MultiHeadAttention(**attributes)
    weights = weights_of(
        np.random.default_rng(weights_seed), 24, attributes.get("param_init_type", "float32")
    )
    return set_weights(layer, weights)


@pytest.mark.parametrize("target", contexts.TARGETS)
@pytest.mark.parametrize("compute", ["float32", "float16"])
def test_token_by_token_is_the_whole(target, compute):
    """A first iteration, then one token after the other: as all at once with a causal mask."""
    layer = layer_of(use_past=True, compute_dtype=compute, context=contexts.context(target))
    tokens, lengths = normal(2, 6, 24), np.array([3, 1], np.int32)
    causal = np.broadcast_to(np.tri(6), (2, 6, 6)).astype(np.float32)
    whole, _ = layer_of(compute_dtype=compute, context=contexts.context(target))(
        tokens, tokens, tokens, causal
    )
    output, present = layer(tokens, tokens, tokens, causal, batch_valid_length=lengths)
    np.testing.assert_array_equal(output, whole)
    layer.add_flags_recursive(is_first_iteration=False)
    while lengths.max() < 6:
        fresh = np.stack([tokens[b, [length]] for b, length in enumerate(lengths)])
        pasts = [array.astype(np.float16) for array in present]
        mask = np.ones((2, 1, 6), np.float32)
        output, present = layer(fresh, fresh, fresh, mask, *pasts, lengths)
        for b, length in enumerate(lengths):
            np.testing.assert_allclose(output[b, 0], whole[b, length], atol=5e-3)
        lengths += 1


def test_sequences_do_not_depend_on_each_other():
    """Permuting the batch permutes the output, to the bit."""
    layer, order = layer_of(batch_size=5), [3, 0, 4, 1, 2]
    tokens, mask = normal(5, 6, 24), (normal(5, 6, 6, seed=2) > 0).astype(np.float32)
    output, presents = layer(tokens, tokens, tokens, mask)
    again, others = layer(tokens[order], tokens[order], tokens[order], mask[order])
    assert same_bits([output[order], *(p[order] for p in presents)], [again, *others])


def test_dropout_by_step_and_seed():
    layer, tokens = layer_of(hidden_dropout_rate=0.5, training=True, seed=4), normal(2, 6, 24)
    first, second = (layer(tokens, tokens, tokens)[0] for _ in range(2))
    assert layer.step == 2 and not np.array_equal(first, second)
    layer.step = 0
    np.testing.assert_array_equal(layer(tokens, tokens, tokens)[0], first)
    layer.step, layer.seed = 0, 5
    assert not np.array_equal(layer(tokens, tokens, tokens)[0], first)
    layer.set_train(False)
    still = layer(tokens, tokens, tokens)[0]
    np.testing.assert_array_equal(layer(tokens, tokens, tokens)[0], still)
    assert layer.step == 1 and (still != 0).all()
    np.testing.assert_array_equal(layer(tokens, tokens, tokens, training=True)[0] == 0, layer_zeros(24))


def layer_zeros(hidden):
    return (reference_mindspore.dropout_factors([0xFFFFFFFF], 12, hidden, 0.5, 5, 1)[0] == 0).reshape(
        2, 6, hidden
    )


def test_mean_over_steps_is_inference():
    layer, tokens = layer_of(hidden_dropout_rate=0.2, attention_dropout_rate=0.3), normal(2, 6, 24)
    wanted = layer(tokens, tokens, tokens)[0]
    steps = [layer(tokens, tokens, tokens, training=True)[0].astype(float) for _ in range(3000)]
    deviation = np.std(steps, axis=0) / np.sqrt(len(steps))
    assert (np.abs(np.mean(steps, axis=0) - wanted) < 5 * deviation + 1e-6).all()


def test_rows_without_a_key_are_the_softmax_of_their_scores():
    layer, tokens = layer_of(), normal(2, 6, 24)
    plain = layer(tokens, tokens, tokens)[0]
    masked = layer(tokens, tokens, tokens, np.zeros((2, 6, 6), np.float32))[0]
    np.testing.assert_allclose(masked, plain, atol=4e-3)


def test_weights():
    layer, tokens = layer_of(), normal(2, 6, 24)
    before = layer(tokens, tokens, tokens)[0]
    with pytest.raises(ValueError, match="read-only"):
        layer.dense1.weight[0, 0] = 1
    weight = layer.dense1.weight * 2
    layer.dense1.weight = weight
    changed = layer(tokens, tokens, tokens)[0]
    assert not np.array_equal(before, changed)
    weight[:] = np.nan  # the layer has its own
    np.testing.assert_array_equal(layer(tokens, tokens, tokens)[0], changed)
    fresh = quire.mindspore.MultiHeadAttention(1, 2, 2, 64, 2, seed=1)
    assert 0.008 < fresh.projection.weight.std() < 0.012 and not fresh.dense2.bias.any()
    assert fresh.dense1.weight.dtype == np.float32


def test_parallel_config_and_types_of_mindspore():
    config = types.SimpleNamespace(data_parallel=2, model_parallel=1)
    dtype = type("Float", (), {"__str__": lambda self: "Float32"})()
    tokens = normal(2, 6, 24)
    output = layer_of(parallel_config=config, compute_dtype=dtype)(tokens, tokens, tokens)[0]
    np.testing.assert_array_equal(output, layer_of(parallel_config=1)(tokens, tokens, tokens)[0])


@pytest.mark.parametrize("target", contexts.TARGETS)
def test_generated_kernels_run_it(target):
    """Also with dropout: it is no matter of the plan."""
    text = layer_of(context=contexts.context(target)).explain()
    assert f"attention: {target}\n" in text
    assert ("dense: oneDNN " if target != "portable" else "dense: portable") in text


def test_without_presents():
    layer, tokens = layer_of(), normal(2, 6, 24)
    output, presents = layer(tokens, tokens, tokens, present=False)
    assert presents == (None, None)
    np.testing.assert_array_equal(output, layer(tokens, tokens, tokens)[0])


WRONG_LAYERS = {
    "batch_size is 0: must be 1 to 1048576": {"batch_size": 0},
    "batch_size is '2' (str): must be an integer": {"batch_size": "2"},
    "hidden_size is -24: must be 1 to 1048576": {"hidden_size": -24},
    "num_heads is 5: must divide hidden_size, 24": {"num_heads": 5},
    "hidden_dropout_rate is 1: must be at least 0 and less than 1": {"hidden_dropout_rate": 1.0},
    "attention_dropout_rate is -0.5: must be at least 0": {"attention_dropout_rate": -0.5},
    "compute_dtype is 'bfloat16': must be float32 or float16": {"compute_dtype": "bfloat16"},
    "softmax_compute_type is <class 'numpy.float64'>: must be float32": {"softmax_compute_type": np.float64},
    "param_init_type is 'int8': must be float32 or float16": {"param_init_type": "int8"},
    "use_past is 1: must be True or False": {"use_past": 1},
    "training is 'yes': must be True or False": {"training": "yes"},
    "tgt_seq_length is 7: must be src_seq_length, 6, where use_past is 1": {
        "tgt_seq_length": 7,
        "use_past": True,
    },
    "parallel_config is -1: must be 0 to 1024": {"parallel_config": -1},
    "precision is 'exact'": {"precision": "exact"},
}


@pytest.mark.parametrize("message, wrong", WRONG_LAYERS.items(), ids=range(len(WRONG_LAYERS)))
def test_wrong_layers(message, wrong):
    with pytest.raises(quire.Error) as error:
        quire.mindspore.MultiHeadAttention(**{**SIZES, **wrong})
    assert message in str(error.value)


HALVES = np.zeros((24, 24), np.float16)


@pytest.mark.parametrize(
    "message, name, part, value",
    [
        ("dense1.weight has type float16: must be param_init_type, float32", "dense1", "weight", HALVES),
        ("dense3.weight has shape [24, 23]: must be [24, 24]", "dense3", "weight", normal(24, 23)),
        ("projection.bias has shape [1, 24]: must be [24]", "projection", "bias", normal(1, 24)),
        ("dense2.bias has type int64: must be param_init_type, float32", "dense2", "bias", [0] * 24),
    ],
)  # fmt: skip
def test_wrong_weights(message, name, part, value):
    layer = layer_of()
    before = getattr(getattr(layer, name), part)
    with pytest.raises(quire.Error) as error:
        setattr(getattr(layer, name), part, value)
    assert message in str(error.value)
    assert getattr(getattr(layer, name), part) is before


TOKENS = normal(2, 6, 24)
PAST = {"key_past": np.zeros((2, 3, 8, 6), np.float16), "value_past": np.zeros((2, 3, 6, 8), np.float16)}
LENGTHS = np.array([3, 5], np.int32)
WRONG_CALLS = {  # the message: is it an incremental call, changed arguments
    "query_tensor is None": (False, {"query_tensor": None}),
    "query_tensor has type float64: must be float32 or float16": (
        False, {"query_tensor": TOKENS.astype(float)}),
    "query_tensor has shape [2, 5, 24]: dimension 1": (False, {"query_tensor": TOKENS[:, :5]}),
    "query_tensor has rank 1: must be 2 or 3": (False, {"query_tensor": TOKENS[0, 0]}),
    "key_tensor has shape [11, 24]: dimension 0": (False, {"key_tensor": TOKENS.reshape(12, 24)[:11]}),
    "value_tensor has shape [2, 6, 23]: dimension 2": (False, {"value_tensor": TOKENS[..., :23]}),
    "attention_mask has type bool: must be float32 or float16": (
        False, {"attention_mask": np.ones((2, 6, 6), bool)}),
    "attention_mask has rank 2: must be 3 or 4": (False, {"attention_mask": np.ones((6, 6), np.float32)}),
    "attention_mask has shape [2, 2, 6, 6]: dimension 1 of [B, H or 1, S, T] must be 3 or 1": (
        False, {"attention_mask": np.ones((2, 2, 6, 6), np.float32)}),
    "key_past is given: must be NULL where use_past is 0": (False, {"key_past": PAST["key_past"]}),
    "batch_valid_length is given: must be NULL where use_past is 0": (False, {"batch_valid_length": LENGTHS}),
    "training is 2: must be True or False": (False, {"training": 2}),
    "key_past is NULL: must be a tensor [B, H, D, T]": (True, {"key_past": None}),
    "key_past has type float32: must be float16": (True, {"key_past": np.zeros((2, 3, 8, 6), np.float32)}),
    "value_past has shape [2, 3, 8, 6]: dimension 2 of [B, H, T, D] must be 6": (
        True, {"value_past": PAST["key_past"]}),
    "batch_valid_length is NULL: must be a tensor [B]": (True, {"batch_valid_length": None}),
    "batch_valid_length has type int64: must be int32": (True, {"batch_valid_length": np.array([3, 5])}),
    "batch_valid_length[1] is 6: must be 0 to 5, tgt_seq_length is 6 and the past is full": (
        True, {"batch_valid_length": np.array([3, 6], np.int32)}),
    "query_tensor has shape [2, 6, 24]: dimension 1 of [B, tokens, hidden_size] must be 1": (
        True, {"query_tensor": TOKENS}),
}  # fmt: skip


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls(message, wrong):
    incremental, changed = wrong
    layer = layer_of(use_past=incremental)
    layer.is_first_iteration = not incremental
    rows = TOKENS[:, :1] if incremental else TOKENS
    valid = {"query_tensor": rows, "key_tensor": rows, "value_tensor": rows}
    if incremental:
        valid |= {**PAST, "batch_valid_length": LENGTHS}
    layer(**valid)
    with pytest.raises(quire.Error) as error:
        layer(**{**valid, **changed})
    assert message in str(error.value)
    assert layer.step == 0
