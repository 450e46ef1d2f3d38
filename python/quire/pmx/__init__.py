"""The operators of OpenPPL PMX: over sequences of one length, and over ragged ones in dynamic_batching."""

from .._quire.pmx import key_value_cache, multi_head_attention, multi_head_cache_attention
from . import dynamic_batching

__all__ = ["dynamic_batching", "key_value_cache", "multi_head_attention", "multi_head_cache_attention"]
