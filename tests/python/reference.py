"""Attention as it is defined: float64 NumPy, one sequence and one head at a time. To be read, not to be fast.

The semantics are those of the operators' documents (PMX dynamic_batching.MultiHeadCacheAttention) and of the
golden cases' README. Letters as in quire.h. int4 is held one value to an int8 here.
"""

import numpy as np

LIMITS = {8: 127, 4: 7}  # largest stored value, by quant_bit


def alibi_slopes(num_heads):
    """[H]: 2^(-8k/p) for k = 1..p, p the largest power of two not above H, then 2^(-4k/p) for odd k."""
    power = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * k / power) for k in range(1, power + 1)]
    rest = [2.0 ** (-4 * k / power) for k in range(1, 2 * (num_heads - power) + 1, 2)]
    return np.array(first + rest)


def bias_of(queries, keys, *, is_causal=False, slope=None, window_left=-1, window_right=-1, attn_mask=None):
    """[S, T]: what is added to a head's scores; -inf hides a key. `slope` is ALiBi's; attn_mask is [S, T]."""
    position = keys - queries + np.arange(queries)[:, None]
    key = np.arange(keys)[None, :]
    bias = np.zeros((queries, keys))
    if slope is not None:
        bias += slope * (key - position)
    if is_causal or slope is not None:
        bias[key > position] = -np.inf
    if window_left >= 0:
        bias[key < position - window_left] = -np.inf
    if window_right >= 0:
        bias[key > position + window_right] = -np.inf
    return bias if attn_mask is None else bias + attn_mask


def softmax(scores, sink):
    """Scores [S, T] -> weights [S, T], lse [S]. A row that sees nothing gives zeros, and the sink or -inf."""
    sink = -np.inf if sink is None else sink
    largest = np.maximum(scores.max(axis=1, initial=-np.inf), sink)
    finite = np.where(np.isneginf(largest), 0, largest)
    exponentials = np.exp(scores - finite[:, None])
    total = exponentials.sum(axis=1) + np.exp(sink - finite)
    with np.errstate(divide="ignore"):
        lse = finite + np.log(total)
    return exponentials / np.where(total == 0, 1, total)[:, None], lse


def attention(query, key, value, *, scale=None, is_causal=False, is_alibi=False, window_left=-1,
              window_right=-1, logits_soft_cap=0, sinks=None, attn_mask=None):  # fmt: skip
    """One sequence: query [S, H, D], key [T, Hk, D], value [T, Hk, Dv] -> output [S, H, Dv], lse [S, H].

    Results are float64. attn_mask is [S, T] or [H or 1, S, T]; the queries are the last S of T positions.
    """
    queries, heads, head_dim = query.shape
    keys, kv_heads = key.shape[:2]
    scale = 1 / np.sqrt(head_dim) if scale is None else scale
    output = np.zeros((queries, heads, value.shape[2]))
    lse = np.zeros((queries, heads))
    slopes = alibi_slopes(heads) if is_alibi else [None] * heads
    masks = [None] * heads if attn_mask is None else np.broadcast_to(attn_mask, (heads, queries, keys))
    for head in range(heads):
        kv_head = head // (heads // kv_heads)
        scores = scale * (query[:, head].astype(float) @ key[:, kv_head].astype(float).T)
        if logits_soft_cap > 0:
            scores = logits_soft_cap * np.tanh(scores / logits_soft_cap)
        scores += bias_of(
            queries,
            keys,
            is_causal=is_causal,
            slope=slopes[head],
            window_left=window_left,
            window_right=window_right,
            attn_mask=masks[head],
        )
        weights, lse[:, head] = softmax(scores, None if sinks is None else float(sinks[head]))
        output[:, head] = weights @ value[:, kv_head].astype(float)
    return output, lse


def merge_states(output_a, lse_a, output_b, lse_b):
    """[n, H, Dv] and [n, H] of two parts of the keys -> of both."""
    largest = np.maximum(lse_a, lse_b).astype(float)
    finite = np.where(np.isneginf(largest), 0, largest)
    weight_a, weight_b = np.exp(lse_a - finite), np.exp(lse_b - finite)
    total = weight_a + weight_b
    with np.errstate(divide="ignore"):
        lse = finite + np.log(total)
    share = np.where(total == 0, 1, total)[..., None]
    return (output_a * weight_a[..., None] + output_b * weight_b[..., None]) / share, lse


