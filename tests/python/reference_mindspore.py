"""MindSpore's MultiHeadAttention as it is defined: float64 NumPy. Semantics of the golden cases' README."""

import numpy as np

MASK64 = (1 << 64) - 1
HIDDEN_PLANE = 0xFFFFFFFF


def philox4x32_10(counter, seed):
    """Four words [..., 4] for each counter [..., 4]. Written from its definition (Salmon et al., SC11)."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64((seed & MASK64) >> 32)]
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> high) ^ c[1] ^ key[0], b & low, (a >> high) ^ c[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, axis=-1)


def dropout_factors(planes, rows, columns, rate, seed, step):
    """What dropout multiplies elements [planes, rows, columns] by; `planes` is a list of planes."""
    shape = (len(planes), rows, columns)
    plane = np.array(planes, np.uint64)[:, None, None]
    row, column = np.arange(rows)[None, :, None], np.arange(columns)[None, None]
    counter = np.stack([np.broadcast_to(x, shape) for x in (column // 4, row, plane, step)], axis=-1)
    words = philox4x32_10(counter.astype(np.uint64), seed)
    word = np.take_along_axis(words, np.broadcast_to(column % 4, shape)[..., None], axis=-1)[..., 0]
    rate = float(np.float32(rate))
    return np.where(word.astype(float) < rate * 2**32, 0.0, 1 / (1 - rate))


def multi_head_attention(
    tensors, weights, *, num_heads, compute_dtype, incremental=False, rates=(0.0, 0.0), seed=0, step=0
):
    """output [B * S, hidden] and the presents, as float64.

    `tensors` are a call's arguments, `weights` the layer's by "dense1.weight" and so on. rates: of hidden and
    attention dropout. Values are rounded where quire.h says that they are.
    """

    def rounded(x):
        return np.asarray(x).astype(compute_dtype).astype(float)

    def dense(x, name):
        weight = rounded(weights[f"{name}.weight"])
        weight = weight if name == "projection" else weight.T
        return rounded(x) @ weight + rounded(weights[f"{name}.bias"])

    def by_head(x, name):
        x = rounded(dense(x.reshape(-1, x.shape[-1]), name))
        return x.reshape(B, -1, num_heads, x.shape[-1] // num_heads).swapaxes(1, 2)

    mask = tensors.get("attention_mask")
    lengths = tensors.get("batch_valid_length")
    B = tensors["B"]
    query = by_head(tensors["query_tensor"], "dense1")
    key, value = by_head(tensors["key_tensor"], "dense2"), by_head(tensors["value_tensor"], "dense3")
    presents = [key.copy(), value.copy()]
    seen = np.full(B, key.shape[2])
    if incremental:
        pasts = [tensors["key_past"].swapaxes(2, 3).astype(float), tensors["value_past"].astype(float)]
        for past, new in zip(pasts, presents):
            for b, length in enumerate(lengths):
                past[b, :, length] = new[b, :, 0]
        presents, seen = pasts, lengths + 1
        key, value = pasts
    elif lengths is not None:
        for present in presents:
            for b, length in enumerate(lengths):
                present[b, :, length:] = 0

    S, T, hidden = query.shape[2], key.shape[2], query.shape[1] * query.shape[3]
    factors = dropout_factors(list(range(B * num_heads)), S, T, rates[1], seed, step)
    factors = factors.reshape(B, num_heads, S, T)
    attended = np.zeros((B, S, num_heads, query.shape[3]))
    for b in range(B):
        keys = slice(0, seen[b])
        scores = query[b] @ key[b, :, keys].swapaxes(1, 2) / np.sqrt(query.shape[3])
        if mask is not None:
            added = (1 - mask[b].astype(float)) * -10000.0
            scores = scores + (added if added.ndim == 3 else added[None])[..., keys]
        weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        attended[b] = ((weight * factors[b, ..., keys]) @ value[b, :, keys]).swapaxes(0, 1)
    output = dense(attended.reshape(B * S, hidden), "projection")
    output = output * dropout_factors([HIDDEN_PLANE], B * S, hidden, rates[0], seed, step)[0]
    return output, presents[0].swapaxes(2, 3), presents[1]
