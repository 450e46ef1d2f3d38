"""Arrays for caches."""

import numpy as np

from ._quire import Error, _cache_memory


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


def pages_as_rows(pages):
    """Pages that hold all heads as the rows that quire.attention and quire.append take.

    Args:
        pages: keys, values or their scales, [MaxP, Hk, P, width]: a NumPy array, or a view of one whose pages
            are whole numbers of rows apart, as `pool[:, 0]` of a pool [MaxP, 2, Hk, P, width] is.

    Returns:
        (rows, step): a view [slots, Hk, width] of the same memory, and how many rows a page begins behind the
        one before: `cachestarts` are page numbers times `step`, `page_size` is P. Of blocks of 16 tokens P
        and `step` count blocks, and `cachestarts` are page numbers times 16 * step.

    Raises quire.Error where the array has another rank or pages are no whole number of rows apart.
    """
    if np.ndim(pages) != 4:
        raise Error(f"pages has {np.ndim(pages)} dimensions: must be 4, [MaxP, Hk, P, width]")
    count, heads, size, width = pages.shape
    per_page, per_head, per_row, item = pages.strides
    if item != pages.itemsize or per_row <= 0 or per_page <= 0 or per_page % per_row:
        raise Error(
            f"pages has strides {pages.strides}: "
            "rows must be contiguous, and pages a whole number of rows apart"
        )
    step = per_page // per_row
    slots = (count - 1) * step + size if count else 0
    rows = np.lib.stride_tricks.as_strided(pages, (slots, heads, width), (per_row, per_head, item))
    return rows, step
