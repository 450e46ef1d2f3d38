"""The environment of the wheel xllamacpp and its model, which `./dev test --all` and `check` install."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-llama" / "bin" / "python"

needs_llama = pytest.mark.skipif(
    not (ROOT / ".venv-llama" / ".ready").exists(),
    reason="xllamacpp and its model are not installed: ./dev test --all does it",
)


def run(arguments, *, by_quire, verbose=True):
    """Runs the wheel's interpreter, as it is or by quire-ggml; what it wrote to stdout and stderr."""
    command = [str(PYTHON), *map(str, arguments)]
    if by_quire:
        command = [sys.executable, "-m", "quire.ggml", *command]
    # Tests share a machine: threads that wait give their processor away.
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "OMP_WAIT_POLICY": "passive"}
    if verbose:
        environment["QUIRE_VERBOSE"] = "1"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, done.stderr


def counts(errors):
    """Calls by quire, and calls by ggml of each reason, from what QUIRE_VERBOSE=1 printed."""
    by_quire, by_ggml = 0, {}
    for line in errors.splitlines():
        if not line.startswith("quire-ggml: ") or " calls by " not in line:
            continue
        calls, _, rest = line.removeprefix("quire-ggml: ").partition(" calls by ")
        who, _, what = rest.partition(": ")
        if who == "quire":
            by_quire += int(calls)
        else:
            by_ggml[what] = int(calls)
    return by_quire, by_ggml
