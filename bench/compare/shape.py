"""Shapes that are compared, their inputs, and the exact result."""

import dataclasses
import re

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    batch: int
    query_len: int
    kv_len: int  # new tokens included; causal, the queries are the last positions
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128

    @property
    def flops(self):
        s, t = self.query_len, self.kv_len
        return 4 * self.heads * self.head_dim * self.batch * (s * (t - s) + s * (s + 1) // 2)


def parse_shape(text, **model):
    """As quire_bench names them: kv32768, 16xkv2048, 512x512, 512on4096."""
    if found := re.fullmatch(r"(?:(\d+)x)?kv(\d+)", text):
        return Shape(text, int(found[1] or 1), 1, int(found[2]), **model)
    if (found := re.fullmatch(r"(\d+)x(\d+)", text)) and found[1] == found[2]:
        return Shape(text, 1, int(found[1]), int(found[2]), **model)
    if found := re.fullmatch(r"(\d+)on(\d+)", text):
        return Shape(text, 1, int(found[1]), int(found[1]) + int(found[2]), **model)
    raise ValueError(f"shape {text!r}: must be as kv32768, 16xkv2048, 512x512 or 512on4096")


def inputs(shape):
    """q [B, S, H, D], k and v [B, T, Hk, D], standard normal: the same in every process."""
    random = np.random.default_rng(0)
    kv = shape.batch, shape.kv_len, shape.kv_heads, shape.head_dim
    q = random.standard_normal((shape.batch, shape.query_len, shape.heads, shape.head_dim), dtype=np.float32)
    return q, random.standard_normal(kv, dtype=np.float32), random.standard_normal(kv, dtype=np.float32)


def reference(shape):
    """float64 attention over the inputs as they are, [B, S, H, D]."""
    q, k, v = inputs(shape)
    group = shape.heads // shape.kv_heads
    position = shape.kv_len - shape.query_len + np.arange(shape.query_len)
    hidden = np.arange(shape.kv_len)[None, :] > position[:, None]
    out = np.empty(q.shape)
    for b in range(shape.batch):
        for h in range(shape.heads):
            keys, values = (x[b, :, h // group].astype(np.float64) for x in (k, v))
            scores = q[b, :, h].astype(np.float64) @ keys.T / np.sqrt(shape.head_dim)
            scores[hidden] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[b, :, h] = (p / p.sum(-1, keepdims=True)) @ values
    return out


def relative_error(out, exact):
    """RMS of the difference over the RMS of the exact result."""
    out = np.asarray(out, np.float64).reshape(exact.shape)
    return float(np.sqrt(((out - exact) ** 2).mean() / (exact**2).mean()))
