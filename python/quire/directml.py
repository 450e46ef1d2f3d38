"""Operators of DirectML."""

from ._quire.directml import multihead_attention1

__all__ = ["multihead_attention1"]
