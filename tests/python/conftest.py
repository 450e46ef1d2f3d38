"""Settings of all tests that draw random problems, and what is said once a run."""

import os

import contexts
from hypothesis import settings

# The same problems every time, so that a check that fails fails again; QUIRE_RANDOM_TESTS=1 looks elsewhere.
FIXED = "QUIRE_RANDOM_TESTS" not in os.environ
settings.register_profile("quire", deadline=None, max_examples=200, derandomize=FIXED, database=None)
settings.load_profile("quire")


def pytest_terminal_summary(terminalreporter):
    """A target that the machine lacks is no test that was skipped; it is said once that it was not tested."""
    missing = [target for target in contexts.ALL_TARGETS if target not in contexts.TARGETS]
    terminalreporter.write_line(f"TARGETS TESTED: {', '.join(contexts.TARGETS)}")
    if missing:
        terminalreporter.write_line(f"TARGETS NOT HERE, not tested on this machine: {', '.join(missing)}")
