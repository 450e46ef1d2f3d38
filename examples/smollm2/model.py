"""The llama forward pass in NumPy, float32. Attention is not here: the caller hands in a function for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .parameters import Hyperparameters, Layer, Weights
from .products import Products

# (layer, query [n, H, D], key [n, Hk, D], value [n, Hk, D]) -> output [n, H, D]
Attend = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Llama:
    """A decoder-only transformer over a ragged batch: n counts the tokens of all its sequences together."""

    def __init__(self, parameters: Hyperparameters, weights: Weights):
        self.parameters = parameters
        self._weights = weights
        self._product = Products()
        self._cos, self._sin = rotation_table(parameters.context, parameters.head_dim, parameters.rope_base)

    def forward(
        self, tokens: np.ndarray, positions: np.ndarray, logit_rows: np.ndarray, attend: Attend
    ) -> np.ndarray:
        """Logits [len(logit_rows), vocabulary] of the given rows.

        tokens, positions: [n]; a position is counted from the beginning of the token's own sequence.
        """
        rotation = self._cos[positions][:, None], self._sin[positions][:, None]
        x = self._weights.embedding[tokens]
        for index, layer in enumerate(self._weights.layers):
            x += self._attention(index, layer, x, rotation, attend)
            x += self._feed_forward(layer, x)
        x = rms_norm(x[logit_rows], self._weights.output_norm, self.parameters.norm_epsilon)
        return self._product(x, self._weights.embedding.T)

    def _attention(self, index: int, layer: Layer, x: np.ndarray, rotation, attend: Attend) -> np.ndarray:
        p = self.parameters
        qkv = self._product(rms_norm(x, layer.attention_norm, p.norm_epsilon), layer.qkv)
        heads = qkv.reshape(len(x), p.num_heads + 2 * p.num_kv_heads, p.head_dim)
        query, key, value = np.split(heads, [p.num_heads, p.num_heads + p.num_kv_heads], axis=1)
        output = attend(index, rotate(query, *rotation), rotate(key, *rotation), np.ascontiguousarray(value))
        return self._product(output.reshape(len(x), -1), layer.attention_output)

    def _feed_forward(self, layer: Layer, x: np.ndarray) -> np.ndarray:
        normed = rms_norm(x, layer.feed_forward_norm, self.parameters.norm_epsilon)
        gate_up = self._product(normed, layer.gate_up)
        gate, up = np.split(gate_up, 2, axis=1)
        return self._product(silu(gate) * up, layer.down)


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """x [n, hidden] scaled to a root mean square of one, times weight [hidden]."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    return x * (weight / np.sqrt(mean_square + np.float32(epsilon)))


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), by way of tanh, which does not overflow."""
    half = np.float32(0.5) * x
    return half * np.tanh(half) + half


def rotation_table(positions: int, head_dim: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, head_dim / 2] of the rotary embedding, from float64 angles."""
    frequency = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(positions)[:, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotary embedding of x [n, heads, D].

    Values 2i and 2i+1 are a pair: the converter to GGUF permutes the query and key rows of llama models so,
    while the original checkpoints pair i with i + D/2.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = np.empty_like(x)
    rotated[..., 0::2] = even * cos - odd * sin
    rotated[..., 1::2] = even * sin + odd * cos
    return rotated
