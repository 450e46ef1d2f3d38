"""Wrong calls are quire.Error: the message names the Python argument, and nothing was written."""

import numpy as np
import pytest
import quire
from arrays import OnAnotherDevice, Refusing, dense
from problems import Problem

QUERY, KEY, VALUE = dense()
WRONG_CALLS = {  # what the message must begin with or hold: changed arguments of quire.attention
    "query is None: must be an array": {"query": None},
    "query is of class list": {"query": [[[1.0]]]},
    "query has type float64: must be float32, float16 or bfloat16": {"query": QUERY.astype(float)},
    "query has type >f4": {"query": QUERY.astype(">f4")},
    "query has type complex64": {"query": QUERY.astype(np.complex64)},
    "query is not on the CPU": {"query": OnAnotherDevice(QUERY)},
    "query cannot be read through DLPack: it needs its gradient": {"query": Refusing(QUERY)},
    "query has 2 dimensions: must be [n, H, D]": {"query": QUERY[0]},
    "query has 9 dimensions: must be at most 8": {"query": QUERY[(None,) * 6]},
    "query has a stride of 6 bytes": {
        "query": np.zeros(QUERY.shape, np.dtype([("a", "<f4"), ("b", "<i2")]))["a"]
    },
    "key_scale is missing: key is int8": {"key": KEY.astype(np.int8)},
    "key_scale is given, but key is float32": {"key_scale": np.ones((9, 2, 2), np.float32)},
    "key_scale has 3 groups": {"key": KEY.astype(np.int8), "key_scale": np.ones((9, 2, 3), np.float32)},
    "key_scale has 0 groups": {"key": KEY.astype(np.int8), "key_scale": np.ones((9, 2, 0), np.float32)},
    "key has a stride of 2 in its last dimension": {
        "key": np.zeros((9, 2, 16), np.uint8)[..., ::2],
        "key_scale": np.ones((9, 2, 2), np.float32),
    },
    "value": {"value": VALUE[:, :1]},
    "seqstarts has type float64: must be integers": {"seqstarts": [0.0, 3.0]},
    "seqstarts has type bool: must be integers": {"seqstarts": np.array([False, True])},
    "seqstarts cannot be read as an array": {"seqstarts": [[0], [1, 2]]},
    "seqstarts": {"seqstarts": [0, 4]},
    "kvstarts": {"kvstarts": [0, 10]},
    "cachestarts": {"cachestarts": [5]},
    "attn_mask has type int64": {"attn_mask": np.zeros((3, 9), np.int64)},
    "attn_mask": {"attn_mask": np.zeros((3, 8), np.float32)},
    "sinks has type complex128: must be real numbers": {"sinks": np.ones(4, complex)},
    "sinks": {"sinks": [1.0, 2.0]},
    "scale is 'a' (str): must be a number": {"scale": "a"},
    "scale is 0": {"scale": 0},
    "is_causal is 'no' (str): must be a bool": {"is_causal": "no"},
    "is_alibi is array([0., 0.]) (numpy.ndarray): must be a bool": {"is_alibi": np.zeros(2)},
    "window_left is 1.5 (float): must be an integer": {"window_left": 1.5},
    "window_right is None (NoneType): must be an integer": {"window_right": None},
    "page_size is 1099511627776: must fit 32 bits": {"page_size": 2**40},
    "decoding_batches is 1606938044258990275541962092341162602522202993782792835301376 (int)": {
        "decoding_batches": 2**200
    },
    "decoding_batches": {"decoding_batches": 2},
    "logits_soft_cap is [] (list): must be a number": {"logits_soft_cap": []},
    "precision is 'exact' (str): must be 'highest', 'high' or 'medium'": {"precision": "exact"},
    "out has type float16: must be float32": {"out": np.zeros_like(QUERY, np.float16)},
    "out has length 15 in dimension 2: must be 16": {"out": np.zeros((3, 4, 15), np.float32)},
    "context must be a quire.Context or None": {"context": 3},
}


@pytest.mark.parametrize("message, wrong", WRONG_CALLS.items(), ids=range(len(WRONG_CALLS)))
def test_wrong_calls(message, wrong):
    arguments = {"query": QUERY, "key": KEY, "value": VALUE, **wrong}
    with pytest.raises(quire.Error) as error:
        quire.attention(**arguments)
    assert message in str(error.value)


def test_wrong_cache_types_are_named():
    problem = Problem([(2, 3)], quant_bit=4)
    unpacked = problem.cache
    with pytest.raises(quire.Error, match=r"cache has type int8: must be uint8 \(packed int4\)"):
        quire.pmx.dynamic_batching.multi_head_cache_attention(
            *problem.inputs(), unpacked, problem.scale, **problem.attributes
        )
    problem = Problem([(2, 3)])
    problem.cache.flags.writeable = False
    with pytest.raises(quire.Error, match="cache is read-only: it is changed in place"):
        quire.pmx.dynamic_batching.multi_head_cache_attention(
            *problem.inputs(), problem.cache, **problem.attributes
        )


@pytest.mark.parametrize("slices", [0, 3])
def test_a_failed_call_has_written_nothing(slices):
    problem = Problem([(2, 3), (1, 4)], cache_mode=1, quant_bit=8)
    problem.cachestarts[1, 0] = problem.slots
    cache, scale = problem.cache.copy(), problem.scale.copy()
    with pytest.raises(quire.Error, match="cachestarts"):
        quire.pmx.dynamic_batching.multi_head_cache_attention(
            *problem.inputs(), cache, scale, **problem.attributes, context=quire.Context(slices=slices)
        )
    assert cache.tobytes() == problem.cache.tobytes() and scale.tobytes() == problem.scale.tobytes()
