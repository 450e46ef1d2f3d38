"""Conversions of small or unusual arguments, called by the extension where it cannot view an array itself."""

import numpy as np

from ._quire import Error, _bfloat16_bits

# Where the only sequence of a cache begins.
ROW_0 = np.zeros(1, np.int64)


def _as_array(value, name):
    """`value` as a NumPy array; the producer's error becomes a quire.Error that names the argument."""
    try:
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        if str(getattr(value, "dtype", "")).endswith("bfloat16"):  # NumPy does not import it
            return _bfloat16_bits(value, name).view(bfloat16_dtype())
        return np.from_dlpack(value)
    except Exception as error:
        raise Error(f"{name} cannot be read as an array: {error}") from error


def to_int64(value, name):
    """An integer array-like as int64. Floats and booleans are refused: they are mistakes."""
    array = _as_array(value, name)
    # np.asarray([]) is a float array.
    if array.dtype.kind not in "iu" and array.size:
        raise Error(f"{name} has type {array.dtype}: must be integers")
    return array.astype(np.int64)


def to_float32(value, name):
    """A real array-like as float32."""
    array = _as_array(value, name)
    if array.dtype.kind not in "iuf":
        raise Error(f"{name} has type {array.dtype}: must be real numbers")
    return array.astype(np.float32)


def bfloat16_bits(value):
    """A NumPy array of ml_dtypes.bfloat16 as int16, a view of the same memory; None for anything else."""
    if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":
        return value.view(np.int16)
    return None


def bfloat16_dtype():
    """NumPy's bfloat16, which the package ml_dtypes brings."""
    try:
        import ml_dtypes
    except ImportError as error:
        raise Error("a bfloat16 result needs the package ml_dtypes: install it, or pass `out`") from error
    return np.dtype(ml_dtypes.bfloat16)
