"""QUIRE_GOLDEN_DIR names another set of golden cases; one of them that cannot be run is a failure."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import golden
import numpy as np
import pytest

TESTS = Path(__file__).parent
BUNDLED_CASE = "nothing_visible"


def run(folder):
    """pytest over the cases of that set, on the portable kernels, inline: (exit code, what was printed)."""
    chosen = "there_are_cases or (test_golden and portable and inline)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rA", "-k", chosen]
        + [str(TESTS / "test_golden.py")],
        env={**os.environ, "QUIRE_GOLDEN_DIR": str(folder)},
        cwd=TESTS.parents[1],
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def as_it_is(entry, arrays):
    pass


def other_family(entry, arrays):
    entry["family"] = "unheard_of"


def other_attribute(entry, arrays):
    entry["attributes"]["unheard_of"] = 1


def other_input(entry, arrays):
    arrays["in.unheard_of"] = arrays["in.query"]
    entry["inputs"]["unheard_of"] = {}


def other_output(entry, arrays):
    arrays["out.unheard_of"] = arrays["out.lse"]
    entry["outputs"]["unheard_of"] = {}
    entry["tolerance"]["unheard_of"] = entry["tolerance"]["lse"]


def no_output(entry, arrays):
    entry["outputs"] = {}
    for name in [name for name in arrays if name.startswith(("out.", "f64."))]:
        del arrays[name]


def missing_input(entry, arrays):
    del arrays["in.value"]


def wrong_output(entry, arrays):
    arrays["out.attn_output"][0, 0, 0] += 1


def changed_file(entry, arrays):
    entry["sha256"] = "0" * 64


WRONG = [other_family, other_attribute, other_input, other_output, no_output, missing_input, wrong_output]
WRONG += [changed_file]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """A set of a bundled case and changed copies of it: {name of the change: PASSED or FAILED}."""
    folder = tmp_path_factory.mktemp("golden")
    cases = json.loads((golden.BUNDLED / "index.json").read_text())["cases"]
    (bundled,) = [entry for entry in cases if entry["name"] == BUNDLED_CASE]
    entries = []
    for change in [as_it_is, *WRONG]:
        entry = copy.deepcopy(bundled)
        with np.load(golden.BUNDLED / bundled["file"]) as file:
            arrays = dict(file)
        del entry["sha256"]
        entry["name"], entry["file"] = change.__name__, f"{change.__name__}.npz"
        change(entry, arrays)
        np.savez(folder / entry["file"], **arrays)
        entries.append(entry)
    (folder / "index.json").write_text(json.dumps({"format": 1, "cases": entries}))
    code, text = run(folder)
    assert code == 1 and "skipped" not in text, text
    found = re.findall(
        r"^(PASSED|FAILED) .*test_golden\[\w+-(\w+)-portable-inline\]", text, flags=re.MULTILINE
    )
    assert len(found) == len(entries), text
    return {name: outcome for outcome, name in found}


def test_another_set_is_run(outcomes):
    assert outcomes["as_it_is"] == "PASSED"


@pytest.mark.parametrize("change", [change.__name__ for change in WRONG])
def test_a_case_that_cannot_be_run_is_a_failure(outcomes, change):
    assert outcomes[change] == "FAILED"


def test_a_set_that_is_not_there_is_a_failure(tmp_path):
    code, text = run(tmp_path)
    assert code not in (0, 5) and "index.json" in text, text
    (tmp_path / "index.json").write_text('{"format": 1, "cases": []}')
    code, text = run(tmp_path)
    assert code == 1 and "no cases in" in text, text
