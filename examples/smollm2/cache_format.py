"""The formats that keys and values can be cached in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .parameters import Hyperparameters


@dataclass(frozen=True)
class CacheFormat:
    """How one cached value is stored."""

    name: str
    dtype: type[np.generic]
    quant_bit: int = 0  # 0: stored as it is, without scales
    values_per_element: int = 1  # int4 packs two values a byte
    rotated: bool = False  # keys and values are multiplied by a Hadamard matrix before they are quantised

    def bytes_per_token(self, p: Hyperparameters, quant_group: int) -> int:
        """Keys, values and scales (float16) of all layers."""
        rows = p.num_layer * 2 * p.num_kv_heads
        scales = p.head_dim // quant_group if self.quant_bit else 0
        row_bytes = p.head_dim // self.values_per_element * np.dtype(self.dtype).itemsize
        return rows * (row_bytes + scales * np.dtype(np.float16).itemsize)


FORMATS = {
    f.name: f
    for f in (
        CacheFormat("f32", np.float32),
        CacheFormat("f16", np.float16),
        CacheFormat("int8", np.int8, quant_bit=8),
        CacheFormat("int4", np.uint8, quant_bit=4, values_per_element=2),
        CacheFormat("int4r", np.uint8, quant_bit=4, values_per_element=2, rotated=True),
    )
}
