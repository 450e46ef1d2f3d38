#!/usr/bin/env python3
"""Instructions that kernels execute for a small fixed workload, counted by valgrind: the same on any machine.

tools/count.py PROGRAM            compares with tests/golden/instructions.json; PROGRAM is quire_bench
tools/count.py PROGRAM --update   writes that file anew

A kernel that executes over 3 % more than is kept is a failure, as is one that only one of both has.
"""

import argparse
import bisect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "tests/golden/instructions.json"
TOLERANCE = 0.03
FORMATS = "--cache f32,f16,int8,int4,q8_0,q4_0 --group 8,32"
SHAPE = "--once --threads 1 --heads 8 --kv-heads 2 --head-dim 128"
# Options of quire_bench, a process each. 500 keys: a block that is not full.
RUNS = {
    "decode": f"{FORMATS} --kv-len 500 --warm 1",
    "decode of lower precision": "--cache int8,int4 --kv-len 500 --warm 1 --precision high,medium",
    "decode of blocks": "--cache int8_b16,int4_b16 --group 8,32 --kv-len 500 --warm 1",
    "decode of blocks, lower precision": "--cache int8_b16,int4_b16 --kv-len 500 --warm 1"
    " --precision high,medium",
    "prefill of blocks": "--cache int8_b16,int4_b16 --group 32 --query-len 10 --kv-len 150",
    "append to blocks": "--op append --cache int8_b16,int4_b16 --group 32 --query-len 20 --kv-len 500",
    "prefill": "--cache f32,int8,int4 --group 32 --query-len 10 --kv-len 150",
    "prefill of lower precision": "--cache int8,int4 --group 32 --query-len 10 --kv-len 150"
    " --precision high,medium",
    "append": "--op append --cache f32,f16,int8,int4 --group 8,32 --query-len 20 --kv-len 500",
}


def parse_map(text):
    """Sorted (address, end, name) of perf's map."""
    rows = []
    for line in text.splitlines():
        address, size, name = line.split(" ", 2)
        rows.append((int(address, 16), int(address, 16) + int(size, 16), name))
    return sorted(rows)


def parse_callgrind(lines, kernels):
    """Kernel -> instructions, of callgrind's file with absolute positions (--compress-pos=no)."""
    begins = [kernel[0] for kernel in kernels]
    counts = Counter()
    is_call = False
    for line in lines:
        if line.startswith("calls="):
            is_call = True  # the next line is the cost of what was called
        elif line.startswith("0x"):
            if not is_call:
                address, _, cost = line.split()
                at = bisect.bisect_right(begins, int(address, 16)) - 1
                if at >= 0 and int(address, 16) < kernels[at][1]:
                    counts[kernels[at][2]] += int(cost)
            is_call = False
    return counts


def count(program, options):
    valgrind = "valgrind --tool=callgrind --dump-instr=yes --compress-pos=no --compress-strings=no".split()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "out")
        command = [*valgrind, f"--callgrind-out-file={out}", program, *SHAPE.split(), *options.split()]
        environment = {**os.environ, "QUIRE_TARGET": "avx2", "QUIRE_PERF": "map"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said, _ = process.communicate()
        names = Path(f"/tmp/perf-{process.pid}.map")  # where perf looks for it
        if process.returncode != 0 or not names.exists():
            sys.exit(f"count: {' '.join(map(str, command))} failed:\n{said[-3000:]}")
        kernels = parse_map(names.read_text())
        names.unlink()
        with out.open() as lines:
            return parse_callgrind(lines, kernels)


def count_all(program):
    return {name: dict(sorted(count(program, options).items())) for name, options in RUNS.items()}


def flat(counts):
    return {(run, kernel): n for run, kernels in counts.items() for kernel, n in kernels.items()}


def compare(kept, found):
    """(what fails, what is better than kept), a line each."""
    kept, found = flat(kept), flat(found)
    failures, better = [], []
    for key in sorted({*kept, *found}):
        old, new = kept.get(key), found.get(key)
        name = ": ".join(key)
        if old is None or new is None:
            failures.append(f"{name} is {'not in the file' if old is None else 'only in the file'}")
        elif new != old:
            line = f"{name}: {old} -> {new} instructions, {100 * (new / old - 1):+.1f} %"
            (failures if new > old * (1 + TOLERANCE) else better if new < old else []).append(line)
    return failures, better


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("count: valgrind is not installed (Debian: valgrind): INSTRUCTIONS WERE NOT COUNTED")
    found = count_all(arguments.program)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    failures, better = compare(kept, found)
    for line in failures + better:
        print(line)
    print(
        f"count: {sum(flat(found).values())} instructions of {len(flat(found))} kernels in {len(RUNS)} runs"
    )
    if arguments.update:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
    elif failures:
        sys.exit(f"count: {len(failures)} kernels fail; if that is meant: ./dev bench --count --update")
    elif better:
        print(f"count: {len(better)} kernels execute less: ./dev bench --count --update keeps it so")


if __name__ == "__main__":
    main()
