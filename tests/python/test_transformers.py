"""quire.transformers: models of Hugging Face transformers on quire, against transformers' own `eager`."""

import copy

import numpy as np
import pytest
import quire
import reference

WHY = "TORCH OR TRANSFORMERS NOT INSTALLED: ./dev test --all installs them"
torch = pytest.importorskip("torch", reason=WHY)
transformers = pytest.importorskip("transformers", reason=WHY)

import quire.transformers as client  # noqa: E402
from transformers import DynamicCache  # noqa: E402

TINY = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512}
TINY |= {"pad_token_id": 0, "eos_token_id": None, "bos_token_id": 1}
# With these the best token is ahead of the next by more than the rounding to int8 moves it.
SEEDS = (0, 2, 5)


@pytest.fixture(autouse=True)
def no_gradients():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # those of a model as small as these only wait for each other
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def llama(seed=0, **changes):
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**TINY, **changes})).eval()


def prompts(rows=3, tokens=11):
    """A batch padded on the left."""
    ids = torch.randint(3, TINY["vocab_size"], (rows, tokens))
    mask = torch.ones_like(ids)
    for b, padding in zip(range(rows), (5, 0, 2)):
        mask[b, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def generate(model, implementation, inputs, cache=None, new=24, **options):
    model.set_attn_implementation(implementation)
    options = {"max_new_tokens": new, "do_sample": False, **options}
    return model.generate(**inputs, past_key_values=cache, **options)


def step(model, implementation, cache, ids, mask):
    """Logits of the tokens that are not padding."""
    model.set_attn_implementation(implementation)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    logits = model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache).logits
    return logits[mask[:, -ids.shape[1] :].bool()]


class RoundedCache(DynamicCache):
    """What a PagedCache holds, as numbers of the model's type."""

    def __init__(self, quant_bit, quant_group):
        super().__init__()
        self.quant_bit, self.quant_group = quant_bit, quant_group

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        return super().update(self.rounded(key_states), self.rounded(value_states), layer_idx)

    def rounded(self, states):
        if self.quant_bit == 0:
            return states
        codes, scale = reference.quantise(states.numpy(), self.quant_bit, self.quant_group)
        return torch.from_numpy(reference.dequantise(codes, scale.astype(np.float16)).astype(np.float32))


# ---- the attention function ----


def test_it_is_registered():
    assert "quire" in transformers.AttentionInterface().valid_keys()
    assert llama().get_correct_attn_implementation("quire") == "quire"


def test_greedy_tokens_without_a_cache_of_ours():
    model, inputs = llama(), prompts()
    wanted = generate(model, "eager", inputs)
    assert torch.equal(generate(model, "quire", inputs), wanted)
    assert torch.equal(generate(model, "quire", inputs, cache_implementation="static"), wanted)
    assert torch.equal(generate(model, "quire", inputs, use_cache=False), wanted)


PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SIZES = {**TINY, "head_dim": 16}
CONFIGURATIONS = {
    "grouped heads": transformers.LlamaConfig(**TINY),
    "a key head for each": transformers.LlamaConfig(**{**TINY, "num_key_value_heads": 8}),
    "window": transformers.MistralConfig(**SIZES, sliding_window=4),
    "soft cap": transformers.Gemma2Config(**SIZES, sliding_window=4, attn_logit_softcapping=2.0),
    "sinks": transformers.GptOssConfig(
        **SIZES, sliding_window=4, num_local_experts=2, num_experts_per_tok=1, rope_parameters=PLAIN_ROPE
    ),
}


