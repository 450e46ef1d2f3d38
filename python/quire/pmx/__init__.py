"""The operators of OpenPPL PMX."""

from . import dynamic_batching

__all__ = ["dynamic_batching"]
