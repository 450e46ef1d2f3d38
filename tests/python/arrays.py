"""Small inputs of quire.attention, and arrays of foreign libraries."""

import ctypes

import numpy as np
import reference


class OnlyDLPack:
    """An array of a foreign library: DLPack 1 and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDLPack(OnlyDLPack):
    """A producer of before DLPack 1, which does not know `max_version`."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class BFloat16DLPack(OnlyDLPack):
    """A bfloat16 array (of ml_dtypes) as torch exports its own; NumPy does not export them."""

    def __dlpack__(self, **arguments):
        capsule = self.array.view(np.int16).__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        # DLTensor begins with data (8 bytes), device (8), ndim (4) and the code of the type: 4 is kDLBfloat.
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = 4
        return capsule

    def __dlpack_device__(self):
        return 1, 0


class Refusing(OnlyDLPack):
    """A producer that will not export this array, as torch does with one that needs its gradient."""

    def __dlpack__(self, **arguments):
        raise BufferError("it needs its gradient")


class OnAnotherDevice(OnlyDLPack):
    def __dlpack__(self, **arguments):
        raise BufferError("not here")

    def __dlpack_device__(self):
        return 2, 0


def dense(tokens=3, keys=9, heads=4, kv_heads=2, head_dim=16, dtype=np.float32):
    """query, key, value of one sequence."""
    rng = np.random.default_rng(1)
    shapes = (tokens, heads, head_dim), (keys, kv_heads, head_dim), (keys, kv_heads, head_dim)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def assert_attention(result, query, key, value, tolerance=2e-5, **options):
    want, _ = reference.attention(*(np.asarray(x, np.float32) for x in (query, key, value)), **options)
    np.testing.assert_allclose(np.asarray(result, float), want, atol=tolerance, rtol=tolerance)
