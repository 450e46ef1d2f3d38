"""PMX operators over ragged batches (domain dynamic_batching)."""

from .._quire.pmx.dynamic_batching import multi_head_cache_attention

__all__ = ["multi_head_cache_attention"]