@pytest.mark.parametrize("cached", ["dynamic", "paged"])
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_logits_of_models(kind, cached):
    """Causal, padded on the left; prefill, more prefill, then decode."""
    config = CONFIGURATIONS[kind]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    inputs = prompts(tokens=16)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    caches = DynamicCache(config=config), DynamicCache(config=config)
    if cached == "paged":
        caches = caches[0], client.PagedCache(0, page_size=4)
    for begin, end in ((0, 9), (9, 14), (14, 15), (15, 16)):
        wanted, logits = (
            step(model, implementation, cache, ids[:, begin:end], mask[:, :end])
            for implementation, cache in zip(("eager", "quire"), caches)
        )
        torch.testing.assert_close(logits, wanted, atol=1e-4 * wanted.std().item(), rtol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("kind", ["none", "bool", "numbers", "bias", "bias and bool", "bias and numbers"])
def test_masks(kind, dtype, tolerance):
    torch.manual_seed(2)
    dtype = getattr(torch, dtype)
    query, key, value = (torch.randn(2, heads, n, 16).to(dtype) for heads, n in ((4, 5), (2, 5), (2, 5)))
    seen = torch.rand(2, 1, 5, 7) < 0.7
    seen[..., 0] = True
    numbers = torch.zeros(2, 1, 5, 7, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    mask = seen if "bool" in kind else numbers if "numbers" in kind else None
    bias = torch.randn(1, 4, 5, 5).to(dtype) if "bias" in kind else None
    output, weights = client.attention_forward(None, query, key, value, mask, scaling=0.3, position_bias=bias)
    added = torch.zeros(2, 4, 5, 5)
    if mask is not None:
        added = added.masked_fill(~seen[..., :5], -torch.inf)
    else:
        added = added.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    added = added + (0 if bias is None else bias.float())
    wanted = torch.nn.functional.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), added, scale=0.3, enable_gqa=True
    )
    assert weights is None and output.dtype == dtype and output.shape == (2, 5, 4, 16)
    torch.testing.assert_close(output.float(), wanted.transpose(1, 2), atol=tolerance, rtol=tolerance)


# ---- the cache ----


