"""OpenVINO: the CPU plugin's PagedAttentionExtension, in a model of its own, with shuffled pages."""

import numpy as np

from . import Prepared

PACKAGE = "openvino"
VARIANTS = "f32", "bf16", "u8", "u4"
INPUTS = (
    "q k v key_cache.0 value_cache.0 past_lens subsequence_begins block_indices block_indices_begins".split()
)
FILL_BLOCKS = 256  # written a call


def build_model(shape):
    import openvino as ov
    from openvino import opset13
    from openvino.op import Parameter, _PagedAttentionExtension

    f32, i32 = ov.Type.f32, ov.Type.i32

    def parameter(name, element, dims):
        made = Parameter(element, ov.PartialShape(dims))
        made.set_friendly_name(name)
        made.output(0).get_tensor().set_names({name})
        return made

    def constant(value, dtype):
        return opset13.constant(np.asarray(value, dtype))

    width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim
    parameters = [parameter(name, f32, [-1, n]) for name, n in zip(INPUTS, width)]
    parameters += [parameter(name, f32, [-1] * 4) for name in INPUTS[3:5]]
    parameters += [parameter(name, i32, [-1]) for name in INPUTS[5:]]
    parameters.append(parameter("max_context_len", i32, []))
    no_ints, no_floats, zero = constant([], np.int32), constant([], np.float32), constant(0, np.int32)
    scale = constant(1 / np.sqrt(shape.head_dim), np.float32)
    # In the operator's order: window, ALiBi slopes; then scores, rotation, sparse attention, sinks, eviction,
    # token types and biases, all of which are absent.
    arguments = [*parameters[:9], scale, zero, no_floats, parameters[9], no_ints]
    arguments += [no_ints, no_ints, no_floats, no_floats, zero, zero, no_floats]
    arguments += [zero, no_ints, no_ints, no_ints, no_ints, constant([], np.uint8), no_ints]
    attention = _PagedAttentionExtension([argument.output(0) for argument in arguments])
    info = attention.get_rt_info()
    for side in "kv":
        info[f"num_{side}_heads"] = shape.kv_heads
        info[f"{side}_head_size"] = shape.head_dim
    return ov.Model([attention.output(0)], parameters, "paged_attention")


class Request:
    def __init__(self, shape, variant, threads):
        import openvino as ov

        self.ov = ov
        settings = {
            "KV_CACHE_PRECISION": variant,
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if variant == "bf16" else "f32",
        }
        compiled = ov.Core().compile_model(build_model(shape), "CPU", settings)
        self.caches = [compiled.input(f"{side}_cache.0") for side in ("key", "value")]
        self.block = self.caches[1].partial_shape[2].get_length()  # that of keys may hold rows of scales too
        self.request = compiled.create_infer_request()

    def allocate(self, blocks):
        self.tensors = []
        for cache in self.caches:
            dims = [blocks] + [cache.partial_shape[i].get_length() for i in (1, 2, 3)]
            self.tensors.append(self.ov.Tensor(cache.element_type, self.ov.Shape(dims)))
        for name, tensor in zip(INPUTS[3:5], self.tensors):
            self.request.set_tensor(name, tensor)
        return sum(tensor.byte_size for tensor in self.tensors)

    def set(self, q, k, v, *indices):
        self.arrays = [np.array(x, np.float32, order="C") for x in (q, k, v)]
        self.arrays += [np.array(x, np.int32, order="C") for x in indices]
        self.inputs = [self.ov.Tensor(x) for x in self.arrays]
        for name, tensor in zip([*INPUTS[:3], *INPUTS[5:], "max_context_len"], self.inputs):
            self.request.set_tensor(name, tensor)


def make(shape, variant, threads, q, k, v):
    made = Request(shape, variant, threads)
    block, past, batch = made.block, shape.kv_len - shape.query_len, shape.batch
    blocks = -(-shape.kv_len // block)
    nbytes = made.allocate(batch * blocks)
    table = np.random.default_rng(7).permutation(batch * blocks).reshape(batch, blocks)
    # Filled by the operator: each block as a prompt of its own.
    for b in range(batch):
        for low in range(0, past, block * FILL_BLOCKS):
            n = min(past - low, block * FILL_BLOCKS)
            count = -(-n // block)
            made.set(
                np.zeros((n, q[0, 0].size)),
                *(x[b, low : low + n].reshape(n, -1) for x in (k, v)),
                np.zeros(count),
                np.minimum(np.arange(count + 1) * block, n),
                table[b, low // block : low // block + count],
                np.arange(count + 1),
                block,
            )
            made.request.infer()
    new = batch * shape.query_len
    made.set(
        *(x.reshape(new, -1) for x in (q, k[:, past:], v[:, past:])),
        np.full(batch, past),
        np.arange(batch + 1) * shape.query_len,
        table.ravel(),
        np.arange(batch + 1) * blocks,
        shape.kv_len,
    )
    note = f"PagedAttention, pages of {block}; stores the new token too"
    return Prepared(made.request.infer, lambda: made.request.get_output_tensor(0).data, nbytes, note)
