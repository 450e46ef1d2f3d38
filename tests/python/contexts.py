"""Every way to run a call: instruction-set targets times ways to use threads."""

import functools

import quire

ALL_TARGETS = (
    "portable",
    "avx2",
    "avx2_vnni",
    "avx512",
    "avx512_vnni",
    "avx512_vnni_vbmi",
    "avx512_vnni_bf16",
    "avx512_vnni_bf16_amx",
)
THREADINGS = {
    "inline": {"num_threads": 1},
    "onetbb-2": {"num_threads": 2},
    "onetbb-3": {"num_threads": 3},
    "slices-1": {"num_threads": 1, "slices": 1},
    "slices-3": {"num_threads": 1, "slices": 3},
}


@functools.cache
def context(target, threading="inline"):
    return quire.Context(target, **THREADINGS[threading])


# Those that this machine has: tests run on each of them. conftest.py says which are not there.
TARGETS = tuple(target for target in ALL_TARGETS if context(target).target_name == target)
