"""Text to token ids and back, built from the vocabulary and merges that the model file holds."""

from __future__ import annotations

import jinja2.sandbox
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .errors import SetupError
from .gguf_model import ModelFile

CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL
END_OF_TEXT = "<|endoftext|>"


class ChatTokenizer:
    """Byte-level BPE of SmolLM2 with its special tokens and chat template."""

    def __init__(self, file: ModelFile):
        self._tokenizer = _build_tokenizer(file)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(file.field("tokenizer.chat_template"))
        end_of_answer = file.field("tokenizer.ggml.eos_token_id")
        self.stop_ids = frozenset({end_of_answer, self._tokenizer.token_to_id(END_OF_TEXT)})

    def encode(self, text: str) -> list[int]:
        """Ids of plain text. Special tokens written out in it count as special tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def chat_text(self, prompt: str) -> str:
        """The chat template applied to one user message, ending where the answer begins."""
        messages = [{"role": "user", "content": prompt}]
        return self._template.render(messages=messages, add_generation_prompt=True)

    def encode_chat(self, prompt: str) -> list[int]:
        return self.encode(self.chat_text(prompt))

    def stream(self) -> TextStream:
        return TextStream(self._tokenizer)


class TextStream:
    """Turns ids into text one by one; a character of several tokens comes out when it is complete."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._stream = decoders.DecodeStream(skip_special_tokens=True)

    def push(self, token: int) -> str:
        return self._stream.step(self._tokenizer, token) or ""


def _build_tokenizer(file: ModelFile) -> Tokenizer:
    kind = (file.field("tokenizer.ggml.model"), file.field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise SetupError(f"the model file has the tokenizer {'/'.join(kind)}; this program knows gpt2/smollm")
    tokens = file.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # "smollm" means: every digit by itself, then the GPT-2 expression, then bytes as printable characters.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = file.field("tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer
