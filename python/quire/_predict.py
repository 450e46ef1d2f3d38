"""How fast a call could be, without running it."""

import dataclasses

from ._quire import Error, _predict


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a call has to do at least, and how long that takes on a machine with the given limits.

    Attributes:
        bytes: of queries, keys, values, scales and outputs (no masks, no indices), each once.
        flops: of products over the visible keys, and of dense layers; a multiplication and an addition: two.
        bound: "memory" or "compute", which of the two takes longer; "unknown" where a limit that is needed is
            not given.
        seconds: the longer of bytes / bytes_per_second and flops / flops_per_second; 0: unknown.
    """

    bytes: float
    flops: float
    bound: str
    seconds: float


def predict(call, *arguments, bytes_per_second=0, flops_per_second=0, **keywords):
    """The Prediction of call(*arguments, **keywords), which is checked and not run: nothing is written.

    `./dev bench` prints such limits of a machine. Where the function makes several calls of the library, as
    quire.onnx.attention may, their bytes, flops and seconds are added up, and the bound is that of the
    longest.

    Args:
        call: quire.attention, quire.append or another operator; not quire.merge_states.
        bytes_per_second: what the machine reads from memory with the threads that would run; 0: not known.
        flops_per_second: float32 operations, an FMA counting as two; 0: not known.

    >>> import numpy as np, quire
    >>> query, (keys, values) = np.zeros((1, 32, 128), np.float32), np.zeros((2, 4096, 8, 128), np.float32)
    >>> quire.predict(quire.attention, query, keys, values, bytes_per_second=10e9, flops_per_second=100e9)
    Prediction(bytes=33587200.0, flops=67108864.0, bound='memory', seconds=0.00335872)
    """
    taken = _predict(lambda: call(*arguments, **keywords), bytes_per_second, flops_per_second)
    if not taken:
        raise Error(f"call is {call!r}: must call an operator that has a plan")
    parts = [Prediction(*part) for part in taken]
    known = all(part.bound != "unknown" for part in parts)
    return Prediction(
        bytes=sum(part.bytes for part in parts),
        flops=sum(part.flops for part in parts),
        bound=max(parts, key=lambda part: part.seconds).bound if known else "unknown",
        seconds=sum(part.seconds for part in parts) if known else 0.0,
    )
