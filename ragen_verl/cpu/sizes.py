"""What a recipe's sizes on the CPU follow from: the model's shape and the machine's memory.

The resolvers of recipes/hardware/cpu.yaml (`${ragen_cpu:...}`). A shape is read from the model's `config.json`, so that
composing a recipe imports neither torch nor transformers; a model that has not been downloaded yet counts as `LARGE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from ragen_verl.machine import memory

__all__ = ["LARGE", "SIZES", "Shape", "bucket", "cache_bytes", "micro_batch", "reader", "shape_of"]

_FLOAT32 = 4
_MEGABYTE, _GIGABYTE = 2**20, 2**30

# a model of 2 billion parameters with the largest vocabulary in use
LARGE = {"vocab_size": 262144, "hidden_size": 2560, "num_hidden_layers": 32, "intermediate_size": 10240}
# other names of the same things
_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
}


def reader(config: Mapping[str, Any]) -> Callable[[str, int], int]:
    """A function of a name and the usual value, for the sizes in a `config.json`, under whichever name they stand."""
    config = {**config, **config.get("text_config", {})}

    def read(name: str, usual: int) -> int:
        found = (config.get(one) for one in _NAMES.get(name, (name,)))
        return next((value for value in found if isinstance(value, int)), usual)

    return read


@dataclass(frozen=True)
class Shape:
    """A causal model's shape, in numbers of elements.

    Attributes:
        vocabulary: rows of the embedding.
        hidden: width.
        layers: number of blocks.
        inner: width of a block's feed-forward part; of all its experts.
        cached: elements that the KV cache holds for a token and block.
    """

    vocabulary: int
    hidden: int
    layers: int
    inner: int
    cached: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """From the contents of a `config.json`; what it does not say is taken for the usual."""
        read = reader(config)
        hidden = read("hidden_size", LARGE["hidden_size"])
        heads = read("num_attention_heads", 1)
        head = read("head_dim", hidden // heads)
        experts = max(read("num_experts", 1), read("num_local_experts", 1), read("n_routed_experts", 1))
        return cls(
            vocabulary=read("vocab_size", LARGE["vocab_size"]),
            hidden=hidden,
            layers=read("num_hidden_layers", LARGE["num_hidden_layers"]),
            inner=read("intermediate_size", 4 * hidden) * experts,
            cached=2 * read("num_key_value_heads", heads) * head,
        )

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor, in float32: the embedding, or a block's fused projections."""
        return _FLOAT32 * self.hidden * max(self.vocabulary, 2 * self.inner, 3 * self.hidden)

    @property
    def pass_bytes(self) -> int:
        """Bytes that a token takes in a forward and backward pass: logits in six copies, activations of every block."""
        return _FLOAT32 * (6 * self.vocabulary + self.layers * (16 * self.hidden + 4 * self.inner))


@cache
def shape_of(model: str) -> Shape:
    """The shape of a model folder, or of a hub's model if its `config.json` is in the cache of downloads."""
    path = Path(model).expanduser() / "config.json"
    if not path.is_file():
        from huggingface_hub import try_to_load_from_cache

        found = None
        with suppress(ValueError):  # no name that a hub could know
            found = try_to_load_from_cache(model, "config.json")
        if not isinstance(found, str):
            return Shape.of(LARGE)
        path = Path(found)
    return Shape.of(json.loads(path.read_text(encoding="utf-8")))


def bucket(model: str) -> int:
    """Megabytes of the shared memory that weights are pushed through: it has to hold the largest tensor.

    Only what is written of it takes memory. 16 at least.
    """
    return max(16, ceil(shape_of(model).largest / _MEGABYTE))


def cache_bytes(model: str, tokens: int) -> int:
    """Bytes of vLLM's KV cache: for 32 whole rows, within an eighth of the memory; for two rows at least.

    Args:
        model: folder or name.
        tokens: longest row, prompt and response.
    """
    row = _FLOAT32 * shape_of(model).layers * shape_of(model).cached * tokens
    return max(_GIGABYTE // 4, 2 * row, min(32 * row, memory() // 8))


def micro_batch(model: str, tokens: int, groups: int, group_size: int, ranks: int) -> int:
    """Rows of a pass over the model: as many as fit into a quarter of the memory and divide those of an update.

    Args:
        model: folder or name.
        tokens: longest row, prompt and response.
        groups: groups of an update.
        group_size: rows of a group.
        ranks: processes that share an update.
    """
    rows = groups * group_size // ranks
    fit = memory() // 4 // ranks // (shape_of(model).pass_bytes * tokens)
    return max((n for n in range(1, min(rows, fit) + 1) if rows % n == 0), default=1)


SIZES = {"bucket": bucket, "cache_bytes": cache_bytes, "micro_batch": micro_batch}
