"""quire.attention of batches [B, S, H, D]: masks by sequence, positions, key ranges and trees."""

import contexts
import numpy as np
import pytest
import quire
import reference
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def calls(draw):
    """Arguments of quire.attention."""
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    B, Hk = draw(st.integers(0, 3)), draw(st.integers(1, 2))
    H, D, Dv = (
        Hk * draw(st.sampled_from([1, 3])),
        draw(st.sampled_from([8, 20])),
        draw(st.sampled_from([8, 24])),
    )
    S, T = draw(st.sampled_from([0, 1, 3, 30, 70])), draw(st.sampled_from([0, 1, 5, 40, 300]))

    def normal(*shape):
        shape = (shape[0], *shape[2:0:-1], *shape[3:]) if swapped else shape
        array = rng.normal(size=shape).astype(np.float32)
        return array.swapaxes(1, 2) if swapped else array

    swapped = draw(st.booleans())
    arguments = {"query": normal(B, S, H, D), "key": normal(B, T, Hk, D), "value": normal(B, T, Hk, Dv)}
    if draw(st.booleans()):
        shape = [draw(st.sampled_from([1, length])) for length in (B, H, S, T)]
        mask = rng.normal(size=shape).astype(draw(st.sampled_from(["float32", "float16"])))
        mask[rng.random(shape) < 0.2] = -np.inf
        arguments["attn_mask"] = mask > -0.5 if draw(st.booleans()) else mask
    if draw(st.booleans()):
        ends = np.sort(rng.integers(0, T + 1, (2, B)), axis=0)
        arguments |= {"key_begin": ends[0], "key_end": ends[1]}
    if draw(st.booleans()):
        arguments["query_positions"] = rng.integers(-3, T + 4, B)
    else:
        arguments["causal_corner"] = draw(st.sampled_from(["bottom_right", "top_left"]))
    if T >= S and draw(st.booleans()):
        arguments["tree_mask"] = rng.integers(-(2**62), 2**62, (B * S, (S + 63) // 64))
    arguments |= {"is_causal": draw(st.booleans()), "is_alibi": draw(st.booleans())}
    if draw(st.booleans()):
        arguments |= {"window_left": draw(st.integers(-1, 9)), "window_right": draw(st.integers(-1, 3))}
    return arguments


def hidden_by_tree(words, S, T):
    """[S, T]: new key j of query i is seen where bit j % 64 of word j // 64 is set."""
    hidden = np.zeros((S, T), bool)
    for i in range(S):
        for j in range(S):
            hidden[i, T - S + j] = not int(words[i, j // 64]) >> (j % 64) & 1
    return hidden


def definition(query, key, value, b, *, attn_mask=None, key_begin=None, key_end=None, query_positions=None,
               causal_corner="bottom_right", tree_mask=None, is_causal=False, is_alibi=False, window_left=-1,
               window_right=-1):  # fmt: skip
    """Sequence b. Window, masks and ALiBi are added here: reference.attention knows no position."""
    S, H, _ = query[b].shape
    T = key.shape[1]
    first = T - S if causal_corner == "bottom_right" else 0
    if query_positions is not None:
        first = query_positions[b]
    distance = np.arange(T) - (first + np.arange(S)[:, None])
    added = np.zeros((H, S, T))
    if is_alibi:
        added += reference.alibi_slopes(H)[:, None, None] * distance
    if attn_mask is not None:
        mask = attn_mask if attn_mask.dtype != bool else np.where(attn_mask, 0.0, -np.inf)
        added += np.broadcast_to(mask, (len(query), H, S, T))[b].astype(float)
    hidden = np.zeros((S, T), bool)
    if is_causal or is_alibi:
        hidden |= distance > 0
    if window_left >= 0:
        hidden |= distance < -window_left
    if window_right >= 0:
        hidden |= distance > window_right
    if key_begin is not None:
        hidden |= (np.arange(T) < key_begin[b]) | (np.arange(T) >= key_end[b])
    if tree_mask is not None:
        hidden |= hidden_by_tree(tree_mask[b * S : (b + 1) * S], S, T)
    added[:, hidden] = -np.inf
    return reference.attention(query[b], key[b], value[b], attn_mask=added)


@pytest.mark.parametrize("target", contexts.TARGETS)
@given(arguments=calls())
def test_definition(target, arguments):
    output, lse = quire.attention(**arguments, return_lse=True, context=contexts.context(target))
    assert lse.shape == output.shape[:3] == arguments["query"].shape[:3]
    for b in range(len(output)):
        wanted, wanted_lse = definition(**arguments, b=b)
        np.testing.assert_allclose(output[b], wanted, atol=2e-5, rtol=2e-5)
        np.testing.assert_allclose(lse[b], wanted_lse, atol=5e-5, rtol=2e-5)


def test_out_and_wrong_shapes():
    rng = np.random.default_rng(1)
    query, key, value = rng.normal(size=(3, 2, 4, 5, 8)).astype(np.float32)
    out = np.zeros((2, 5, 4, 8), np.float32)
    output, lse = quire.attention(query, key, value, out=out.swapaxes(1, 2))
    assert lse is None and np.shares_memory(out, output)
    np.testing.assert_array_equal(out.swapaxes(1, 2), quire.attention(query, key, value)[0])
    for message, wrong in {
        "out has 3 dimensions: must be [B, S, H, Dv]": {"out": out[0]},
        "out has length 5 in dimension 1: must be 4": {"out": out},
        "value has 3 dimensions: must be [B, T, Hk, Dv]": {"value": value[0]},
        "query has 5 dimensions: must be [n, H, D] or [B, S, H, D]": {"query": query[None]},
        "seqstarts is given: must be NULL with a query": {"seqstarts": [0, 4]},
        "key_end[1] is 5: must be 0 to 4": {"key_end": [4, 5]},
        "causal_corner is 'top': must be 'bottom_right' or 'top_left'": {"causal_corner": "top"},
    }.items():
        with pytest.raises(quire.Error) as error:
            quire.attention(**{"query": query, "key": key, "value": value, **wrong})
        assert message in str(error.value)
