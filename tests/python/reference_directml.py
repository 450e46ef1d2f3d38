"""DML_MULTIHEAD_ATTENTION1 as it is defined: float64 NumPy. The semantics of the golden cases' README.

Arguments are those of quire.directml.multihead_attention1. Sums with `bias` are of the arrays' type.
"""

import numpy as np
import reference


def add_bias(rows, bias):
    """[B, tokens, heads, size] + [heads * size], in float32 and rounded to the type of rows."""
    if bias is None:
        return rows
    return (rows.astype(np.float32) + bias.astype(np.float32).reshape(rows.shape[2:])).astype(rows.dtype)


def core(array, rank):
    """Without dimensions of length 1 before the last `rank`, or with such."""
    return array.reshape((1,) * max(0, rank - array.ndim) + array.shape[max(0, array.ndim - rank) :])


def by_head(rows, heads):
    """[B, tokens, heads * size] -> [B, tokens, heads, size]"""
    rows = core(rows, 3)
    return rows.reshape(*rows.shape[:2], heads, rows.shape[2] // heads)


def unstacked(inputs, H, Hk):
    """query, key, value as [B, tokens, heads, size]; key and value None where there are none."""
    if "stacked_query_key_value" in inputs:
        return [inputs["stacked_query_key_value"][:, :, :, i] for i in range(3)]
    if "stacked_query_key" in inputs:
        query, key = (inputs["stacked_query_key"][:, :, :, i] for i in range(2))
        return query, key, by_head(inputs["value"], Hk)
    query = by_head(inputs["query"], H)
    if "stacked_key_value" in inputs:
        return query, *(inputs["stacked_key_value"][:, :, :, i] for i in range(2))
    if "key" not in inputs:
        return query, None, None
    return query, by_head(inputs["key"], Hk), by_head(inputs["value"], Hk)


def joined(past, added, lengths, total):
    """Past and new rows of each sequence one after the other, then zeros: [B, total, heads, size]."""
    like = past if added is None else added
    rows = np.zeros((like.shape[0], total, *like.shape[2:]), like.dtype)
    for b, length in enumerate(lengths):
        if past is not None:
            rows[b, :length] = past[b, :length]
        if added is not None:
            rows[b, length : length + added.shape[1]] = added[b]
    return rows


def padding(mask, mask_type, shape):
    """Where keys are padding: bool, broadcast to [B, H, S, T]."""
    B, _, _, T = shape
    if mask_type in (None, "NONE"):
        return np.zeros(shape, bool)
    if mask_type == "BOOLEAN":
        return np.broadcast_to(core(mask, 4) == 0, shape)
    begin = np.zeros(B, int)
    if mask_type == "KEY_SEQUENCE_LENGTH":
        end = core(mask, 2)[0]
    elif mask_type == "KEY_SEQUENCE_END_START":
        end, begin = core(mask, 2)
    else:
        end = core(mask, 1)[:B]
    keys = np.arange(T)
    outside = (keys >= end[:, None]) | (keys < begin[:, None])
    return np.broadcast_to(outside[:, None, None], shape)


def multihead_attention1(*, query_head_count, key_value_head_count, scale, mask_filter_value=-10000.0,
                         mask_type=None, bias=None, mask=None, relative_position_bias=None, past_key=None,
                         past_value=None, past_sequence_lengths=None, **inputs):  # fmt: skip
    """output [B, S, H * Dv] as float64, presents [B, Hk, T, size], and whether a row saw only padding."""
    H, Hk = query_head_count, key_value_head_count
    query, key, value = unstacked(inputs, H, Hk)
    B, S, _, D = query.shape
    if bias is not None:
        bias = core(bias, 1)
        parts = np.split(bias, [H * D, H * D + Hk * D])
        query = add_bias(query, parts[0])
        if key is not None:
            key, value = add_bias(key, parts[1]), add_bias(value, parts[2])
    if past_key is not None:
        past_key, past_value = (core(past, 4).swapaxes(1, 2) for past in (past_key, past_value))
    past = 0 if past_key is None else past_key.shape[1]
    total = past + (0 if key is None else key.shape[1])
    lengths = np.full(B, past)
    if past_sequence_lengths is not None:
        lengths = core(past_sequence_lengths, 1).astype(int)
    keys, values = joined(past_key, key, lengths, total), joined(past_value, value, lengths, total)

    padded = padding(mask, mask_type, (B, H, S, total))
    added = np.where(padded, float(mask_filter_value), 0.0)
    if relative_position_bias is not None:
        added = added + core(relative_position_bias, 4).astype(float)
    output = np.zeros((B, S, H, values.shape[3]))
    alone = False
    for b in range(B):
        seen = lengths[b] + total - past
        for h in range(H):
            rows, columns = query[b, :, h].astype(float), slice(0, seen)
            scores = (
                scale * (rows @ keys[b, columns, h // (H // Hk)].astype(float).T) + added[b, h, :, columns]
            )
            weights, _ = reference.softmax(scores, None)
            output[b, :, h] = weights @ values[b, columns, h // (H // Hk)].astype(float)
            unpadded = ~padded[b, h, :, columns] & ~np.isneginf(scores)
            alone = alone or not unpadded.any(axis=1).all()
    return output.reshape(B, S, H * values.shape[3]), keys.swapaxes(1, 2), values.swapaxes(1, 2), alone
