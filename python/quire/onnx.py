"""Operators of ONNX's default domain, on NumPy arrays."""

import numpy as np

from ._convert import _as_array
from ._quire import Error
from ._quire import attention as _attention

__all__ = ["attention"]

_TYPES = ("float32", "float16", "bfloat16")
# TensorProto's numbers of float, float16, double and bfloat16.
_SOFTMAX_PRECISIONS = (1, 10, 11, 16)


def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    left_window_size=-1,
    q_num_heads=None,
    qk_matmul_output_mode=None,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
    present=None,
    precision="highest",
    context=None,
):
    """ONNX Attention of opsets 23 to 25, run by quire.attention.

    Names, shapes and meanings are the operator's. B sequences, H query heads, Hk key/value heads, S
    queries and N keys of D values (Dv of the values), T = past + N. Arrays are float32, float16 or bfloat16.

    Args:
        Q: [B, H, S, D], or [B, S, H * D] with q_num_heads and kv_num_heads.
        K: [B, Hk, N, D] or [B, N, Hk * D], of Q's type.
        V: [B, Hk, N, Dv] or [B, N, Hk * Dv].
        attn_mask: bool (False hides) or numbers (added to the scores), broadcast to [B, H, S, T]. A last
            dimension below T (also of 1) hides the keys past it.
        past_key, past_value: [B, Hk, past, D] and [B, Hk, past, Dv], before K and V.
        nonpad_kv_seqlen: [B] integers 0..N: keys of each sequence that are not padding. Not with a past.
        is_causal: 1: query i sees keys up to its position, offset + i. The offset is the past's length, or
            nonpad_kv_seqlen - S, or 0: not T - S, as it is in quire.attention.
        kv_num_heads, q_num_heads: Hk and H, for arrays of 3 dimensions.
        left_window_size, right_window_size: keys seen before and after a query's position; -1: all. Opset 25.
        qk_matmul_output_mode: what qk_matmul_output holds: 0 scale * Q.K, 1 that after the soft cap, 2 that
            with masks added, 3 the softmax. None: there is none. It is computed by NumPy, for looking at.
        scale: of the scores; None: 1 / sqrt(D).
        softcap: c > 0: scores become c * tanh(score / c), before masks.
        softmax_precision: 1, 10, 11 or 16. Not used: quire's softmax is of float32.
        present: whether present_key and present_value are wanted; None: where there is a past.
        precision: "highest", "high" or "medium".
        context: a quire.Context; None: the default one.

    Returns:
        (Y, present_key, present_value, qk_matmul_output), new NumPy arrays: [B, H, S, Dv] (or [B, S, H * Dv],
        as Q) of Q's type; [B, Hk, T, D] and [B, Hk, T, Dv]; [B, H, S, T]. The last three are None unless
        wanted. A query that sees no key gives zeros.

    Raises quire.Error, naming the argument.
    """
    by_heads, query, key, value = _inputs(Q, K, V, q_num_heads, kv_num_heads)
    B, S, H, D = query.shape
    past = 0
    if past_key is not None or past_value is not None:
        past_key, past_value = _pasts(past_key, past_value, key, value)
        past = past_key.shape[2]
        key, value = (
            np.concatenate([before, new.swapaxes(1, 2)], axis=2).swapaxes(1, 2)
            for before, new in ((past_key, key), (past_value, value))
        )
    T = key.shape[1]
    lengths = _lengths(nonpad_kv_seqlen, B, T, past_key, present)
    offset = np.full(B, past) if lengths is None else lengths - S
    mask = _mask(attn_mask, (B, H, S, T))
    # Keys past the mask are hidden: they are left out.
    seen = T if mask is None else mask.shape[3]
    window = [
        _window_size(left_window_size, "left_window_size"),
        _window_size(right_window_size, "right_window_size"),
    ]
    if softmax_precision is not None and softmax_precision not in _SOFTMAX_PRECISIONS:
        raise Error(f"softmax_precision is {softmax_precision}: must be 1, 10, 11 or 16")
    if qk_matmul_output_mode is not None and qk_matmul_output_mode not in (0, 1, 2, 3):
        raise Error(f"qk_matmul_output_mode is {qk_matmul_output_mode}: must be 0, 1, 2 or 3")

    Dv = value.shape[3]
    Y = np.empty((B, H, S, Dv) if by_heads else (B, S, H * Dv), query.dtype)
    _attention(
        _rows(query),
        _rows(key[:, :seen]),
        _rows(value[:, :seen]),
        attn_mask=mask,
        scale=scale,
        is_causal=is_causal,
        window_left=window[0],
        window_right=window[1],
        logits_soft_cap=softcap,
        query_positions=offset,
        key_end=None if lengths is None else np.minimum(lengths, seen),
        precision=precision,
        out=Y.swapaxes(1, 2) if by_heads else Y.reshape(B, S, H, Dv),
        context=context,
    )

    presents = None, None
    if present or (present is None and past_key is not None):
        presents = tuple(np.ascontiguousarray(rows.swapaxes(1, 2)) for rows in (key, value))
        if past_key is None:  # they may be the caller's own arrays
            presents = tuple(rows.copy() for rows in presents)
    scores = None
    if qk_matmul_output_mode is not None:
        hidden = _hidden(offset, lengths, S, T, bool(is_causal), *window)
        scores = _scores(query, key, mask, hidden, scale, softcap, qk_matmul_output_mode)
    return Y, *presents, scores


