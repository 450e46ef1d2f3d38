"""Reads golden cases (inputs and the outputs of reference implementations) and compares results with them."""

import functools
import hashlib
import json
import os
import pathlib
from dataclasses import dataclass

import numpy as np
import reference

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FULL = pathlib.Path(os.environ.get("QUIRE_GOLDEN_DIR", REPOSITORY / "../shared/golden"))
BUNDLED = REPOSITORY / "tests/data/golden"  # a few small cases, so that something always runs


def full_set_is_there():
    return (FULL / "index.json").is_file()


@dataclass(frozen=True)
class Case:
    """One entry of index.json."""

    entry: dict
    folder: pathlib.Path

    @property
    def family(self):
        return self.entry["family"]

    @property
    def id(self):
        return f"{self.family}-{self.entry['name']}"

    def load(self):
        """The arrays: {"in": {name: array}, "out": ..., "f64": ...}, each call its own."""
        self._check_sum()
        arrays = {"in": {}, "out": {}, "f64": {}}
        with np.load(self.folder / self.entry["file"]) as file:
            for key in file.files:
                kind, name = key.split(".", 1)
                arrays[kind][name] = file[key]
        for kind, described in (("in", "inputs"), ("out", "outputs")):
            there, wanted = sorted(arrays[kind]), sorted(self.entry[described])
            assert there == wanted, f"{self.id}: the file has {described} {there}, index.json {wanted}"
        return arrays

    def _check_sum(self):
        """An entry without one is taken as it is: sets made by hand need none."""
        found = hashlib.sha256((self.folder / self.entry["file"]).read_bytes()).hexdigest()
        assert self.entry.get("sha256", found) == found, f"{self.id}: {self.entry['file']} has another sha256"


def folder():
    """The full set, or where it is not there the bundled one; a set that was asked for must be there."""
    return FULL if full_set_is_there() or "QUIRE_GOLDEN_DIR" in os.environ else BUNDLED


@functools.cache
def cases():
    index = json.loads((folder() / "index.json").read_text())
    return [Case(entry, folder()) for entry in index["cases"]]


def cases_of(*families):
    return [case for case in cases() if case.family in families]


def wrap_int4(values):
    """What int4 can hold of an int8 array: the marks of unused slots (113) do not fit four bits."""
    return ((values.astype(np.int16) + 8) % 16 - 8).astype(np.int8)


def check(case, results):
    """Asserts that every output of the case is within its tolerances, of the reference and of float64."""
    arrays = case.load()
    assert arrays["out"], f"{case.id}: holds no output to compare with"
    int4 = case.entry["attributes"].get("quant_bit") == 4
    for name, want in arrays["out"].items():
        want = wrap_int4(want) if int4 and name == "cache" else want
        assert_close(f"{case.id}: {name}", results[name], want, case.entry["tolerance"][name])
    for name, want in arrays["f64"].items():
        assert_close(f"{case.id}: {name} (float64)", results[name], want, case.entry["tolerance_f64"][name])


def assert_close(what, got, want, tolerance):
    """The rule of the golden cases' README. Equal infinities are equal; NaN only with equal_nan."""
    assert got.shape == want.shape, f"{what}: has shape {got.shape}, must have {want.shape}"
    got, want = got.astype(float), want.astype(float)
    same = got == want
    if tolerance.get("equal_nan"):
        same |= np.isnan(got) & np.isnan(want)
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got - want))
        allowed = tolerance["atol"] + tolerance["rtol"] * np.abs(want)
        near = same | (np.isfinite(error) & (error <= allowed))
    assert near.all(), (
        f"{what}: {(~near).sum()} of {near.size} elements are off, the first at "
        f"{np.argwhere(~near)[0].tolist()}: {got[~near][0]} for {want[~near][0]}; "
        f"largest error {np.nanmax(error)}"
    )
    differing = np.mean(~same) if same.size else 0
    most = tolerance.get("max_mismatch_fraction", 1)
    assert differing <= most, f"{what}: {differing:.2%} of the elements differ, at most {most:.2%} may"


def assert_untouched(what, before, after, rows, cache_layout, layer_idx):
    """Asserts that only those rows of that layer of a cache or scale tensor changed, to the bit."""
    before, after = before.copy(), after.copy()
    for tensor in (before, after):
        for part in reference.cache_rows(tensor, cache_layout, layer_idx):
            part[rows] = 0
    assert before.tobytes() == after.tobytes(), f"{what}: changed outside the rows of the new tokens"
