"""A program that has an unmodified ggml (of the wheel xllamacpp) compute attention: cases from one file,
results to another. It is run with the wheel's interpreter, once as it is and once by quire-ggml; it imports
nothing of quire.

python ggml_program.py CASES.json RESULTS.npz
"""

import ctypes
import json
import sys

import numpy as np

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
MEMORY = 512 << 20


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """The few functions that are needed; every tensor is a pointer."""

    def __init__(self):
        import xllamacpp  # the tests themselves take numbers_of, and have no such wheel

        self.library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        pointer, i64, size, f32, i32 = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_size_t,
            ctypes.c_float,
            ctypes.c_int,
        )
        self.init = self.function("init", pointer, InitParams)
        self.free = self.function("free", None, pointer)
        self.new_tensor = self.function("new_tensor_4d", pointer, pointer, i32, i64, i64, i64, i64)
        self.view = self.function(
            "view_4d", pointer, pointer, pointer, i64, i64, i64, i64, size, size, size, size
        )
        self.permute = self.function("permute", pointer, pointer, pointer, i32, i32, i32, i32)
        self.data = self.function("get_data", pointer, pointer)
        self.nbytes = self.function("nbytes", size, pointer)
        self.row_size = self.function("row_size", size, i32, i64)
        self.quantise = self.function("quantize_chunk", size, i32, pointer, pointer, i64, i64, i64, pointer)
        self.attention = self.function("flash_attn_ext", pointer, *[pointer] * 5, f32, f32, f32)
        self.add_sinks = self.function("flash_attn_ext_add_sinks", None, pointer, pointer)
        self.new_graph = self.function("new_graph", pointer, pointer)
        self.expand = self.function("build_forward_expand", None, pointer, pointer)
        self.compute = self.function("graph_compute_with_ctx", i32, pointer, pointer, i32)
        self.cpu_init = self.function("cpu_init", None)

    def function(self, name, result, *arguments):
        function = getattr(self.library, "ggml_" + name)
        function.restype, function.argtypes = result, arguments
        return function

    def bytes_of(self, tensor):
        """The tensor's memory as an array."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes(tensor)).from_address(self.data(tensor)))

    def tensor(self, context, name, numbers):
        """A tensor that holds the numbers, in that type; its shape is theirs, last dimension first."""
        numbers = np.ascontiguousarray(numbers, np.float32)
        tensor = self.new_tensor(context, TYPES[name], *numbers.shape[::-1])
        rows, length = numbers.size // numbers.shape[-1], numbers.shape[-1]
        if name == "f32":
            self.bytes_of(tensor)[:] = numbers.reshape(-1).view(np.uint8)
        else:
            source = numbers.ctypes.data_as(ctypes.c_void_p)
            self.quantise(TYPES[name], source, self.data(tensor), 0, rows, length, None)
        return tensor


def numbers_of(case):
    """Query [streams, tokens, H, D], keys, values [streams, keys, Hk, D], sinks [H], by the case's seed."""
    rng = np.random.default_rng(case["seed"])
    streams, tokens, keys = case["streams"], case["tokens"], case["keys"]
    query = rng.normal(size=(streams, tokens, case["H"], case["D"]))
    key = rng.normal(size=(streams, keys, case["Hk"], case["D"]))
    value = rng.normal(size=(streams, keys, case["Hk"], case["Dv"]))
    return query, key, value, rng.normal(size=case["H"])


def run(ggml, case, mask):
    context = ggml.init(InitParams(MEMORY, None, False))
    query, key, value, sinks = numbers_of(case)
    swap = (0, 2, 1, 3)
    # As llama.cpp has them: token by token, and heads and tokens change places in a view.
    q = ggml.permute(context, ggml.tensor(context, "f32", query), *swap)
    stored = ggml.tensor(context, case["key_type"], key)
    k = ggml.permute(context, stored, *swap)
    if case["value_in_key"]:
        shape, row = key.shape, ggml.row_size(TYPES[case["key_type"]], case["D"])
        stored_v = ggml.view(
            context,
            stored,
            case["Dv"],
            shape[2],
            shape[1],
            shape[0],
            row,
            row * shape[2],
            row * shape[2] * shape[1],
            0,
        )
    else:
        stored_v = ggml.tensor(context, case["value_type"], value)
    v = ggml.permute(context, stored_v, *swap)
    m = None
    if mask is not None:
        m = ggml.new_tensor(context, TYPES["f16"], *mask.shape[::-1])
        ggml.bytes_of(m)[:] = mask.reshape(-1).view(np.uint8)
    result = ggml.attention(context, q, k, v, m, case["scale"], case["max_bias"], case["soft_cap"])
    if case["sinks"]:
        ggml.add_sinks(result, ggml.tensor(context, "f32", sinks.reshape(1, 1, 1, -1)))
    graph = ggml.new_graph(context)
    ggml.expand(graph, result)
    assert ggml.compute(context, graph, case["threads"]) == 0
    output = ggml.bytes_of(result).view(np.float32).copy()
    shape = (case["streams"], case["tokens"], case["H"], case["Dv"])
    found = output.reshape(shape), ggml.bytes_of(stored).copy(), ggml.bytes_of(stored_v).copy()
    ggml.free(context)
    return found


def main():
    cases = json.load(open(sys.argv[1]))
    masks = np.load(sys.argv[1] + ".npz")
    ggml = Ggml()
    ggml.cpu_init()
    results = {}
    run(ggml, cases[0], masks["0"] if "0" in masks else None)  # the first call is always ggml's own
    for i, case in enumerate(cases):
        output, key, value = run(ggml, case, masks[str(i)] if str(i) in masks else None)
        results |= {f"output{i}": output, f"key{i}": key, f"value{i}": value}
    np.savez(sys.argv[2], **results)


if __name__ == "__main__":
    main()
