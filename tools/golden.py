#!/usr/bin/env python3
"""Listings of a few kernels, kept in tests/golden so that a change of generated code is a diff to review.

tools/golden.py PROGRAM            compares; PROGRAM is quire_dump
tools/golden.py PROGRAM --update   writes them anew

Kept are instructions with the names of their registers, and constants; not addresses and bytes, which change
everywhere when one instruction does.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from golden_kernels import KERNELS, SHAPE

DIRECTORY = Path(__file__).resolve().parent.parent / "tests/golden"
LINE = re.compile(r"^ *([0-9a-f]+)  ([0-9a-f]+)(?: +([^;]*?))?(?: +; (.*))?$")
ADDRESS = re.compile(r"0x([0-9A-F]{16})")
BYTES_ONLY = "; bytes only: "


def plain(listing):
    """A listing without offsets and bytes: labels L1, L2, ... and constants by their place among them."""
    rows, constants = [], None
    for line in listing.splitlines():
        found = LINE.match(line)
        if found:
            at, data, text, names = found.groups()
            rows.append((int(at, 16), data, text, names))
            if not text and constants is None:
                constants = int(at, 16)
        else:
            rows.append((None, line, None, None))
    constants = constants if constants is not None else float("inf")
    used = {int(a, 16) for row in rows if row[2] for a in ADDRESS.findall(row[2])}
    labels = {at: f"L{i}" for i, at in enumerate(sorted(a for a in used if a < constants), 1)}

    def name(found):
        at = int(found[1], 16)
        return labels[at] if at in labels else f"constants+{at - constants:#x}"

    lines = []
    for at, data, text, names in rows:
        if at is None:
            lines.append(re.sub(r", \d+ bytes$", "", data))
            continue
        if at in labels:
            lines.append(f"{labels[at]}:")
        text = ADDRESS.sub(name, text) if text else f"{at - constants:#x} {data}"
        lines.append(f"    {text:<46} ; {names}" if names else f"    {text}")
    return "\n".join(lines) + "\n"


def generate(program):
    """file name -> text of every golden listing."""
    found = {}
    for targets, options, kernels in KERNELS:
        for target in targets:
            with tempfile.TemporaryDirectory() as out:
                command = [program, "--target", target, *SHAPE, *options.split(), "--out", out]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                for kernel in kernels.split():
                    path = Path(out, f"{kernel}_{target}.lst")
                    if not path.exists():
                        sys.exit(f"golden: no kernel is named {path.stem}: put tools/golden_kernels.py right")
                    text = path.read_text()
                    if BYTES_ONLY in text:
                        sys.exit(
                            "golden: Zydis was not found (Debian: libzydis-dev): LISTINGS WERE NOT COMPARED"
                        )
                    found[path.name] = plain(text)
    return found


def compare(found, directory=DIRECTORY):
    """Diffs from what is kept, and names of files that nothing makes any more."""
    kept = {path.name: path.read_text() for path in directory.glob("*.lst")}
    problems = []
    for name in sorted({*found, *kept}):
        old, new = kept.get(name, ""), found.get(name, "")
        lines = (text.splitlines(keepends=True) for text in (old, new))
        diff = "".join(difflib.unified_diff(*lines, f"tests/golden/{name}", "generated now", n=3))
        if diff:
            problems.append(diff)
    return problems


def update(found, directory=DIRECTORY):
    directory.mkdir(exist_ok=True)
    for path in directory.glob("*.lst"):
        path.unlink()
    for name, text in found.items():
        (directory / name).write_text(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    found = generate(arguments.program)
    problems = compare(found)
    if arguments.update:
        update(found)
        print(f"golden: {len(problems)} of {len(found)} listings changed; review them with git diff")
    elif problems:
        sys.stdout.write("".join(problems))
        sys.exit(f"golden: {len(problems)} listings differ; if that is meant: ./dev golden --update")
    else:
        print(f"golden: {len(found)} listings are as they were")


if __name__ == "__main__":
    main()
