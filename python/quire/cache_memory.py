"""Arrays for caches."""

import numpy as np

from ._quire import _cache_memory


def cache_alloc(shape, dtype):
    """A new array of zeros in memory for a cache: from a multiple of 2 MiB on, in pages of 2 MiB if possible.

    Decoding over a large cache spends less time in page tables then. Where the system has no such pages, or
    refuses them, they are small ones: no error. The memory is given back with the last array over it.

    Args:
        shape: an integer or a tuple of them.
        dtype: of the array, as NumPy takes it.

    Returns:
        A C-contiguous NumPy array.

    Raises quire.Error where there is not so much memory.
    """
    dtype = np.dtype(dtype)
    empty = np.empty(0, dtype)  # NumPy's errors, before anything is allocated
    shape = (int(shape),) if np.ndim(shape) == 0 else tuple(int(length) for length in shape)
    if any(length < 0 for length in shape):
        raise ValueError(f"shape is {shape}: must be >= 0 in all dimensions")
    count = 1
    for length in shape:
        count *= length
    if count == 0:
        return empty.reshape(shape)
    return _cache_memory(count * dtype.itemsize)[: count * dtype.itemsize].view(dtype).reshape(shape)
