"""Every way to run a call: instruction-set targets times ways to use threads."""

import functools

import pytest
import quire

TARGETS = ("portable", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_vnni_bf16")
THREADINGS = {
    "inline": {"num_threads": 1},
    "onetbb-2": {"num_threads": 2},
    "onetbb-3": {"num_threads": 3},
    "slices-1": {"num_threads": 1, "slices": 1},
    "slices-3": {"num_threads": 1, "slices": 3},
}


@functools.cache
def _context(target, threading):
    return quire.Context(target, **THREADINGS[threading])


def context(target, threading="inline"):
    """The context of that target; skips the test where the machine has not the target."""
    made = _context(target, threading)
    if made.target_name != target:
        pytest.skip(f"TARGET NOT HERE: this machine has not {target}, its best below is {made.target_name}")
    return made


def available_targets():
    return [target for target in TARGETS if _context(target, "inline").target_name == target]
