"""tools/count.py: that it finds the instructions of kernels, and what it makes of a change."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/count.py"
spec = importlib.util.spec_from_file_location("count_tool", TOOL)
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)

# Two kernels; a library's own addresses, and a call whose cost is that of what it calls.
MAP = "5000 20 qk\n4000 10 softmax_avx2\n"
CALLGRIND = """positions: instr line
ob=/usr/lib/x.so
0x3cdd0 0 17
ob=???
0x4000 0 3
0x400f 0 4
0x4010 0 100
calls=1 0x5000 0
0x4001 0 1000
0x5000 0 5
0x501f 0 6
"""


def test_counts_of_kernels():
    kernels = count.parse_map(MAP)
    assert count.parse_callgrind(CALLGRIND.splitlines(), kernels) == {"softmax_avx2": 7, "qk": 11}


def test_compare():
    kept = {"decode": {"a": 1000, "b": 1000, "c": 1000, "d": 1000, "e": 1000}}
    found = {"decode": {"a": 1000, "b": 1030, "c": 1031, "d": 990, "f": 1}}
    failures, better = count.compare(kept, found)
    assert failures == [
        "decode: c: 1000 -> 1031 instructions, +3.1 %",
        "decode: e is only in the file",
        "decode: f is not in the file",
    ]
    assert better == ["decode: d: 1000 -> 990 instructions, -1.0 %"]
