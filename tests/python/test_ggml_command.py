"""quire-ggml: what it runs, with which library loaded first, and what it says otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quire import ggml

COMMAND = [sys.executable, "-m", "quire.ggml"]


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_library_is_there():
    done = run("--library")
    assert (done.returncode, done.stdout.strip()) == (0, str(ggml.LIBRARY))
    assert Path(ggml.LIBRARY).is_file()


@pytest.mark.parametrize("before", ["", "libm.so.6"])
def test_command_runs_with_the_library_first(before):
    done = run("sh", "-c", 'echo "$LD_PRELOAD"; exit 5', LD_PRELOAD=before)
    assert (done.returncode, done.stdout.split(), done.stderr) == (
        5,
        [str(ggml.LIBRARY), *before.split()],
        "",
    )


def test_nothing_is_said_in_programs_without_ggml():
    done = run("true", QUIRE_VERBOSE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_wrong_commands():
    done = run("no-such-command")
    assert done.returncode == 127 and "no-such-command: No such file" in done.stderr
    done = run("--unknown")
    assert done.returncode == 2 and "quire-ggml COMMAND" in done.stderr
    assert run("--help").returncode == 0
