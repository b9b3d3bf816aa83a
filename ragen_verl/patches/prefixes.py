"""Rows that begin with the same tokens compute their common beginning once, in log-probs, values and updates.

The rollouts of a group have the same first prompt, and with a row for each turn a prompt repeats what came before it. A
token's hidden state follows from the tokens up to it. So rows of a micro-batch that begin alike are a tree: every
token of it is computed once, and attends to the tokens on its way from the root. verl 0.9.1 has this idea for its
legacy trainer, one turn, and the whole response as the part that differs (trainer/ppo/prefix_grouper_utils.py).

The loss, the number of optimiser steps and the rows that verl sees stay as they are; only the order in which floats are
added changes. `fits` says for which engines this holds. `Planner.cut` asks for it with each call of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from ragen_verl.patches import varlen

__all__ = ["ASKED", "Tree", "apply", "fits", "neighbours", "new_tokens", "sampled"]

ASKED = "share_prefixes"
"""The name of the flag in the data of a worker's call."""


class Tree:
    """Packed rows as a tree of tokens. T: tokens of all rows, U: those that differ, B: rows with tokens of their own.

    It is no dataclass, since FSDP copies those.

    Args:
        ids: (T,) int64, packed rows.
        offsets: (rows + 1,) int64, where they begin, and T.

    Attributes:
        tokens: (U,) int64, where the tokens that are computed lie in the packed rows.
        place: (T,) int64, which of the computed tokens stands for each packed one.
        seen: int64, the computed tokens of each of the B rows, one row after the other: what its own tokens attend to.
        begins: two of (B + 1,) int32: where each row's own tokens begin, and U; where it begins in `seen`, and the end.
        longest: the highest number of own tokens, and of all tokens, of a row.
        layers: how many layers have attended to it.
    """

    def __init__(self, ids: torch.Tensor, offsets: torch.Tensor) -> None:
        flat, starts = ids.cpu().numpy().astype(">i4"), offsets.tolist()
        rows = [flat[start:end] for start, end in pairwise(starts)]
        ways: list[np.ndarray] = [np.empty(0, np.int64)] * len(rows)
        tokens, before, way, count, lengths = [], rows[0][:0], ways[0], 0, []
        order = sorted(range(len(rows)), key=lambda row: rows[row].tobytes())  # rows that begin alike are neighbours
        for row in order:
            both = min(len(rows[row]), len(before))
            differ = np.flatnonzero(rows[row][:both] != before[:both])
            common = int(differ[0]) if len(differ) else both
            new = len(rows[row]) - common
            before, way = rows[row], np.concatenate([way[:common], np.arange(count, count + new)])
            ways[row], count = way, count + new
            tokens.append(np.arange(starts[row] + common, starts[row + 1]))
            lengths += [(new, len(way))] if new else []
        seen = [ways[row] for row, own in zip(order, tokens, strict=True) if len(own)]
        self.tokens, self.place, self.seen = (
            torch.from_numpy(np.concatenate(parts)).to(ids.device) for parts in (tokens, ways, seen)
        )
        begins = np.cumsum([(0, 0), *lengths], 0, dtype=np.int32)
        self.begins = tuple(torch.from_numpy(one.copy()).to(ids.device) for one in begins.T)
        self.longest = tuple(np.max(lengths, 0).tolist())
        self.layers = 0


def new_tokens(ids: torch.Tensor, offsets: torch.Tensor) -> list[int]:
    """For each of the packed rows the tokens after what it has in common with the row before; see `Tree`."""
    rows = [ids[start:end].cpu() for start, end in pairwise(offsets.tolist())]
    found = [len(rows[0])]
    for before, row in pairwise(rows):
        both = min(len(before), len(row))
        found.append(len(row) - int((before[:both] == row[:both]).cumprod(0).sum()))
    return found


