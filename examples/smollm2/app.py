"""The program: load the model, answer the prompts, compare the cache formats."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from pathlib import Path

from rich.console import Console

from .answer_view import answer_view
from .cache_format import FORMATS
from .engine import Engine, Request
from .errors import UsageError
from .gguf_model import ModelFile, find_weights
from .measure import compare_formats, read_text
from .model import Llama
from .paged_cache import PagedCache
from .progress_view import ProgressView
from .tokenizer import ChatTokenizer

PICTURE = Path(__file__).parents[2] / "build" / "demo" / "smollm2-cache-formats.png"


def built_in_prompts() -> list[str]:
    """Prompts from a few words to a page."""
    passage = "\n\n".join(read_text().split("\n\n")[1:8])
    return [
        "What is photosynthesis?",
        f"Summarize this text in two sentences:\n\n{passage}",
        "Hello! Who are you?",
        "What causes the tides of the sea?",
        "Write a polite e-mail that asks a colleague to move a meeting to Friday.",
    ]


def run(options: argparse.Namespace) -> None:
    """Everything that the command line asks for."""
    console = Console(highlight=False)
    with console.status("reading the weights"):
        file = ModelFile(find_weights())
        tokenizer = ChatTokenizer(file)
        prompts = options.prompt or built_in_prompts()
        requests = make_requests(tokenizer, prompts, options)  # refuses what cannot work before the slow part
        model = Llama(file.hyperparameters(), file.weights())
    make_cache = functools.partial(new_cache, model, options)
    answer_prompts(console, model, tokenizer, prompts, requests, make_cache, options)
    if options.table:
        show_comparison(console, model, tokenizer, make_cache, options)


def make_requests(tokenizer: ChatTokenizer, prompts: list[str], options: argparse.Namespace) -> list[Request]:
    """A request for each prompt; an answer is cut where the context ends."""
    requests = []
    for prompt in prompts:
        tokens = tokenizer.encode_chat(prompt)
        room = options.context - len(tokens)
        if room < 1:
            raise UsageError(
                f"a prompt of {len(tokens)} tokens leaves no room in --context {options.context}"
            )
        requests.append(Request(tokens, min(options.max_tokens, room), tokenizer.stop_ids))
    return requests


def new_cache(model: Llama, options: argparse.Namespace, name: str, lengths: list[int]) -> PagedCache:
    """An empty cache of the named format, with room for sequences of these lengths (tokens) at once."""
    return PagedCache(
        FORMATS[name],
        model.parameters,
        num_pages=sum(-(-length // options.page_size) for length in lengths),
        page_size=options.page_size,
        quant_group=options.quant_group,
        blocks=options.blocks and FORMATS[name].quant_bit > 0,
    )


def answer_prompts(console, model, tokenizer, prompts, requests, make_cache, options) -> None:
    """Streams the answers, then says what they took."""
    longest = sorted((request.max_length for request in requests), reverse=True)[: options.batch]
    cache = make_cache(options.cache, longest)
    console.print(
        f"[bold]SmolLM2-135M-Instruct[/bold], {_count(len(prompts), 'prompt')}, {options.batch} at a time",
        f"{options.cache} cache, {cache.bytes_per_token:,} bytes a token, "
        f"{_count(cache.num_pages, 'page')} of {_count(cache.page_size, 'token')}\n",
        sep="\n",
    )
    view = answer_view(console, tokenizer, prompts)
    engine = Engine(model, cache, requests, max_running=options.batch, listener=view)
    with view.showing():
        sequences = engine.run()

    seconds = sum(step.seconds for step in engine.steps)
    attention_share = sum(step.attention_seconds for step in engine.steps) / seconds
    read, written = sum(len(r.prompt) for r in requests), sum(len(s.produced) for s in sequences)
    console.print(
        f"\n{read:,} tokens read and {written:,} written in {seconds:.1f} s; "
        f"{attention_share:.0%} of the time in attention{_decoding(engine.steps)}; "
        f"{_count(max(step.pages for step in engine.steps), 'page')} in use at most"
    )


def _decoding(steps) -> str:
    """What a step takes in which sequences decode and no prompt is read, in the median."""
    alone = [step for step in steps if step.decoded and not step.prefilled]
    if not alone:
        return ""
    attention = statistics.median(step.attention_seconds for step in alone)
    whole = statistics.median(step.seconds for step in alone)
    return f" ({attention * 1e3:.2f} of {whole * 1e3:.1f} ms a decoding step)"


def show_comparison(console, model, tokenizer, make_cache, options) -> None:
    """Measures every cache format, prints the table and saves the picture."""
    from .report import make_table, save_json, save_picture  # here, because answers alone need no matplotlib

    began = time.perf_counter()
    with ProgressView(console) as progress:
        scores = compare_formats(model, tokenizer, make_cache, options.context, progress)
    title = f"cache formats, quant_group {options.quant_group}, page_size {options.page_size}"
    console.print()
    console.print(make_table(scores, f"{title[0].upper()}{title[1:]}"))
    console.print(
        f"Perplexity and logits: {scores[0].text.predicted:,} tokens of text.txt. Speed: decoding "
        f"{len(scores[0].decoding.continuations)} sequences at once.\nLast column: whether their greedy "
        f"continuations are the same as with f32; if not, how many tokens of each are, before the first that "
        f"differs.\nint4r: int4 codes of keys and values after a Hadamard rotation.\n"
        f"Measured in {time.perf_counter() - began:.0f} s."
    )
    save_picture(scores, f"SmolLM2-135M-Instruct: {title}", PICTURE)
    save_json(scores, f"SmolLM2-135M-Instruct, {title}", PICTURE.with_suffix(".json"))
    console.print(f"Picture: {_from_here(PICTURE)}", soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
