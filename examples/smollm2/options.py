"""The command line. It needs no more than the standard library, so a wrong value is refused at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable

CACHE_NAMES = ("f32", "f16", "int8", "int4", "int4r")
MODEL_CONTEXT = 8192  # tokens that SmolLM2 was trained for
HEAD_DIM = 64
MIN_CONTEXT = 128  # tokens: room for the comparison's chat prompt and its continuation


class OneLineParser(argparse.ArgumentParser):
    """Errors without the usage text in front: one line on stderr, exit code 2."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Checked options; `table` and `blocks` are resolved to True or False."""
    parser = OneLineParser(
        prog="smollm2",
        description="SmolLM2-135M-Instruct answers several prompts at once out of one paged key/value cache.",
    )

    def integer_option(name: str, low: int, high: int, default: int, text: str) -> None:
        parser.add_argument(
            name, type=_integer(low, high), default=default, metavar="N", help=f"{text} ({default})"
        )

    text = "answer this instead of the built-in prompts; can be repeated"
    parser.add_argument("--prompt", action="append", type=_prompt, metavar="TEXT", help=text)
    text = "format of the keys and values while answering (%(default)s)"
    parser.add_argument("--cache", choices=CACHE_NAMES, default="int8", help=text)
    text = f"values that share a scale (int8, int4), a divisor of {HEAD_DIM} (%(default)s)"
    parser.add_argument("--quant-group", type=_quant_group, default=32, metavar="N", help=text)
    text = (
        "int8 and int4 in blocks of 16 tokens, which are read faster, or in rows (blocks, where groups are "
        "multiples of 8 and pages of 16)"
    )
    parser.add_argument(
        "--blocks", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
    )
    integer_option("--page-size", 1, MODEL_CONTEXT, 64, "tokens in a page")
    integer_option("--max-tokens", 1, MODEL_CONTEXT, 128, "longest answer, in tokens")
    integer_option("--context", MIN_CONTEXT, MODEL_CONTEXT, 4096, "longest prompt with its answer, in tokens")
    integer_option("--batch", 1, 64, 3, "sequences that run at once")
    text = "compare all cache formats, or do not (compare, unless --prompt is given)"
    parser.add_argument(
        "--table", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
    )

    options = parser.parse_args(arguments)
    can_be_blocks = options.quant_group % 8 == 0 and options.page_size % 16 == 0
    options.blocks = getattr(options, "blocks", can_be_blocks)
    if options.blocks and not can_be_blocks:
        parser.error(
            f"--blocks with --quant-group {options.quant_group} and --page-size {options.page_size}: "
            "they must be multiples of 8 and of 16"
        )
    options.table = getattr(options, "table", not options.prompt)
    return options


def _integer(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return convert


def _quant_group(text: str) -> int:
    value = _integer(1, HEAD_DIM)(text)
    if HEAD_DIM % value:
        raise argparse.ArgumentTypeError(f"{value} does not divide the head size {HEAD_DIM}")
    return value


def _prompt(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the prompt is empty")
    return text
