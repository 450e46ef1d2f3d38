"""The sizes and weights of a llama model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hyperparameters:
    """The sizes of a llama model."""

    num_layer: int
    hidden: int
    feed_forward: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    context: int  # tokens
    rope_base: float
    norm_epsilon: float


@dataclass(frozen=True)
class Layer:
    """One block. Matrices are [in, out], so that few rows times a matrix reads it in order."""

    attention_norm: np.ndarray  # [hidden]
    qkv: np.ndarray  # [hidden, (H + 2 Hk) D]: one product instead of three
    attention_output: np.ndarray  # [H D, hidden]
    feed_forward_norm: np.ndarray  # [hidden]
    gate_up: np.ndarray  # [hidden, 2 feed_forward]
    down: np.ndarray  # [feed_forward, hidden]


@dataclass(frozen=True)
class Weights:
    """All parameters, float32."""

    embedding: np.ndarray  # [vocabulary, hidden], also the output projection (tied)
    layers: tuple[Layer, ...]
    output_norm: np.ndarray  # [hidden]
