"""ONNX Runtime: com.microsoft.GroupQueryAttention, past and present in the same buffers."""

import numpy as np

from . import Prepared

PACKAGE = "onnxruntime"
VARIANTS = "f32", "int8", "int4"  # with a scale a channel
PROMPT = 64  # tokens that fill the cache in a call of their own


def session(inputs, attributes, threads):
    import onnxruntime
    from onnx import helper

    def type_of(dtype):
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    outputs = ["out", "present_key", "present_value"]
    names = [name for name, _ in inputs]
    node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(name, type_of(dtype), None) for name, dtype in inputs if name],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class Operator:
    def __init__(self, shape, variant, threads, k, v):
        self.bits = {"f32": 0, "int8": 8, "int4": 4}[variant]
        self.heads, self.dim = shape.kv_heads, shape.head_dim
        self.cache_type = {0: np.float32, 8: np.int8, 4: np.uint8}[self.bits]
        self.width = self.dim // 2 if self.bits == 4 else self.dim
        inputs = [(name, np.float32) for name in "qkv"]
        inputs += [("past_key", self.cache_type), ("past_value", self.cache_type)]
        inputs += [("last", np.int32), ("total", np.int32)]
        attributes = {"num_heads": shape.heads, "kv_num_heads": shape.kv_heads}
        if self.bits:
            attributes |= {"kv_cache_bit_width": self.bits}
            attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
            inputs += [("", None)] * 5 + [("key_scale", np.float32), ("value_scale", np.float32)]
            top = 2 ** (self.bits - 1) - 1
            self.scales = [np.abs(x).max((0, 1)).reshape(self.heads, 1, self.dim) / top for x in (k, v)]
        self.session = session(inputs, attributes, threads)

    def cache(self, batch, length):
        return np.zeros((batch, self.heads, length, self.width), self.cache_type)

    def bind(self, q, k, v, caches, total):
        """A call for new tokens [B, S, heads, D], whose caches (OrtValues) are changed in place."""
        from onnxruntime import OrtValue

        batch, length = q.shape[:2]
        binding = self.session.io_binding()
        arrays = {name: x.reshape(batch, length, -1) for name, x in zip("qkv", (q, k, v))}
        arrays |= {"last": np.full(batch, total - 1, np.int32), "total": np.array(total, np.int32)}
        if self.bits:
            arrays |= {"key_scale": self.scales[0], "value_scale": self.scales[1]}
        values = {n: OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x)) for n, x in arrays.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for side, value in zip(("key", "value"), caches):
            binding.bind_ortvalue_input(f"past_{side}", value)
            binding.bind_ortvalue_output(f"present_{side}", value)
        self.out = OrtValue.ortvalue_from_numpy(np.empty((batch, length, q.shape[2] * self.dim), np.float32))
        binding.bind_ortvalue_output("out", self.out)
        self.kept = values
        return lambda: self.session.run_with_iobinding(binding)

    def fill(self, k, v, cache, past):
        """The operator quantises: short prompts of their own, whose caches are copied into place."""
        from onnxruntime import OrtValue

        for b in range(k.shape[0]):
            for low in range(0, past, PROMPT * PROMPT):
                n = min(past - low, PROMPT * PROMPT)
                count = -(-n // PROMPT)
                prompts = [np.zeros((count, PROMPT, self.heads, self.dim), np.float32) for _ in range(2)]
                for prompt, x in zip(prompts, (k, v)):
                    prompt.reshape(-1, self.heads, self.dim)[:n] = x[b, low : low + n]
                made = [OrtValue.ortvalue_from_numpy(self.cache(count, PROMPT)) for _ in range(2)]
                groups = self.session_groups
                q = np.zeros((count, PROMPT, self.heads * groups, self.dim), np.float32)
                self.bind(q, *prompts, made, PROMPT)()
                for to, x in zip(cache, made):
                    rows = x.numpy().transpose(1, 0, 2, 3).reshape(self.heads, -1, self.width)
                    to[b, :, low : low + n] = rows[:, :n]


def make(shape, variant, threads, q, k, v):
    from onnxruntime import OrtValue

    made = Operator(shape, variant, threads, k, v)
    made.session_groups = shape.heads // shape.kv_heads
    past = shape.kv_len - shape.query_len
    cache = [made.cache(shape.batch, shape.kv_len) for _ in range(2)]
    if past and not made.bits:
        for to, x in zip(cache, (k, v)):
            to[:, :, :past] = x[:, :past].transpose(0, 2, 1, 3)
    elif past:
        made.fill(k, v, cache, past)
    nbytes = sum(x.nbytes for x in cache)
    values = [OrtValue.ortvalue_from_numpy(x) for x in cache]
    run = made.bind(q, k[:, past:], v[:, past:], values, shape.kv_len)
    note = "GroupQueryAttention, dense cache; stores the new token too"
    return Prepared(run, made.out.numpy, nbytes, note)
