"""quire.predict: what a call would take at least; nothing is run."""

import doctest
import threading

import numpy as np
import pytest
import quire
import quire._predict


def dense(tokens=1, keys=4096, dtype=np.float32):
    return np.zeros((tokens, 32, 128), dtype), *np.zeros((2, keys, 8, 128), dtype)


def test_documentation():
    failed, tried = doctest.testmod(quire._predict)
    assert (failed, tried) == (0, 3)


def test_bounds():
    def predict(**limits):
        return quire.predict(quire.attention, *dense(), **limits)

    nbytes, flops = 4 * (2 * 32 * 128 + 2 * 4096 * 8 * 128), 4 * 32 * 128 * 4096
    assert predict() == quire.Prediction(nbytes, flops, "unknown", 0)
    assert predict(bytes_per_second=1e9) == quire.Prediction(nbytes, flops, "unknown", 0)
    memory = predict(bytes_per_second=1e9, flops_per_second=1e15)
    assert (memory.bound, memory.seconds) == ("memory", pytest.approx(nbytes / 1e9))
    compute = predict(bytes_per_second=1e15, flops_per_second=1e9)
    assert (compute.bound, compute.seconds) == ("compute", pytest.approx(flops / 1e9))


@pytest.mark.parametrize(
    ("first", "last", "both"), [(0, 64, 96), (64, 96, 96), (32, 128, 128), (96, 160, 160)]
)
def test_a_value_that_is_a_view_of_its_key_is_read_once(first, last, both):
    """Of 160 elements the key has the first 96, and the value some of them, or others."""
    rows = np.zeros((100, 1, 160), np.float32)
    query = np.zeros((1, 4, 96), np.float32)
    predicted = quire.predict(quire.attention, query, rows[..., :96], rows[..., first:last])
    assert predicted.bytes == 4 * (100 * both + 4 * (96 + last - first))


@pytest.mark.parametrize("slices", [0, 2])
def test_nothing_is_run(slices):
    context = quire.Context(num_threads=1, slices=slices)
    new, cache = np.ones((2, 8, 128), np.float32), np.zeros((10, 8, 128), np.float32)
    arguments = dict(start_pos=0, context=context)
    predicted = quire.predict(quire.append, new, new, cache, cache.copy(), bytes_per_second=1e9, **arguments)
    assert predicted.bytes == 4 * new.nbytes and predicted.flops == 0 and predicted.bound == "memory"
    assert not cache.any()
    out = np.full((1, 32, 128), 7, np.float32)
    quire.predict(quire.attention, *dense(), out=out, context=context)
    assert (out == 7).all()
    quire.append(new, new, cache, cache.copy(), **arguments)  # afterwards, calls run again
    assert cache[:2].all()


def test_several_calls_add_up():
    def two():
        quire.attention(*dense(keys=100))
        quire.attention(*dense(tokens=64, keys=64), is_causal=True)

    limits = dict(bytes_per_second=1e9, flops_per_second=1e9)
    parts = [
        quire.predict(quire.attention, *dense(keys=100), **limits),
        quire.predict(quire.attention, *dense(tokens=64, keys=64), is_causal=True, **limits),
    ]
    both = quire.predict(two, **limits)
    assert both.flops == sum(part.flops for part in parts)
    assert both.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert both.bound == parts[1].bound == "compute"


def test_other_threads_run():
    out = np.full((1, 32, 128), 7, np.float32)

    def call():
        thread = threading.Thread(target=lambda: quire.attention(*dense(), out=out))
        thread.start()
        thread.join()
        quire.attention(*dense())

    quire.predict(call)
    assert not out.any()


def test_errors():
    with pytest.raises(quire.Error, match="limits.bytes_per_second is -1: must be at least 0"):
        quire.predict(quire.attention, *dense(), bytes_per_second=-1)
    with pytest.raises(quire.Error, match="must call an operator that has a plan"):
        quire.predict(len, [])
    query, key, _ = dense()
    with pytest.raises(quire.Error, match="num_kv_heads"):
        quire.predict(quire.attention, query[:, :30], key, key)
    quire.attention(*dense())  # runs