def neighbours(costs: Sequence[int], most: int, group: Any = None) -> list[list[int]]:
    """Rows in micro-batches of neighbours that cost at most `most` tokens, or are one row.

    Args:
        costs: tokens of each row.
        most: of a micro-batch.
        group: the ranks, which have to make equally many, and have equally many rows; None for one.
    """
    parts, sum_ = [[0]], costs[0]
    for row, cost in enumerate(costs[1:], start=1):
        sum_ += cost
        if sum_ > most:
            parts.append([])
            sum_ = cost
        parts[-1].append(row)
    count = torch.tensor(len(parts))
    if group is not None and torch.distributed.is_initialized():
        from verl.utils.device import get_device_id

        count = count.to(get_device_id())
        torch.distributed.all_reduce(count, torch.distributed.ReduceOp.MAX, group)
    while len(parts) < int(count):
        longest = max(range(len(parts)), key=lambda part: len(parts[part]))
        rows = parts[longest]
        parts[longest : longest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return parts


def fits(engine: Any) -> bool:
    """Whether a tree of tokens gives this engine's results: `varlen` attends to the whole past in all layers."""
    module, config = engine.module, engine.module.config
    kinds = getattr(config, "layer_types", None) or [
        "full_attention" if getattr(config, "sliding_window", None) is None else "sliding_attention"
    ]
    dropout = [one.p for one in module.modules() if isinstance(one, torch.nn.Dropout)]
    return (
        config._attn_implementation == varlen.NAME
        and set(kinds) == {"full_attention"}
        and not any((getattr(config, "attention_dropout", 0), *dropout))  # a token would have one mask for all rows
        and not (engine.use_ulysses_sp or engine.pad_to_length)
    )


def _asked(engine: Any, data: TensorDict) -> bool:
    def flag(name: str) -> bool:
        return tu.get_non_tensor_data(data=data, key=name, default=False)

    from verl.utils import tensordict_utils as tu

    if not flag(ASKED) or flag("distillation_use_topk") or data["position_ids"].dim() != 2 or "responses" not in data:
        return False
    if not hasattr(engine, "_ragen_fits"):
        engine._ragen_fits = fits(engine)
    return engine._ragen_fits


def sampled(data: TensorDict, masked: bool) -> torch.Tensor:
    """Where the packed rows have a token before a response's token, as int64; with `masked` only before trained ones.

    Nothing else of a pass is read (verl/workers/utils/padding.py, `no_padding_2_padding`). One at least.
    """
    ends, responses = data["input_ids"].offsets()[1:], data["responses"].offsets().diff()
    found = torch.cat([torch.arange(end - size - 1, end - 1) for end, size in zip(ends, responses, strict=True)])
    if masked and "response_mask" in data:
        found = found[data["response_mask"].values().cpu().bool()]
    return (found if len(found) else torch.zeros(1, dtype=torch.int64)).to(ends.device)


def apply(module: Any) -> None:
    """Give the engines of `verl.workers.engine.fsdp.transformer_impl` a tree where a call asks for one."""
    model, critic = module.FSDPEngineWithLMHead, module.FSDPEngineWithValueHead
    prepare, micro_batches = model.prepare_model_inputs, module.prepare_micro_batches

    @wraps(prepare)
    def prepare_tree(self: Any, micro_batch: TensorDict) -> tuple[dict, dict]:
        if not _asked(self, micro_batch):
            return prepare(self, micro_batch)
        inputs, args = prepare(self, _packed(micro_batch))
        if set(inputs) != {"input_ids", "attention_mask", "position_ids"}:  # images, fused kernels, recurrent layers
            return prepare(self, micro_batch)
        ids = micro_batch["input_ids"]
        tree, kept = Tree(ids.values(), ids.offsets()), sampled(micro_batch, not isinstance(self, critic))
        inputs |= {name: inputs[name][:, tree.tokens] for name in ("input_ids", "position_ids")} | {"tree": tree}
        if not isinstance(self, critic):
            inputs["logits_to_keep"] = tree.place[kept]
        args |= {name: args[name][kept] for name in ("input_ids_rmpad_rolled", "temperature_rmpad")}
        self._ragen_tree = tree
        return inputs, {**args, "tree": (tree, kept)}

    @wraps(micro_batches)
    def whole_groups(data: TensorDict, dp_group: Any = None, **kwargs: Any) -> tuple[list[TensorDict], Any]:
        from verl.utils import tensordict_utils as tu

        def told(name: str) -> Any:
            return tu.get_non_tensor_data(data=data, key=name, default=None)

        if not (told(ASKED) and told("use_dynamic_bsz")):
            return micro_batches(data=data, dp_group=dp_group, **kwargs)
        ids = data["input_ids"]
        parts = neighbours(new_tokens(ids.values(), ids.offsets()), told("max_token_len_per_gpu"), dp_group)
        return [tu.index_select_tensor_dict(data, part) for part in parts], parts

    step = model.forward_step

    @wraps(step)
    def measured(self: Any, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> tuple[Any, dict]:
        self._ragen_tree = None
        loss, output = step(self, micro_batch, loss_function, forward_only)
        if (tree := self._ragen_tree) and not forward_only:
            output["metrics"]["computed_tokens"] = len(tree.tokens) / len(tree.place)
        return loss, output

    model.prepare_model_inputs, module.prepare_micro_batches = prepare_tree, whole_groups
    model.forward_step = measured

    for kind in (model, critic):

        def outputs_of_tree(
            self: Any, output: Any, output_args: dict, micro_batch: TensorDict, *rest: Any,
            _outputs: Any = kind.prepare_model_outputs, **kwargs: Any,
        ) -> dict:  # fmt: skip
            if "tree" not in output_args:
                return _outputs(self, output, output_args, micro_batch, *rest, **kwargs)
            tree, kept = output_args["tree"]
            layers = self.module.config.num_hidden_layers
            if tree.layers != layers:
                raise RuntimeError(
                    f"{tree.layers} of the model's {layers} layers attend as shared prefixes need: set "
                    "ragen.share_prefixes to false."
                )
            if isinstance(self, critic):
                output.logits = output.logits[:, tree.place[kept]]
            offsets = micro_batch["input_ids"].offsets()
            rows = _packed(micro_batch)  # the kept places are the first of them, and the others have none
            kept_offsets = kept.new_tensor([0, *[len(kept)] * len(rows)])
            rows["input_ids"] = torch.nested.nested_tensor_from_jagged(kept, kept_offsets)
            found = _outputs(self, output, output_args, rows, *rest, **kwargs)
            blank = {name: one.values().new_zeros(len(tree.place)) for name, one in found.items()}
            return {
                name: torch.nested.nested_tensor_from_jagged(blank[name].index_copy(0, kept, one.values()), offsets)
                for name, one in found.items()
            }

        kind.prepare_model_outputs = wraps(kind.prepare_model_outputs)(outputs_of_tree)


def _packed(micro_batch: TensorDict) -> TensorDict:
    from verl.utils import tensordict_utils as tu

    found = micro_batch.copy()
    tu.assign_non_tensor(found, use_remove_padding=True)
    return found
