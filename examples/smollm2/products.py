"""Matrix products on threads that sleep between products.

The threads of OpenBLAS spin for a while after a product, on cores that quire's threads need next, and stall
each other when the machine is busy. So BLAS is held to one thread, and a product is dealt out here in blocks
of columns.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

MIN_COLUMNS = 128  # in a block: less is not worth waking a thread for


class Products:
    """Computes x @ w with the calling thread and threads - 1 others; holds this process's BLAS to one."""

    def __init__(self, threads: int | None = None):
        self._threads = threads or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(max(1, self._threads - 1))
        self._limits = threadpoolctl.threadpool_limits(1, user_api="blas")

    def __call__(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """x [n, in] times w [in, out]: [n, out], float32."""
        result = np.empty((len(x), w.shape[1]), np.float32)
        own, *others = self._blocks(w.shape[1])
        waiting = [self._pool.submit(np.matmul, x, w[:, block], out=result[:, block]) for block in others]
        np.matmul(x, w[:, own], out=result[:, own])
        for future in waiting:
            future.result()
        return result

    def _blocks(self, columns: int) -> list[slice]:
        count = max(1, min(self._threads, columns // MIN_COLUMNS))
        edges = [columns * i // count for i in range(count + 1)]
        return [slice(begin, end) for begin, end in zip(edges, edges[1:])]
