"""int4 as quire stores it: two values a byte."""

import numpy as np

from ._quire import Error


def pack_int4(values):
    """Packs integers of -8..7 two to a byte: element 2i in the low four bits, 2i + 1 in the high ones.

    Args:
        values: [..., D] integers, D even. Quantisation gives -7..7.

    Returns:
        [..., D / 2] uint8, a new array.

    Raises quire.Error for odd D, other types or values out of range.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise Error(f"values has type {values.dtype}: must be integers")
    if values.ndim == 0 or values.shape[-1] % 2:
        raise Error(f"values has shape {values.shape}: the last dimension must be even")
    if values.size and (values.min() < -8 or values.max() > 7):
        raise Error(f"values has elements from {values.min()} to {values.max()}: must be -8..7")
    nibbles = values.astype(np.uint8) & 0x0F
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def unpack_int4(packed):
    """The inverse of pack_int4.

    Args:
        packed: [..., D / 2] uint8.

    Returns:
        [..., D] int8 of -8..7, a new array.

    Raises quire.Error for other types.
    """
    packed = np.asarray(packed)
    if packed.dtype != np.uint8 or packed.ndim == 0:
        raise Error(f"packed has type {packed.dtype} and shape {packed.shape}: must be an array of uint8")
    values = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.int8)
    # Shifting left and back as signed bytes extends the sign of the low four bits.
    values[..., 0::2] = (packed << 4).view(np.int8) >> 4
    values[..., 1::2] = packed.view(np.int8) >> 4
    return values
