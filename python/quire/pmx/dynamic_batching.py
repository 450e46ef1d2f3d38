"""PMX operators over ragged batches (domain dynamic_batching)."""

from .._quire.pmx.dynamic_batching import key_value_cache, multi_head_attention, multi_head_cache_attention

__all__ = ["key_value_cache", "multi_head_attention", "multi_head_cache_attention"]
