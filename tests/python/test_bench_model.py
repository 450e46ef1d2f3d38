"""quire_bench --model: instructions that attention executes, and what bounds them. No time is judged."""

import json
import re
from pathlib import Path

import pytest
from test_bench import PROGRAM, SMALL, bench

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} IS NOT BUILT: --model not tested")
PART = re.compile(
    r"    (\w+) +([\d.]+) instructions +([\d.]+) loads +([\d.]+) stores +([\d.]+) cycles: ([\w, ]+)"
    r"(?:; [\w., ]+)?$"
)


def model(*arguments, small=SMALL):
    """Of each kernel: instructions, loads, stores, cycles, what bounds it; and all that --model prints."""
    done = bench("--model", *small, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    found = {m[1]: (*map(float, m.groups()[1:5]), m[6]) for m in map(PART.match, lines) if m}
    if not found:
        said = [line for line in lines if "no model: " in line]
        assert said
        pytest.skip(f"NO MODEL HERE: {said[0].strip()}")
    return found, lines


def test_model_counts_kernels():
    """A decoding call's kernels, each with at least what its arithmetic needs, and their sum."""
    found, lines = model("--cache", "f32", "--heads", "8", "--kv-heads", "2", "--head-dim", "64")
    kinds = {kind: part for kind in ("qk", "pv", "softmax") for name, part in found.items() if kind in name}
    assert set(kinds) == {"qk", "pv", "softmax"} and "library" in found
    for kind in ("qk", "pv"):  # 4 rows of 64 elements, at most 16 lanes a vector, at most two FMA a cycle
        instructions, loads, stores, cycles, bound = kinds[kind]
        assert instructions >= 4 * 64 / 16 and loads > 0 and cycles >= 4 * 64 / 16 / 2 and bound != "-"
        assert instructions > cycles and stores < loads
    together = float(next(line for line in lines if line.startswith("    together")).split()[1])
    assert together == pytest.approx(sum(part[3] for part in found.values()), abs=0.1 * len(found))


def test_model_counts_the_same_again():
    """More heads that share a key are more instructions; again the same kernels are the same ones.

    In small groups, of which none are tiles of AMX, whose instructions are as many for any heads.
    """
    few, _ = model("--cache", "int8", "--group", "8", "--heads", "2", "--kv-heads", "2")
    again, _ = model("--cache", "int8", "--group", "8", "--heads", "2", "--kv-heads", "2")
    many, _ = model("--cache", "int8", "--group", "8", "--heads", "16", "--kv-heads", "2")
    kernels = {name: part for name, part in few.items() if name != "library"}
    assert kernels == {name: part for name, part in again.items() if name != "library"}

    def products(found):
        return sum(part[0] for name, part in found.items() if "_qk_" in name or "_pv_" in name)

    assert 2 * products(few) < products(many) < 8 * products(few)


def test_pipes_of_another_processor():
    """The same instructions, bounded by that processor's pipes; no time beside those of another than this."""
    options = ("--cache", "f32", "--heads", "8", "--kv-heads", "2", "--head-dim", "64", "--target", "avx2")
    zen3, lines = model("--pipes", "zen3", *options)
    zen5, more = model("--pipes", "zen5", *options)
    said = [line for line in lines + more if "together" in line]
    assert any(re.search(r"cycles on Zen [35]$", line) for line in said)
    assert all((" measured" in line) != ("cycles on" in line) for line in said)
    kernels = [name for name in zen3 if name != "library"]
    assert kernels and all(zen3[name][0] == zen5[name][0] for name in kernels)
    assert sum(zen3[name][3] for name in kernels) > sum(zen5[name][3] for name in kernels)


def test_unknown_pipes_are_refused():
    done = bench("--model", "--pipes", "zen9", *SMALL)
    assert done.returncode == 2 and "--pipes zen9: must be one of zen3, zen4, zen5, intel" in done.stderr
    done = bench("--pipes", "zen4", *SMALL)
    assert done.returncode == 2 and "--pipes zen4: is of --model, which is not given" in done.stderr


PROMPT = "--threads 1 --benchmark_min_time=0.001 --heads 8 --kv-heads 2 --head-dim 16 --cache f32".split()


def products_of_rows(tokens, keys):
    """Cycles of QK and PV a query row, and those of the keys that it sees alone, at most two FMA a cycle."""
    found, lines = model("--query-len", str(tokens), "--kv-len", str(keys), small=PROMPT)
    assert any(line.endswith("at least, a query row") for line in lines)
    assert any("_softmax" in name for name in found) and "library" in found
    seen = keys - (tokens - 1) / 2
    cycles = [sum(part[3] for name, part in found.items() if kind in name) for kind in ("_qk_", "_pv_")]
    return cycles, seen * 16 / 16 / 2


def test_model_of_prefill():
    """Rows have at least the products of what they see, and less than four times that where past keys are
    most; of one work item and of several."""
    for tokens, keys in ((64, 64), (64, 1024), (200, 1000)):
        cycles, least = products_of_rows(tokens, keys)
        assert all(each >= least for each in cycles), (tokens, keys, cycles, least)
        assert keys == tokens or sum(cycles) < 2 * 4 * least, (tokens, keys, cycles, least)


def test_model_of_longer_prefill_is_in_proportion():
    """Twice as many past keys are twice the products, but for the new tokens' own."""
    few, seen = products_of_rows(32, 32 + 512)
    many, seen_by_many = products_of_rows(32, 32 + 1024)
    for one, other in zip(few, many):
        assert other / one == pytest.approx(seen_by_many / seen, rel=0.05)


def test_no_model_of_ragged_batches_beside_one():
    """Ragged sequences have no model, whether the same lengths without have one or come first."""
    found, lines = model(
        "--query-len", "16", "--kv-len", "32", "--batch", "4", "--ragged", "0,1", small=PROMPT
    )
    said = [line for line in lines if "no model: " in line]
    assert found and len(said) == 1 and "all lengths" in said[0]


def test_no_model_of_windows():
    done = bench("--model", "--query-len", "64", "--kv-len", "256", "--window", "32", *PROMPT)
    assert done.returncode == 0, done.stderr
    assert "no model: " in done.stdout


def test_model_stands_beside_goals(tmp_path):
    """The goals have a column of what is allowed, of decode; what it writes for itself is removed."""
    before = set(Path("/tmp").glob("perf-*.map"))
    written = tmp_path / "out.json"
    done = bench("decode/int8_g32/kv32768/t2", "--model", "--benchmark_min_time=0.001", "--json", written)
    assert done.returncode == 0, done.stderr
    titles = r"^issue goal +wanted +reached +allowed +cycles +near +work +memory +verdict"
    assert re.search(titles, done.stdout, re.MULTILINE)
    result = json.loads(written.read_text())["results"][0]
    line = next(line for line in done.stdout.splitlines() if line.startswith("decode/int8_g32/kv32768/t2 "))
    assert (result["model_ms"] is None) == (line.split()[-1] == "-")
    assert result["model_ms"] is None or result["model_ms"] > 0
    assert result["near_cycles"] > 0 and (result["work_cycles"] is None or result["memory_cycles"] > 0)
    assert set(Path("/tmp").glob("perf-*.map")) <= before
