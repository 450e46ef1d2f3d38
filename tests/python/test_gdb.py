"""tools/gdb_quire.py: GDB stops in a kernel, names it, and knows who called it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/examples/c/example_decode"
# As in docs/profiling.md. 10 instructions: after the kernel has pushed registers; then in its middle.
COMMANDS = """
set debuginfod enabled off
source tools/gdb_quire.py
set environment QUIRE_PERF map
set environment QUIRE_NUM_THREADS 1
break quire_attention
run
quire-kernels decode_qk
quire-break decode_qk_d64_r4
continue
backtrace
stepi 10
backtrace
stepi 200
backtrace
kill
"""


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM.name} IS NOT BUILT: gdb_quire.py not tested")
@pytest.mark.skipif(
    not shutil.which("gdb"), reason="gdb IS NOT INSTALLED (Debian: gdb): gdb_quire.py not tested"
)
def test_backtrace(tmp_path):
    script = tmp_path / "commands"
    script.write_text(COMMANDS)
    gdb = ["gdb", "-nx", "-batch", "-x", script, PROGRAM]
    done = subprocess.run(gdb, cwd=ROOT, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    if "ptrace: Operation not permitted" in said:
        pytest.skip("this system lets no debugger run: gdb_quire.py NOT TESTED")
    if "decode_qk" not in said and "no kernel's name" in said:
        pytest.skip("portable: there are no kernels here")
    # Of adjacent rows and of any: the call takes one of them.
    kernels = re.findall(r"Breakpoint \d is (decode_qk_d64_r4_\w+)", said)
    assert kernels, said
    taken = "|".join(kernels)
    traces = re.findall(rf"#0 .* in (?:{taken})\+0x([0-9a-f]+) \(\)\n#1 .* quire::attend_rows", said)
    assert len(traces) == 3 and traces[0] == "0" and 0 < int(traces[1], 16) < int(traces[2], 16), said
    assert len(re.findall(r"#\d+ .* quire_attention \(\)", said)) == 3, said
    pid = re.search(r"process (\d+)\)? killed", said)
    if pid:
        Path(f"/tmp/perf-{pid[1]}.map").unlink(missing_ok=True)
