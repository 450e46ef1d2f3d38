"""The example that runs SmolLM2: its command line, report and tokenizer, and the model.

Tests that need the weights are skipped, and say so, where `./dev demo` has not installed them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from smollm2_support import needs, produced

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from examples.smollm2 import options  # noqa: E402
from examples.smollm2.cache_format import FORMATS  # noqa: E402
from examples.smollm2.paged_cache import PagedCache  # noqa: E402

# ---- the command line and the report -----------------------------------------------------------------------

WRONG = {
    "--cache int5": "argument --cache: invalid choice: 'int5'",
    "--quant-group 24": "argument --quant-group: 24 does not divide the head size 64",
    "--quant-group 0": "argument --quant-group: 0 is not between 1 and 64",
    "--page-size 0": "argument --page-size: 0 is not between 1 and 8192",
    "--page-size many": "argument --page-size: 'many' is not a whole number",
    "--max-tokens -3": "argument --max-tokens: -3 is not between 1 and 8192",
    "--context 9000": "argument --context: 9000 is not between 128 and 8192",
    "--batch 0": "argument --batch: 0 is not between 1 and 64",
    "--prompt=": "argument --prompt: the prompt is empty",
    "--blocks --page-size 24": "--blocks with --quant-group 32 and --page-size 24: they must be",
    "--blocks --quant-group 4": "--blocks with --quant-group 4 and --page-size 64: they must be",
    "--speed 9": "unrecognized arguments: --speed 9",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_values_are_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        options.parse(arguments.split())
    message = capsys.readouterr().err
    assert caught.value.code == 2
    assert message.startswith(f"smollm2: error: {WRONG[arguments]}") and message.count("\n") == 1


def test_program_refuses_without_a_traceback():
    program = subprocess.run(
        [sys.executable, "-m", "examples.smollm2", "--cache", "int5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert program.returncode == 2 and program.stdout == ""
    assert program.stderr.startswith("smollm2: error: ") and program.stderr.count("\n") == 1


def test_the_table_is_left_out_when_prompts_are_given():
    assert options.parse([]).table
    assert not options.parse(["--no-table"]).table
    assert not options.parse(["--prompt", "Hi"]).table
    assert options.parse(["--prompt", "Hi", "--table"]).table
    assert options.parse(["--prompt", "a", "--prompt", "b"]).prompt == ["a", "b"]


def test_blocks_are_taken_where_they_can_be():
    assert options.parse([]).blocks
    assert not options.parse(["--no-blocks"]).blocks
    assert not options.parse(["--quant-group", "4"]).blocks
    assert not options.parse(["--page-size", "24"]).blocks


def test_offered_formats_are_the_known_ones():
    assert options.CACHE_NAMES == tuple(FORMATS)


def test_report_shows_every_format(tmp_path):
    needs("rich", "matplotlib", "jinja2", "tokenizers", "gguf", "threadpoolctl")
    from rich.console import Console

    from examples.smollm2 import measure, report

    scores = [
        measure.FormatScore(
            name=name,
            bytes_per_token=1000 // (i + 1),
            text=measure.TextScore(-300.0 - i, 100, 0.5 * i),
            decoding=measure.DecodingScore(50.0 + i, 0.25, [[1, 2, 3], [4, 5, 6 + i // 2]]),
        )
        for i, name in enumerate(FORMATS)
    ]
    console = Console(width=120, record=True, file=open(os.devnull, "w"))
    with console.file:
        console.print(report.make_table(scores, "title"))
        text = console.export_text()
    assert all(name in text for name in FORMATS)
    assert "20.086" in text and "25.0%" in text and "yes" in text and "3 2" in text
    picture = tmp_path / "new folder" / "picture.png"
    report.save_picture(scores, "title", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [5, 20, 300])
def test_streamed_lines_lose_nothing(width):
    needs("rich", "jinja2", "tokenizers", "gguf", "threadpoolctl")
    from examples.smollm2.answer_view import _full_line

    text = "A line.\n\nAnother one, which is longer; averylongwordwithoutanyplacetobreak it at.\nEnd"
    lines, rest = [], ""
    for character in text:
        rest += character
        while line := _full_line(rest, width):
            lines.append(line)
            rest = rest[len(line) :]
    assert "".join(lines) + rest == text
    assert max(len(line) for line in lines) <= width + 1  # and a space or line feed
    assert len(lines) >= 3


# ---- with the weights --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_file():
    needs("gguf", "tokenizers", "jinja2", "threadpoolctl")
    from examples.smollm2.errors import SetupError
    from examples.smollm2.gguf_model import ModelFile, find_weights

    try:
        return ModelFile(find_weights())
    except SetupError as error:
        pytest.skip(f"SmolLM2 was not run: {error}")


@pytest.fixture(scope="module")
def tokenizer(model_file):
    from examples.smollm2.tokenizer import ChatTokenizer

    return ChatTokenizer(model_file)


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world!",
        "x = 12345\n\tif (a  ==  b):  # don't",
        "naïve café 日本語 🎉",
        " leading, trailing ",
        "",
    ],
)
def test_text_survives_the_tokenizer(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream()
    assert "".join(stream.push(token) for token in ids) == text


def test_tokens_are_those_of_the_reference(tokenizer):
    # From llama.cpp for the same file: digits stand alone, a space belongs to the word after it.
    assert tokenizer.encode("In 2024, don't panic.") == [788, 216, 34, 32, 34, 36, 28, 1326, 982, 14455, 30]
    assert [tokenizer.decode([i]) for i in tokenizer.encode("a 123")] == ["a", " ", "1", "2", "3"]


def test_chat_template(tokenizer):
    text = tokenizer.chat_text("Hi!")
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode_chat("Hi!")
    assert ids[0] == 1 and ids.count(1) == 3 and ids.count(2) == 2  # <|im_start|>, <|im_end|>
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.stop_ids == {0, 2}


def test_the_text_for_perplexity_is_long_enough(tokenizer):
    from examples.smollm2.measure import read_text

    text = read_text()
    assert text.startswith("Down the Rabbit-Hole\n\nAlice was beginning")
    assert len(tokenizer.encode(text)) >= 2000


def test_the_model_answers_in_a_batch_as_alone(model_file, tokenizer):
    from examples.smollm2.engine import Request
    from examples.smollm2.model import Llama

    model = Llama(model_file.hyperparameters(), model_file.weights())
    prompts = ["Hello! Who are you?", "What is photosynthesis?", "Count from one to five."]
    requests = [Request(tokenizer.encode_chat(prompt), 12, tokenizer.stop_ids) for prompt in prompts]

    def answers(requests, name, running):
        cache = PagedCache(FORMATS[name], model.parameters, num_pages=18, page_size=16)
        return [tokenizer.decode(ids) for ids in produced(model, cache, requests, max_running=running)]

    together = answers(requests, "f32", 3)
    assert together == [answers([request], "f32", 1)[0] for request in requests]
    assert together[1].startswith("Photosynthesis is")
    assert answers(requests[1:2], "int8", 1)[0].startswith("Photosynthesis is")