# ---- arguments ----


def _array(value, name, dtype=None):
    array = _as_array(value, name)
    if array.dtype.name not in _TYPES:
        raise Error(f"{name} has type {array.dtype}: must be {', '.join(_TYPES)}")
    if dtype is not None and array.dtype != dtype:
        raise Error(f"{name} has type {array.dtype}: must be {dtype}")
    return array


def _integer(value, name):
    try:
        return value.__index__()
    except AttributeError:
        raise Error(f"{name} is {value!r}: must be an integer") from None


def _window_size(value, name):
    if _integer(value, name) < -1:
        raise Error(f"{name} is {value}: must be -1 or more")
    return value


def _inputs(Q, K, V, q_num_heads, kv_num_heads):
    """Whether they are [B, heads, tokens, size], and Q, K, V as views [B, tokens, heads, size]."""
    query = _array(Q, "Q")
    given = query, _array(K, "K", query.dtype), _array(V, "V")
    arrays, rank = list(given), query.ndim
    if rank not in (3, 4):
        raise Error(f"Q has {rank} dimensions: must be [B, H, S, D] or [B, S, H * D]")
    heads = [("q_num_heads", q_num_heads), ("kv_num_heads", kv_num_heads), ("kv_num_heads", kv_num_heads)]
    for i, (name, array, (attribute, count)) in enumerate(zip("QKV", given, heads)):
        if array.ndim != rank:
            raise Error(f"{name} has {array.ndim} dimensions: must have as many as Q, {rank}")
        if rank == 4:
            if count is not None and count != array.shape[1]:
                raise Error(f"{attribute} is {count}: must be {name}'s number of heads, {array.shape[1]}")
            arrays[i] = array.swapaxes(1, 2)
            continue
        if count is None or _integer(count, attribute) < 1:
            raise Error(f"{attribute} is {count}: must be at least 1 with arrays of 3 dimensions")
        if array.shape[2] % count:
            raise Error(
                f"{name} has shape {array.shape}: {attribute}, {count}, must divide the last dimension"
            )
        arrays[i] = array.reshape(*array.shape[:2], count, array.shape[2] // count)
    query, key, value = arrays
    B, _, H, D = query.shape
    _, N, Hk, _ = key.shape
    if key.shape[0] != B or key.shape[3] != D:
        raise Error(f"K has shape {given[1].shape}: B must be {B} and D {D}, as in Q")
    if value.shape[:3] != (B, N, Hk):
        raise Error(f"V has shape {given[2].shape}: B must be {B}, N {N} and Hk {Hk}, as in Q and K")
    if Hk == 0 or H % Hk:
        raise Error(f"K has {Hk} heads: must divide Q's {H}")
    return rank == 4, query, key, value


def _pasts(past_key, past_value, key, value):
    for name, past, other in (("past_key", past_key, "past_value"), ("past_value", past_value, "past_key")):
        if past is None:
            raise Error(f"{name} is None: must be given with {other}")
    past_key = _array(past_key, "past_key", key.dtype)
    past_value = _array(past_value, "past_value", value.dtype)
    length = past_key.shape[2] if past_key.ndim == 4 else -1
    for name, past, new in (("past_key", past_key, key), ("past_value", past_value, value)):
        B, _, Hk, size = new.shape
        if past.shape != (B, Hk, length, size):
            raise Error(f"{name} has shape {past.shape}: must be [{B}, {Hk}, past, {size}]")
    return past_key, past_value


def _lengths(nonpad_kv_seqlen, B, T, past_key, present):
    if nonpad_kv_seqlen is None:
        return None
    if past_key is not None:
        raise Error("nonpad_kv_seqlen is given: must be None with past_key and past_value")
    if present:
        raise Error("nonpad_kv_seqlen is given: must be None where the presents are wanted")
    lengths = _as_array(nonpad_kv_seqlen, "nonpad_kv_seqlen")
    if lengths.dtype.kind not in "iu" and lengths.size:
        raise Error(f"nonpad_kv_seqlen has type {lengths.dtype}: must be integers")
    if lengths.shape != (B,):
        raise Error(f"nonpad_kv_seqlen has shape {lengths.shape}: must be ({B},)")
    for b, length in enumerate(lengths):
        if not 0 <= length <= T:
            raise Error(f"nonpad_kv_seqlen[{b}] is {length}: must be 0 to {T}")
    return lengths.astype(np.int64)


def _mask(attn_mask, shape):
    """The mask in 4 dimensions, the last one at most T: bool or a float type."""
    if attn_mask is None:
        return None
    mask = _as_array(attn_mask, "attn_mask")
    if mask.dtype != bool and mask.dtype.name not in _TYPES:
        if mask.dtype.kind not in "iuf":
            raise Error(f"attn_mask has type {mask.dtype}: must be bool or real numbers")
        mask = mask.astype(np.float32)
    if not 1 <= mask.ndim <= 4:
        raise Error(f"attn_mask has {mask.ndim} dimensions: must be 1 to 4")
    wide = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    fits = all(length in (1, full) for length, full in zip(wide.shape[:3], shape))
    if not fits or wide.shape[3] > shape[3]:
        raise Error(f"attn_mask has shape {mask.shape}: must broadcast to {shape}, or have fewer columns")
    return wide


def _rows(array):
    """The array, or a copy whose last dimension is contiguous."""
    contiguous = array.shape[-1] <= 1 or array.strides[-1] == array.itemsize
    return array if contiguous else np.ascontiguousarray(array)


# ---- qk_matmul_output ----


def _hidden(offset, lengths, S, T, is_causal, left, right):
    """[B, 1, S, T] bool: keys that is_causal, the window or padding hides."""
    position = offset[:, None, None, None] + np.arange(S)[:, None]
    key = np.arange(T)
    hidden = np.zeros((len(offset), 1, S, T), bool)
    if is_causal:
        hidden |= key > position
    if left >= 0:
        hidden |= key < position - left
    if right >= 0:
        hidden |= key > position + right
    if lengths is not None:
        hidden |= key >= lengths[:, None, None, None]
    return hidden


def _scores(query, key, mask, hidden, scale, softcap, mode):
    """[B, H, S, T] of the query's type."""
    B, S, H, D = query.shape
    T, Hk = key.shape[1:3]
    scale = 1 / np.sqrt(D) if scale is None else float(scale)
    rows = query.astype(np.float32).reshape(B, S, Hk, H // Hk, D).transpose(0, 2, 3, 1, 4)
    scores = rows @ key.astype(np.float32).transpose(0, 2, 3, 1)[:, :, None] * np.float32(scale)
    scores = scores.reshape(B, H, S, T)
    if mode >= 1 and softcap > 0:
        scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
    if mode >= 2:
        added = np.where(hidden, np.float32(-np.inf), np.float32(0))
        if mask is not None:
            if mask.dtype == bool:
                mask = np.where(mask, np.float32(0), np.float32(-np.inf))
            past_mask = [(0, 0)] * 3 + [(0, T - mask.shape[3])]
            added = added + np.pad(mask.astype(np.float32), past_mask, constant_values=-np.inf)
        # Not scores + added: a hidden NaN stays hidden.
        scores = np.where(np.isneginf(added), added, scores + added)
    if mode == 3:
        largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        exponentials = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = exponentials.sum(axis=-1, keepdims=True)
        scores = exponentials / np.where(total == 0, 1, total)
    return scores.astype(query.dtype)
