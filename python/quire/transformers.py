"""Hugging Face transformers on quire: `attn_implementation="quire"`, and a paged, quantised cache.

    import quire.transformers  # registers "quire"; needs torch and transformers

    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="quire")
    model.generate(**inputs, past_key_values=quire.transformers.PagedCache(quant_bit=8))

Without a PagedCache attention reads the keys and values of any other cache where they lie. With it they are
stored as int8 (or int4) in pages and read from there: at no time are more than a few of them converted. For
inference on the CPU.
"""

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import sdpa_mask

from ._pages import PageTable
from ._quire import Error, append, attention

__all__ = ["PagedCache", "attention_forward"]


class PagedCache(Cache):
    """Keys and values of all layers in pages, as int8, int4 or the model's own type.

    Give it to a model as `past_key_values`; the model's attn_implementation must be "quire". Sequences may be
    padded on the left, continued, cropped, reordered (beam search), repeated and selected; they share pages
    until one of them writes. Layers with a sliding window keep all their tokens, the mask hides the old ones.

    Args:
        quant_bit: 8 or 4: int8 or packed int4, with scales of float16. 0: the model's own type.
        quant_group: values of a head that share a scale; None: the largest of 32, 16, 8, ... 1 that divides
            the head size.
        page_size: tokens in a page.
        num_pages: pages of each layer to begin with. Where they do not suffice there are twice as many, and
            the bytes of the old ones are copied.

    Raises quire.Error for wrong arguments.
    """

    def __init__(self, quant_bit=8, *, quant_group=None, page_size=64, num_pages=0):
        super().__init__(layers=[])
        if quant_bit not in (0, 4, 8):
            raise Error(f"quant_bit is {quant_bit}: must be 0, 4 or 8")
        if quant_group is not None and quant_group < 1:
            raise Error(f"quant_group is {quant_group}: must be at least 1")
        self.quant_bit, self.quant_group = quant_bit, quant_group
        self.pages = PageTable(page_size, num_pages)

    @property
    def nbytes(self):
        """Bytes of all keys, values and scales, those of pages not in use included."""
        return sum(layer.nbytes for layer in self.layers)

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Stores new keys and values [B, Hk, S, D] of a layer; gives what stands for all of them."""
        while len(self.layers) <= layer_idx:
            self.layers.append(PagedLayer(self))
        return self.layers[layer_idx].update(key_states, value_states)

    def get_max_length(self, layer_idx=None):
        """-1: there is none."""
        return -1

    def crop(self, tokens_to_remove):
        """Forgets the last -tokens_to_remove tokens of every sequence."""
        if tokens_to_remove > 0:
            raise Error(f"tokens_to_remove is {tokens_to_remove}: must be 0 or less, minus their number")
        for layer in self.layers:
            layer.length = max(0, layer.length + tokens_to_remove)
        self.pages.cut(max((layer.length for layer in self.layers), default=0))

    def reset(self):
        """Forgets all sequences; the memory is kept."""
        for layer in self.layers:
            layer.length = 0
        self.pages.select([])

    def reorder_cache(self, beam_idx):
        """Sequence b becomes what sequence beam_idx[b] was."""
        self.pages.select(beam_idx)

    def batch_select_indices(self, indices):
        """Keeps these sequences, in this order."""
        self.pages.select(indices)

    def batch_repeat_interleave(self, repeats):
        """Every sequence `repeats` times, one after the other."""
        self.pages.select(np.repeat(np.arange(len(self.pages.rows)), repeats))

    def _make_room(self, batch, begin, end):
        """For tokens begin .. end of each sequence. Pages that others share too are copied, in all layers."""
        copies = self.pages.make_room(batch, begin, end)
        if copies:
            for layer in self.layers:
                layer.copy_rows(copies)


class PagedLayer(CacheLayerMixin):
    """The keys and values of one layer: pages [MaxP, Hk, P, D], whose order the cache's table tells."""

    is_croppable = True
    is_sliding = False

    def __init__(self, cache):
        super().__init__()
        self.cache, self.length = cache, 0
        self.key = self.value = self.key_scale = self.value_scale = None

    def lazy_initialization(self, key_states, value_states):
        self.dtype = key_states.dtype
        self.key, self.key_scale = self._no_pages(key_states)
        self.value, self.value_scale = self._no_pages(value_states)
        self.is_initialized = True

    def _no_pages(self, states):
        _, heads, _, size = states.shape
        page_size = self.cache.pages.page_size
        quant_bit = self.cache.quant_bit
        if quant_bit == 0:
            return torch.empty(0, heads, page_size, size, dtype=states.dtype), None
        group = self.cache.quant_group or next(g for g in (32, 16, 8, 4, 2, 1) if size % g == 0)
        if size % group:
            raise Error(f"quant_group is {group}: must divide the head size, {size}")
        if quant_bit == 4 and size % 2:
            raise Error(f"quant_bit is 4: the head size must be even, and is {size}")
        width, dtype = (size, torch.int8) if quant_bit == 8 else (size // 2, torch.uint8)
        return (
            torch.empty(0, heads, page_size, width, dtype=dtype),
            torch.empty(0, heads, page_size, size // group, dtype=torch.float16),
        )

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        batch, _, new, _ = key_states.shape
        self.cache._make_room(batch, self.length, self.length + new)
        self._enlarge()
        append(
            _rows(key_states, "key_states"),
            _rows(value_states, "value_states"),
            *map(_rows_of_pages, self._tensors()),
            start_pos=self.length,
            **self._where(),
        )
        self.length += new
        return CachedRows(self, key_states), CachedRows(self, value_states)

    def attend(self, query, out, **options):
        """quire.attention of [B, S, H, D] queries to all tokens."""
        starts = np.arange(query.shape[0] + 1) * self.length
        sides = map(_rows_of_pages, self._tensors())
        attention(query, *sides, kvstarts=starts, out=out, **self._where(), **options)

    def _where(self):
        """A page of P tokens has Hk * P rows, those of its first head first."""
        pages = self.cache.pages
        return dict(cachestarts=pages.rows * self.key.shape[1], page_size=pages.page_size)

    def copy_rows(self, copies):
        """(from, to, number) of rows, the first ones of pages, as they are stored."""
        self._enlarge()
        size = self.cache.pages.page_size
        for tensor in self._tensors():
            for begin, to, number in copies:
                tensor[to // size, :, :number] = tensor[begin // size, :, :number]

    @property
    def batch_size(self):
        return len(self.cache.pages.rows)

    @property
    def nbytes(self):
        return sum(tensor.nbytes for tensor in self._tensors())

    def get_mask_sizes(self, query_length):
        return self.length + query_length, 0

    def get_seq_length(self):
        return self.length

    def get_max_length(self):
        return -1

    def _tensors(self):
        return [t for t in (self.key, self.value, self.key_scale, self.value_scale) if t is not None]

    def _enlarge(self):
        """Until the tensors have all the pages that the table names."""
        pages = self.cache.pages.slots // self.cache.pages.page_size
        for name in ("key", "value", "key_scale", "value_scale"):
            old = getattr(self, name)
            if old is not None and len(old) < pages:
                wide = old.new_empty((pages, *old.shape[1:]))
                wide[: len(old)] = old
                setattr(self, name, wide)


def _rows_of_pages(pages):
    """quire.pages_as_rows of torch's tensors, whose bfloat16 NumPy does not have: Hk * P rows a page."""
    count, heads, size, width = pages.shape
    slots = max(0, (count - 1) * heads * size + size)
    return pages.as_strided((slots, heads, width), (width, size * width, 1))


class CachedRows(torch.Tensor):
    """Stands for the keys or values [B, Hk, T, D] of a PagedLayer: has their shape and type, and no data."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, layer, states):
        shape = (*states.shape[:2], layer.length, states.shape[3])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=states.dtype, device="cpu")

    def __init__(self, layer, states):
        self.layer = layer

    def __repr__(self, **kwargs):
        return f"CachedRows(shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise Error(
            f"{function}: keys and values in a PagedCache can only be attended to by a model with "
            'attn_implementation="quire"'
        )


def attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    **kwargs,
):
    """transformers' attention function "quire".

    Args:
        query: [B, H, S, D]. key, value: [B, Hk, T, D], or what a PagedCache gave.
        attention_mask: [B or 1, H or 1, S or 1, >= T], boolean (False hides) or added to the scores. Without
            one, and with is_causal (None: the module's), query i of several sees keys 0 .. i.
        scaling, softcap, s_aux (sinks), position_bias: as transformers' models pass them.

    Returns:
        ([B, S, H, D], None).

    Raises quire.Error, naming the argument.
    """
    if dropout:
        raise Error(f"dropout is {dropout}: must be 0, quire is for inference")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
        raise Error("query, key or value needs its gradient: run the model under torch.no_grad()")
    batch, heads, tokens, _ = query.shape
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    out = query.new_empty(batch, tokens, heads, value.shape[3])
    options = {
        "attn_mask": _mask(attention_mask, position_bias, causal, tokens, key.shape[2]),
        "scale": scaling,
        "is_causal": bool(causal and tokens > 1 and attention_mask is None),
        "causal_corner": "top_left",
        "logits_soft_cap": softcap or 0,
        "sinks": None if s_aux is None else s_aux.detach().float(),
    }
    if isinstance(key, CachedRows):
        key.layer.attend(_rows(query, "query"), out, **options)
    else:
        attention(_rows(query, "query"), _rows(key, "key"), _rows(value, "value"), out=out, **options)
    return out, None


def _rows(states, name):
    """[B, heads, tokens, size] as [B, tokens, heads, size]; a copy only where a head's values lie apart."""
    if states.device.type != "cpu":
        raise Error(f"{name} is on {states.device}: must be on the CPU")
    states = states.detach().transpose(1, 2)
    return states if states.shape[-1] <= 1 or states.stride(-1) == 1 else states.contiguous()


def _mask(attention_mask, position_bias, causal, tokens, keys):
    """What is added to the scores, or which keys are seen: [B or 1, H or 1, S or 1, T]."""
    if attention_mask is not None:
        attention_mask = attention_mask.detach()[..., :keys]
    if position_bias is None:
        return attention_mask
    bias = position_bias.detach()[..., :keys]
    if attention_mask is None:
        return bias
    if attention_mask.dtype == torch.bool:
        return bias.masked_fill(~attention_mask, -torch.inf)
    return bias + attention_mask


AttentionInterface.register("quire", attention_forward)
# Boolean [B, 1, S, T] where something but causality hides keys, else None.
AttentionMaskInterface.register("quire", sdpa_mask)
