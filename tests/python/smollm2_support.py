"""What the tests of the example share."""

import pytest


def needs(*modules):
    """Skips, and says so, where packages of the example are missing."""
    for module in modules:
        pytest.importorskip(module, reason="examples/smollm2/requirements.txt is not installed")


def produced(model, cache, requests, *, max_running=3, listener=None):
    from examples.smollm2.engine import Engine

    engine = Engine(model, cache, requests, max_running=max_running, listener=listener)
    return [sequence.produced for sequence in engine.run()]