@pytest.mark.parametrize("page_size, quant_group", [(64, None), (4, 8)])
@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_tokens_from_an_int8_cache(seed, page_size, quant_group):
    """Those of `eager` with a float32 cache, which must not hang on a hair."""
    model = llama(seed)
    inputs = prompts()
    wanted = generate(model, "eager", inputs, output_logits=True, return_dict_in_generate=True)
    logits = torch.stack(wanted.logits)
    best = logits.topk(2).values
    assert (best[..., 0] - best[..., 1]).min() > 1e-3 * logits.std(), "choose another seed"
    cache = client.PagedCache(8, page_size=page_size, quant_group=quant_group)
    assert torch.equal(generate(model, "quire", inputs, cache), wanted.sequences)
    assert cache.get_seq_length() == 11 + 24 - 1 and cache.batch_size == 3
    assert cache.pages.used == 3 * -(-34 // page_size)
    # Continued, as in the next turn of a conversation.
    longer = {"input_ids": torch.cat([wanted.sequences, inputs["input_ids"]], 1)}
    longer["attention_mask"] = torch.cat([inputs["attention_mask"], torch.ones(3, 24 + 11)], 1).long()
    turn = generate(model, "quire", longer, cache, new=4)
    assert turn.shape == (3, 50) and cache.get_seq_length() == 11 + 24 + 11 + 3


@pytest.mark.parametrize("quant_bit, quant_group", [(0, 8), (8, 8), (8, 4), (4, 8), (4, 2)])
def test_logits_are_those_of_the_rounded_cache(quant_bit, quant_group):
    """Prefill of a padded batch, more of it, then decode: as if the cache held what the codes mean."""
    model, inputs = llama(), prompts(tokens=40)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    caches = RoundedCache(quant_bit, quant_group), None
    caches = caches[0], client.PagedCache(quant_bit, quant_group=quant_group, page_size=8)
    for begin, end in ((0, 10), (10, 11), (11, 17), (17, 38), (38, 39), (39, 40)):
        wanted, logits = (
            step(model, implementation, cache, ids[:, begin:end], mask[:, :end])
            for implementation, cache in zip(("eager", "quire"), caches)
        )
        # A number that lies on the border between two codes may be rounded to either.
        torch.testing.assert_close(logits, wanted, atol=2e-3 * wanted.std().item(), rtol=1e-3)


@pytest.mark.parametrize("quant_bit, per_head", [(0, 4 * 8), (8, 8 + 2), (4, 4 + 2)])
def test_the_cache_holds_codes_and_nothing_else(quant_bit, per_head):
    model, inputs = llama(), prompts()
    cache = client.PagedCache(quant_bit, page_size=4)
    generate(model, "quire", inputs, cache)
    tensors = [tensor for layer in cache.layers for tensor in layer._tensors()]
    dtypes = {0: [torch.float32], 8: [torch.int8, torch.float16], 4: [torch.uint8, torch.float16]}[quant_bit]
    assert [tensor.dtype for tensor in tensors] == 2 * [dtype for dtype in dtypes for _ in "kv"]
    slots = cache.pages.slots
    assert 34 * 3 <= slots and cache.nbytes == 2 * 2 * 2 * slots * per_head
    # What a layer gives to attention has a shape and no data; anything else that looks at it fails.
    states = torch.randn(3, 2, 1, 8)
    key, value = cache.update(states, states, 0)
    assert key.shape == value.shape == (3, 2, 35, 8) and key.dtype == torch.float32
    assert "CachedRows" in repr(key)
    with pytest.raises(quire.Error, match="only be attended to by a model"):
        key + 1
    with pytest.raises(quire.Error, match="only be attended to by a model"):
        generate(model, "eager", inputs, client.PagedCache(quant_bit))


def test_beam_search():
    model, inputs = llama(3), prompts()
    options = {"num_beams": 3, "num_return_sequences": 3, "new": 12}
    wanted = generate(model, "eager", inputs, **options)
    assert torch.equal(generate(model, "quire", inputs, client.PagedCache(0, page_size=4), **options), wanted)


def test_cropped_selected_repeated_and_copied():
    """Each against a fresh cache of what is left."""
    model, inputs = llama(), prompts()
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    token = torch.tensor([[5], [6], [7]])

    def after(cache, rows, length):
        """Logits of one more token."""
        seen = torch.cat([mask[rows, :length], torch.ones(len(rows), 1)], 1).long()
        return step(model, "quire", cache, token[: len(rows)], seen)

    def check(change, rows, length):
        cache, fresh = (client.PagedCache(8, page_size=4) for _ in "12")
        step(model, "quire", cache, ids, mask)
        kept = copy.deepcopy(cache)
        change(cache)
        assert cache.get_seq_length() == length
        for _ in range(2):  # the first one writes to pages that were shared
            step(model, "quire", fresh, ids[rows, :length], mask[rows, :length])
            torch.testing.assert_close(after(cache, rows, length), after(fresh, rows, length))
            for each in (cache, fresh):
                each.crop(-1)
            fresh.reset()
        everything = list(range(3)), ids.shape[1]
        step(model, "quire", fresh, ids, mask)
        torch.testing.assert_close(after(kept, *everything), after(fresh, *everything))

    check(lambda cache: cache.crop(-4), [0, 1, 2], 7)
    check(lambda cache: cache.crop(-3), [0, 1, 2], 8)
    check(lambda cache: cache.crop(0), [0, 1, 2], 11)
    check(lambda cache: cache.batch_select_indices(torch.tensor([2, 0])), [2, 0], 11)
    check(lambda cache: cache.reorder_cache(torch.tensor([1, 1, 0])), [1, 1, 0], 11)

    def one_three_times(cache):
        cache.batch_select_indices(torch.tensor([2]))
        cache.batch_repeat_interleave(3)
        assert cache.pages.used == 3

    check(one_three_times, [2, 2, 2], 11)


def test_pages_to_begin_with_and_after_a_reset():
    model, inputs = llama(), prompts()
    cache = client.PagedCache(8, page_size=4, num_pages=30)
    first = generate(model, "quire", inputs, cache)
    where = cache.layers[0].key.data_ptr()
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.pages.used == 0
    one = {name: array[:1] for name, array in inputs.items()}
    assert torch.equal(generate(model, "quire", one, cache), first[:1])
    assert cache.layers[0].key.data_ptr() == where and cache.pages.slots == 120
    assert cache.get_max_length() == -1 and not cache.is_compileable


def wrong(message):
    return pytest.raises(quire.Error, match=message)


def test_wrong_calls():
    states = torch.randn(2, 2, 3, 12)
    with wrong("quant_bit is 3: must be 0, 4 or 8"):
        client.PagedCache(3)
    with wrong("page_size is 0: must be at least 1"):
        client.PagedCache(page_size=0)
    with wrong("num_pages is -1"):
        client.PagedCache(num_pages=-1)
    with wrong("quant_group is 0"):
        client.PagedCache(quant_group=0)
    with wrong("quant_group is 8: must divide the head size, 12"):
        client.PagedCache(quant_group=8).update(states, states, 0)
    with wrong("the head size must be even, and is 7"):
        client.PagedCache(4).update(states[..., :7], states[..., :7], 0)
    cache = client.PagedCache()
    cache.update(states, states, 0)
    with wrong("the batch has 1 sequences: must be as many as the cache holds, 2"):
        cache.update(states[:1], states[:1], 0)
    with wrong("tokens_to_remove is 2: must be 0 or less"):
        cache.crop(2)
    for states_, message in ((states.to("meta"), "query is on meta"), (states.double(), "query has type")):
        with wrong(message):
            client.attention_forward(None, states_, states_, states_, None)
    with wrong("dropout is 0.1: must be 0"):
        client.attention_forward(None, states, states, states, None, dropout=0.1)
    with torch.enable_grad(), wrong("needs its gradient: run the model under torch.no_grad"):
        client.attention_forward(None, states.requires_grad_(), states, states, None)
