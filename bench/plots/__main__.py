"""Pictures of what was measured: `./dev plots` draws them from the JSON files of a directory."""

import argparse
import json
import sys
from pathlib import Path

from . import demo, lengths, peers, roofline, schedule, threads

# file -> pictures, each a name and what draws it
PICTURES = {
    "formats": ("roofline", roofline.draw),
    "threads": ("threads", threads.draw),
    "schedule": ("schedule", schedule.draw),
    "demo": ("demo", demo.draw),
    "compare": ("compare", peers.draw),
}


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def main():
    parser = argparse.ArgumentParser(prog="./dev plots", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="directory (%(default)s)")
    directory = parser.parse_args().results
    written = []
    for name, (picture, draw) in PICTURES.items():
        result = read(directory / f"{name}.json")
        if result is None:
            print(f"plots: {directory / name}.json is not there: {picture} was NOT DRAWN")
        else:
            written += draw(result, directory / picture)
    if swept := read(directory / "lengths.json"):
        written += lengths.draw(swept, read(directory / "compare.json"), directory / "lengths")
    else:
        print(f"plots: {directory / 'lengths'}.json is not there: lengths was NOT DRAWN")
    for path in written:
        print(path)
    if not written:
        sys.exit(f"plots: {directory} has no results: ./dev plots --measure makes them")


if __name__ == "__main__":
    main()
