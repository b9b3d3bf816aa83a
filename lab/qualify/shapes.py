"""Shapes of the models that recipes name, and models of those shapes with random weights, made without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_lab.qualify import tokenizer

from ragen_verl.cpu import sizes
from ragen_verl.errors import RecipeError, nearest

__all__ = ["SHAPES", "Shape", "make", "shape_of"]


@dataclass(frozen=True)
class Shape:
    """A causal model in Qwen2's form; all in numbers of elements.

    Attributes:
        vocabulary: rows of the embedding.
        hidden: width.
        inner: width of a block's feed-forward part.
        layers: blocks.
        heads: of attention.
        kv_heads: of keys and values.
        tied: whether the embedding is the output layer as well.
    """

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    tied: bool = True

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Linear layers of a block: name -> (inputs, outputs)."""
        h, kv = self.hidden, self.kv_heads * self.head
        attention = {"q_proj": (h, h), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (h, h)}
        return attention | {"gate_proj": (h, self.inner), "up_proj": (h, self.inner), "down_proj": (self.inner, h)}

    @property
    def block(self) -> int:
        """Parameters of a block: its linear layers, biases of q, k and v, two norms."""
        biases = self.hidden + 2 * self.kv_heads * self.head
        return sum(a * b for a, b in self.projections.values()) + biases + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.embedding * (1 if self.tied else 2) + self.layers * self.block + self.hidden

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of an output layer."""
        return self.vocabulary * self.hidden

    def adapter(self, rank: int) -> int:
        """Parameters of a low-rank adapter on all linear layers of the blocks."""
        return self.layers * rank * sum(a + b for a, b in self.projections.values())


#: Name -> shape, from the models' own config.json; the last is what the CPU measures.
SHAPES = {
    "Qwen2.5-0.5B": Shape(151936, 896, 4864, 24, 14, 2),
    "Qwen2.5-1.5B": Shape(151936, 1536, 8960, 28, 12, 2),
    "Qwen2.5-3B": Shape(151936, 2048, 11008, 36, 16, 2),
    "Qwen2.5-7B": Shape(152064, 3584, 18944, 28, 28, 4, tied=False),
    "Qwen2.5-14B": Shape(152064, 5120, 13824, 48, 40, 8, tied=False),
    "tiny": Shape(2048, 64, 192, 2, 2, 1),
}


def shape_of(model: str) -> Shape:
    """The shape of a model that a recipe names, instruction-tuned or not, or of the folder of a model.

    Raises:
        RecipeError: no shape is known under this name.
    """
    if (file := Path(model) / "config.json").is_file():
        return _shape(json.loads(file.read_text("utf-8")))
    name = model.rpartition("/")[2].removesuffix("-Instruct")
    if name not in SHAPES:
        raise RecipeError(
            f"The shape of {model} is not known; name the folder of the model, or one of these: {nearest(name, SHAPES)}"
        )
    return SHAPES[name]


def _shape(config: Mapping[str, Any]) -> Shape:
    """The shape in a model's config.json."""
    read, known = sizes.reader(config), sizes.Shape.of(config)
    heads = read("num_attention_heads", 1)
    return Shape(
        vocabulary=known.vocabulary,
        hidden=known.hidden,
        inner=known.inner,
        layers=known.layers,
        heads=heads,
        kv_heads=read("num_key_value_heads", heads),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def make(name: str, folder: Path, seed: int = 0) -> Path:
    """A model folder of a shape with random weights (bfloat16) and a tokenizer made here; kept once it is there.

    Args:
        name: of `SHAPES`.
        folder: parent of the folder.
        seed: of the weights.
    """
    path = folder / name
    if (path / "model.safetensors").exists() or (path / "model.safetensors.index.json").exists():
        return path
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    shape, part = SHAPES[name], folder / f"{name}.part"
    part.mkdir(parents=True, exist_ok=True)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=shape.tied,
        **tokenizer.build(part, shape.vocabulary),
        architectures=["Qwen2ForCausalLM"],
    )
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(part)
    part.rename(path)
    return path
