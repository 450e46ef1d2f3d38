"""ONNX Attention as it is defined (opsets 23 to 25): float64 NumPy, one head at a time."""

import numpy as np
import reference


def by_head(array, heads):
    """[B, tokens, heads * size] -> [B, heads, tokens, size]; 4 dimensions stay."""
    if array.ndim == 4:
        return array
    B, tokens, hidden = array.shape
    return array.reshape(B, tokens, heads, hidden // heads).swapaxes(1, 2)


def hidden_keys(S, T, offset, *, is_causal, left, right, length):
    """[S, T] bool, of one sequence; key by key."""
    hidden = np.zeros((S, T), bool)
    for i in range(S):
        position = offset + i
        for j in range(T):
            beyond = (left >= 0 and j < position - left) or (right >= 0 and j > position + right)
            hidden[i, j] = (is_causal and j > position) or beyond or j >= length
    return hidden


def mask_of(attn_mask, shape):
    """[B, H, S, T] to add; keys past a mask with fewer columns are hidden."""
    if attn_mask is None:
        return np.zeros(shape)
    values = np.where(attn_mask, 0.0, -np.inf) if attn_mask.dtype == bool else attn_mask.astype(float)
    values = np.pad(
        values, [(0, 0)] * (values.ndim - 1) + [(0, shape[-1] - values.shape[-1])], constant_values=-np.inf
    )
    return np.broadcast_to(values, shape)


def attention(Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0,
              kv_num_heads=None, left_window_size=-1, q_num_heads=None, qk_matmul_output_mode=0,
              right_window_size=-1, scale=None, softcap=0.0):  # fmt: skip
    """Y, present_key, present_value and qk_matmul_output; Y and the last are float64."""
    query, key, value = by_head(Q, q_num_heads), by_head(K, kv_num_heads), by_head(V, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    B, H, S, D = query.shape
    Hk, T = key.shape[1:3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    mask = mask_of(attn_mask, (B, H, S, T))
    Y, matmul = np.zeros((B, H, S, value.shape[3])), np.zeros((B, H, S, T))
    for b in range(B):
        length = T if nonpad_kv_seqlen is None else nonpad_kv_seqlen[b]
        hidden = hidden_keys(
            S,
            T,
            past if nonpad_kv_seqlen is None else length - S,
            is_causal=is_causal,
            left=left_window_size,
            right=right_window_size,
            length=length,
        )
        for h in range(H):
            k = h // (H // Hk)
            stages = [scale * (query[b, h].astype(float) @ key[b, k].astype(float).T)]
            stages.append(softcap * np.tanh(stages[0] / softcap) if softcap > 0 else stages[0])
            stages.append(np.where(hidden, -np.inf, stages[1] + mask[b, h]))
            stages.append(reference.softmax(stages[2], None)[0])
            Y[b, h] = stages[3] @ value[b, k].astype(float)
            matmul[b, h] = stages[qk_matmul_output_mode]
    if Q.ndim == 3:
        Y = Y.swapaxes(1, 2).reshape(B, S, H * value.shape[3])
    return Y, key, value, matmul
