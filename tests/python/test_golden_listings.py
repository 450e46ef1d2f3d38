"""Listings of a few kernels are those of tests/golden. (Decode.* of the C++ tests decode every kernel.)"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL, PROGRAM = ROOT / "tools/golden.py", ROOT / "build/release/quire_dump"

sys.path.append(str(TOOL.parent))  # the tool's list of kernels lies beside it
spec = importlib.util.spec_from_file_location("golden_tool", TOOL)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)


@pytest.mark.skipif(not PROGRAM.exists(), reason="quire_dump IS NOT BUILT: golden listings not compared")
def test_listings():
    done = subprocess.run([sys.executable, TOOL, PROGRAM], capture_output=True, text=True, timeout=120)
    if "LISTINGS WERE NOT COMPARED" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


LISTING = """; kernel_avx2, 40 bytes
     0  53                       push rbx                                                     ; count
; ---- scores
     1  c5ec5fc0                 vmaxps ymm0, ymm2, [0x0000000000000020]                      ; top
     5  0f8ceaffffff             jl 0x0000000000000001
; ---- constants
    10  000000000000000000000000000000ff
    20  000080ff000080ff
"""
PLAIN = """; kernel_avx2
    push rbx                                       ; count
; ---- scores
L1:
    vmaxps ymm0, ymm2, [constants+0x10]            ; top
    jl L1
; ---- constants
    0x0 000000000000000000000000000000ff
    0x10 000080ff000080ff
"""


def test_plain():
    assert golden.plain(LISTING) == PLAIN


def test_differences_are_found(tmp_path):
    golden.update({"a.lst": PLAIN, "b.lst": PLAIN}, tmp_path)
    assert golden.compare({"a.lst": PLAIN, "b.lst": PLAIN}, tmp_path) == []
    changed = golden.compare({"a.lst": PLAIN.replace("ymm2", "ymm3"), "c.lst": PLAIN}, tmp_path)
    assert len(changed) == 3  # changed, gone, new
    assert "+    vmaxps ymm0, ymm3" in changed[0]
    golden.update({"c.lst": PLAIN}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["c.lst"]