def quantise(x, quant_bit, quant_group):
    """Codes (int8, the shape of x) and scales [..., D / G], both in the arithmetic of x's type."""
    limit = x.dtype.type(LIMITS[quant_bit])
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // quant_group, quant_group)
    scale = np.maximum(np.abs(groups).max(axis=-1, keepdims=True) / limit, x.dtype.type(1e-5))
    codes = np.clip(np.rint(groups / scale), -limit, limit)
    return codes.astype(np.int8).reshape(x.shape), scale[..., 0]


def dequantise(codes, scale):
    """Values as float64; `scale` None: the codes are the values."""
    if scale is None:
        return codes.astype(float)
    group = codes.shape[-1] // scale.shape[-1]
    return codes.astype(float) * np.repeat(scale.astype(float), group, axis=-1)


def cache_rows(cache, cache_layout, layer_idx):
    """Key and value [MaxT, Hk, ...] as views of a PMX cache or scale tensor; two None of None."""
    if cache is None:
        return None, None
    if cache_layout == 0:
        return cache[:, layer_idx, 0], cache[:, layer_idx, 1]
    if cache_layout == 1:
        return cache[layer_idx, :, 0], cache[layer_idx, :, 1]
    if cache_layout == 2:
        return cache[layer_idx, 0], cache[layer_idx, 1]
    return cache[layer_idx, 0].swapaxes(0, 1), cache[layer_idx, 1].swapaxes(0, 1)


def rows_of(cachestarts, sequence, positions, cache_mode, page_size):
    """Rows of the cache at which positions of a sequence are."""
    if cache_mode == 0:
        return cachestarts[sequence] + positions
    return cachestarts[sequence, positions // page_size] + positions % page_size


def written_rows(seqstarts, start_pos, cachestarts, *, cache_mode=0, page_size=128):
    """For each new token, in order, the row that it is stored in."""
    rows = [np.zeros(0, np.int64)]
    for b, new in enumerate(np.diff(seqstarts)):
        rows.append(rows_of(cachestarts, b, start_pos[b] + np.arange(new), cache_mode, page_size))
    return np.concatenate(rows)


def store(current, rows, cached, scale, quant_bit, quant_group):
    """Writes tokens [n, Hk, D] to those rows of [MaxT, Hk, D], quantised where there are scales."""
    if quant_bit == 0:
        cached[rows] = current.astype(cached.dtype)
    else:
        cached[rows], scales = quantise(current, quant_bit, quant_group)
        scale[rows] = scales.astype(scale.dtype)


def multi_head_cache_attention(query, current_key, current_value, seqstarts, kvstarts, cachestarts, start_pos,
                               decoding_batches, max_seqlen, max_kvlen, cache, scale=None, attn_mask=None, *,
                               num_heads, head_dim, is_causal, is_alibi=False, num_kv_heads=0, num_layer=1,
                               layer_idx=0, quant_bit=0, quant_group=8, cache_mode=0, cache_layout=0,
                               page_size=128, softmax_scale=None, window_left=-1, window_right=-1,
                               logits_soft_cap=0, sinks=None):  # fmt: skip
    """PMX dynamic_batching.MultiHeadCacheAttention. Changes cache and scale; output and lse are float64."""
    del max_seqlen, max_kvlen, num_layer, num_heads, num_kv_heads, head_dim  # told by the arrays
    rows = written_rows(seqstarts, start_pos, cachestarts, cache_mode=cache_mode, page_size=page_size)
    cached = cache_rows(cache, cache_layout, layer_idx)
    scales = cache_rows(scale, cache_layout, layer_idx)
    for current, part, part_scale in zip((current_key, current_value), cached, scales):
        store(current, rows, part, part_scale, quant_bit, quant_group)

    output, lse = np.zeros(query.shape), np.zeros(query.shape[:2])
    for b in range(len(seqstarts) - 1):
        tokens = slice(seqstarts[b], seqstarts[b + 1])
        columns = slice(kvstarts[b], kvstarts[b + 1])
        positions = np.arange(kvstarts[b + 1] - kvstarts[b])
        rows = rows_of(cachestarts, b, positions, cache_mode, page_size)
        key, value = (
            dequantise(part[rows], None if part_scale is None else part_scale[rows])
            for part, part_scale in zip(cached, scales)
        )
        output[tokens], lse[tokens] = attention(
            query[tokens],
            key,
            value,
            scale=softmax_scale,
            is_causal=is_causal and b >= decoding_batches,
            is_alibi=is_alibi,
            window_left=window_left,
            window_right=window_right,
            logits_soft_cap=logits_soft_cap,
            sinks=sinks,
            attn_mask=None if attn_mask is None else attn_mask[..., tokens, columns].astype(float),
        )
    return output, lse
