"""Contexts, the cache of plans, the GIL, and calls from many threads."""

import json
import subprocess
import sys
import threading
import time

import pytest
import quire
from arrays import assert_attention, dense
from problems import Problem


def test_context():
    context = quire.Context("portable", 2)
    assert (context.target_name, context.num_threads, context.slices) == ("portable", 2, 0)
    assert repr(context) == "quire.Context(target='portable', num_threads=2, slices=0)"
    assert context.explain() == [] == quire.explain(context)
    query, key, value = dense()
    output, _ = quire.attention(query, key, value, context=context)
    assert_attention(output, query, key, value)
    assert len(context.explain()) == 1 and "portable" in context.explain()[0]
    for texts in (context.explain(json=True), quire.explain(context, json=True)):
        (plan,) = map(json.loads, texts)
        assert plan["op"] == "quire_attention" and plan["parts"]["attention"]["target"] == "portable"
    quire.attention(query, key[:5], value[:5], context=context)
    assert len(context.explain()) == 1, "another length made another plan"


@pytest.mark.parametrize(
    "arguments, message",
    [({"target": "mmx"}, "mmx"), ({"target": 3}, "target"), ({"num_threads": -1}, "num_threads"),
     ({"num_threads": "all"}, "num_threads"), ({"slices": -1}, "slices"), ({"slices": 10**6}, "slices")],
)  # fmt: skip
def test_wrong_contexts(arguments, message):
    with pytest.raises(quire.Error, match=message):
        quire.Context(**arguments)


def test_nothing_is_printed():
    """Also with more threads than processors, and with a context that is alive at exit."""
    program = """
import numpy as np, quire
context = quire.Context(num_threads=64)
query = np.zeros((300, 8, 64), np.float32)
for _ in range(3):
    quire.attention(query, query, query, context=context)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_many_plans_are_made_and_dropped():
    query, key, value = dense(tokens=1, keys=1)
    context = quire.Context(num_threads=1)
    for i in range(1100):  # the cache of plans holds 1024
        output, _ = quire.attention(query, key, value, scale=1 + i, context=context)
    assert_attention(output, query, key, value)  # one key: its value, whatever the scale
    assert 0 < len(context.explain()) <= 1024


@pytest.mark.parametrize("slices", [0, 2])
def test_the_gil_is_released(slices):
    context = quire.Context("portable", num_threads=1, slices=slices)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        tokens, seconds = 64, 0.0
        while seconds < 0.2 and tokens < 2**14:  # whatever the machine's speed, the call is long
            tokens *= 2
            query, key, value = dense(tokens, tokens, heads=2, head_dim=64)
            begin = time.perf_counter()
            quire.attention(query, key, value, context=context)
            end = time.perf_counter()
            seconds = end - begin
    finally:
        stop.set()
        thread.join()
    during = [moment for moment in ticks if begin + 0.02 < moment < end - 0.02]
    assert len(during) >= 3, f"no other Python thread ran during {seconds:.2f} s"


@pytest.mark.parametrize("own_context", [False, True])
def test_calls_from_many_python_threads(own_context):
    shared = quire.Context(num_threads=2) if own_context else None
    problems = [Problem([(2, 30 + seed), (1, 5)], quant_bit=8, seed=seed) for seed in range(4)]
    wanted = [problem.call(shared) for problem in problems]
    wrong = []

    def work(index):
        for _ in range(20):
            results = problems[index].call(shared)
            if any(a.tobytes() != b.tobytes() for a, b in zip(results, wanted[index])):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
