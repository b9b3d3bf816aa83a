"""Compare verl's FSDP2 engine with plain PyTorch on the CPU: its numbers have to be right on any device.

Everything runs on the nano model, whose weights are trained: with random ones a wrong attention mask would hardly show.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from ragen_lab.qualify.findings import Outcome
from ragen_lab.qualify.reference import Reference, compute
from ragen_lab.qualify.shapes import Shape
from ragen_lab.qualify.workers import (
    ACTOR,
    BFLOAT16,
    CRITIC,
    FLOAT32,
    Rows,
    actor,
    changed,
    critic,
    environment,
    free_port,
    freed,
    precision,
    recipe,
)

from ragen_verl.patches.prefixes import ASKED
from ragen_verl.training.gradient_norms import gradient_norms

__all__ = ["run"]

_NANO = Path(str(files("ragen_verl.cpu"))) / "nano_model"
_NANO_SHAPE = Shape(641, 128, 384, 4, 4, 4)
_SIZES = ((6, 10), (20, 30), (11, 6), (40, 25), (9, 40), (30, 14), (17, 17), (25, 8))
_RATE, _ADAPTER = 1e-4, 8

_EXACT = 1e-4
"""Nats. float32 has 24 bits, 6e-8 of a logit of 30 or 2e-6; sums over 641 words and four blocks in another order make
it 1e-5, measured on a CPU, and ten times that is allowed."""
_NORM = 1e-3
"""Relative, for the gradient norm in float32: sums of the same numbers in another order."""
_AFTER = 0.01
"""Of the largest change that one update makes: Adam's first step is the gradient's sign, so noise around 0 shows."""
_COARSE_NORM = 0.05
"""Relative, for the gradient norm in bf16, whose products have 8 bits: 0.4 % each, over four blocks and back."""
_PATIENCE = 120.0
"""Seconds for two ranks."""
_ONE_GPU = "one GPU only"

_PASSES: dict[str, dict[str, Any]] = {
    "padded": {"use_remove_padding": False, "use_dynamic_bsz": False, "micro_batch_size_per_gpu": 4},
    "packed": {"use_remove_padding": True, "use_dynamic_bsz": False, "micro_batch_size_per_gpu": 4},
    "packed, dynamic": {"use_remove_padding": True, "use_dynamic_bsz": True, "max_token_len_per_gpu": 128},
}


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`.
    """
    device = settings["device"]
    if device == "cpu":
        torch.set_num_threads(1)  # with a model this small, threads wait longer than they compute
    config = _config(device)
    rows = Rows.draw(_SIZES, _NANO_SHAPE.vocabulary)
    for (before, _), (prompt, _) in pairwise(rows.cells):  # each prompt begins as the one before it
        prompt[: len(before)] = before[: len(prompt)]
    both = _ranks(device, rows)  # first: this process must not have started threads or CUDA when it forks
    optim = config[ACTOR].actor.optim
    reference = compute(str(_NANO), rows, _RATE, optim.clip_grad, optim.weight_decay, tuple(optim.betas))
    _exact(outcome, config, rows, reference)
    _coarse(outcome, config, rows, reference)
    _adapters(outcome, config, rows, reference)
    _values(outcome, config, rows)
    _several(outcome, both, reference)
    outcome.notes.append(
        "References: the nano model row by row on the CPU, float32, eager attention, torch.optim.AdamW. "
        f"Log-probabilities in nats. Bounds: {_EXACT:g} in float32 (sums in another order, ten times a CPU's); "
        f"gradient norm {_NORM:g} of itself; after an update {_AFTER:g} of the largest change (Adam's first step is a "
        "sign); bf16 2^-8 of the largest logit on average, the rounding of one product, and 5 % of the norm."
    )
    count = sum(len(table) for table in outcome.tables.values())
    outcome.judge(f"{count} comparisons of verl's engine on {device} with plain PyTorch hold.")


def _config(device: str) -> DictConfig:
    own: dict[str, Any] = {f"{ACTOR}.actor.optim.lr": _RATE, f"{ACTOR}.actor.optim.lr_warmup_steps": 0}
    own |= {f"{CRITIC}.optim.lr": _RATE, f"{CRITIC}.optim.lr_warmup_steps": 0, f"{CRITIC}.enable": True}
    # sdpa takes rows packed without padding by their position ids; flash-attention knows no float32
    for block in (ACTOR, CRITIC):
        own[f"{block}.model.override_config.attn_implementation"] = "sdpa"
        own[f"{block}.model.use_remove_padding"] = device != "cpu"
    own |= {f"{ACTOR}.actor.use_torch_compile": False, f"{ACTOR}.actor.fsdp_config.use_torch_compile": False}
    return recipe("nano/frozen_lake", device, str(_NANO), own | precision(FLOAT32))


def _exact(outcome: Outcome, config: DictConfig, rows: Rows, reference: Reference) -> None:
    """Check padded, packed and dynamic batches in float32, and the probe of gradient norms."""
    table = "float32"
    outcome.check(
        table, "control: rows that see their neighbour differ", _distance(reference.mixed, reference.before),
        100 * _EXACT, "else a wrong mask would not show", least=True,
    )  # fmt: skip
    change = _distance(reference.after, reference.before)
    for name, settings in _PASSES.items():
        worker = actor(config)
        before = rows.log_probs(worker, **settings)
        outcome.check(table, f"{name}: log-probs", _distance(before, reference.before), _EXACT, "nats, largest")
        if name == "padded":
            data = rows.update_data(before, len(rows.cells), **settings)
            found = (gradient_norms(worker, data) or {})["task"]
            outcome.check(table, "probe: norm of the policy loss", _ratio(found, reference.norm), _NORM, "relative")
            moved = _distance(rows.log_probs(worker, **settings), before)
            outcome.check(table, "probe: weights stay as they are", moved, 0.0, "nats, largest")
        norm = rows.update(worker, before, **settings)
        outcome.check(table, f"{name}: gradient norm", _ratio(norm, reference.norm), _NORM, "relative")
        after = _distance(rows.log_probs(worker, **settings), reference.after)
        outcome.check(table, f"{name}: after an update", after / change, _AFTER, "of the largest change")
        del worker
        freed()


def _coarse(outcome: Outcome, config: DictConfig, rows: Rows, reference: Reference) -> None:
    """Check the same in bf16 arithmetic with float32 weights, as in the GPU recipes, with two attentions.

    On a GPU "varlen" is torch's own kernel (`ragen_verl.patches.varlen`), which shared prefixes need.
    """
    bound = 2**-8 * reference.largest
    for name, told in {"sdpa": {}, "varlen": {}, "shared prefixes": {ASKED: True}}.items():
        packed = _PASSES["packed"] | told
        attention = {f"{ACTOR}.model.override_config.attn_implementation": "varlen" if told else name}
        worker = actor(changed(config, precision(BFLOAT16) | attention))
        before = rows.log_probs(worker, **packed)
        mean, largest = _mean_distance(before, reference.before), _distance(before, reference.before)
        outcome.check("bf16", f"{name}: log-probs, mean distance", mean, bound, "nats")
        outcome.check("bf16", f"{name}: log-probs, largest distance", largest, 10 * bound, "nats")
        norm = rows.update(worker, before, **packed)
        outcome.check("bf16", f"{name}: gradient norm", _ratio(norm, reference.norm), _COARSE_NORM, "relative")
        if told:
            tree = worker.actor.engine._ragen_tree
            outcome.check(
                "bf16", f"{name}: tokens that are computed", len(tree.tokens) / len(tree.place), 0.9, "of all"
            )
        del worker
        freed()


def _adapters(outcome: Outcome, config: DictConfig, rows: Rows, reference: Reference) -> None:
    """Check a low-rank adapter on the actor, and on a critic, which verl 0.9.1 does not support and recipes refuse."""
    table, padded = "adapters", _PASSES["padded"]
    adapter = {"lora_rank": _ADAPTER, "lora_alpha": 2 * _ADAPTER, "target_modules": "all-linear"}
    worker = actor(changed(config, {f"{ACTOR}.model.{key}": value for key, value in adapter.items()}))
    parameters = list(worker.actor.engine.module.parameters())
    trained = sum(one.numel() for one in parameters if one.requires_grad)
    outcome.check(table, "actor: parameters off the computed number", abs(trained - _NANO_SHAPE.adapter(_ADAPTER)), 0)
    before = rows.log_probs(worker, **padded)
    distance = _distance(before, reference.before)
    outcome.check(table, "actor: a new adapter changes nothing", distance, _EXACT, "nats, largest")
    norm = rows.update(worker, before, **padded)
    outcome.check(table, "actor: gradient norm", norm, 1e-6, least=True)
    moved = _distance(rows.log_probs(worker, **padded), before)
    outcome.check(table, "actor: an update changes the policy", moved, 10 * _EXACT, "nats, largest", least=True)
    del worker, parameters
    freed()
    try:
        worker = critic(changed(config, {f"{CRITIC}.model.{key}": value for key, value in adapter.items()}))
        values = rows.values(worker, **padded)
        norm = rows.update_values(worker, values, [one + 1 for one in values], **padded)
        says = f"builds and steps, gradient norm {norm:.3g}"
    except Exception as error:
        says = f"no, as the recipes' check says ({type(error).__name__}: {str(error).strip().splitlines()[0][:120]})"
    outcome.row(table, check="critic: verl's adapter builds", value=says, bound="-", ok=None, why="known of verl 0.9.1")
    freed()


def _values(outcome: Outcome, config: DictConfig, rows: Rows) -> None:
    """Check a critic whose weights are all trained."""
    worker = critic(config)
    padded, packed = _PASSES["padded"], _PASSES["packed"]
    before = rows.values(worker, **padded)
    distance = _distance(rows.values(worker, **packed), before)
    outcome.check("critic", "packed against padded", distance, _EXACT, "values, largest")
    aim = [old + one for old, one in zip(before, rows.advantages, strict=True)]
    for _ in range(3):
        norm = rows.update_values(worker, before, aim, **padded)
    outcome.check("critic", "gradient norm", norm, 1e-6, least=True)
    errors = [_mean_distance(values, aim) for values in (before, rows.values(worker, **padded))]
    outcome.check("critic", "error after three updates, of the first", errors[1] / errors[0], 1.0, "decreases")
    del worker
    freed()


# -- two ranks ---------------------------------------------------------------------------------------------------------


def _ranks(device: str, rows: Rows) -> list[dict[str, Any]] | str:
    """The results of two ranks, or the reason why there are none."""
    if device != "cpu" and torch.cuda.device_count() < 2:
        return _ONE_GPU
    context: Any = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
    answers, port, half = context.Queue(), free_port(), len(rows.cells) // 2
    processes, before = [], dict(os.environ)
    for rank in range(2):
        os.environ |= environment(rank, 2, port)
        if device != "cpu":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
            os.environ["CUDA_VISIBLE_DEVICES"] = visible[rank]
        mine = range(half * rank, half * (rank + 1))
        processes.append(context.Process(target=_rank, args=(rank, device, rows.part(mine), answers), daemon=True))
        processes[-1].start()
        os.environ.clear()
        os.environ |= before
    try:
        found = [answers.get(timeout=_PATIENCE) for _ in processes]
    except queue.Empty:
        return f"no answer within {_PATIENCE:g} s"
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return sorted(found, key=lambda one: one["rank"])


def _rank(rank: int, device: str, rows: Rows, answers: Any) -> None:
    """Run half of the rows through the same engine as one of two ranks, in a process of its own."""
    try:
        torch.set_num_threads(1)
        worker = actor(_config(device))
        settings = {**_PASSES["padded" if device == "cpu" else "packed"], "micro_batch_size_per_gpu": 2}
        before = rows.log_probs(worker, **settings)
        norm = rows.update(worker, before, **settings)
        after = rows.log_probs(worker, **settings)
        lists = {"before": [one.tolist() for one in before], "after": [one.tolist() for one in after]}
        answers.put({"rank": rank, "norm": norm, **lists})
        torch.distributed.destroy_process_group()
    except Exception as error:
        answers.put({"rank": rank, "error": f"{type(error).__name__}: {error}"})


def _several(outcome: Outcome, both: list[dict[str, Any]] | str, reference: Reference) -> None:
    if not isinstance(both, str) and any("error" in one for one in both):
        both = "; ".join(one["error"] for one in both if "error" in one)
    if isinstance(both, str):
        ok = None if both == _ONE_GPU else False
        outcome.row("two ranks", check="two ranks", value=both, bound="-", ok=ok, why="not compared")
        return
    norm = _ratio(both[0]["norm"], reference.norm)
    outcome.check("two ranks", "gradient norm", norm, _NORM, "relative")
    change = _distance(reference.after, reference.before)
    for when, theirs, bound in (("before", reference.before, _EXACT), ("after", reference.after, _AFTER * change)):
        ours = [torch.tensor(one) for rank in both for one in rank[when]]
        outcome.check("two ranks", f"log-probs {when} the update", _distance(ours, theirs), bound, "nats, largest")


def _distance(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """The largest difference of rows of numbers; nan where one is not finite."""
    return float((torch.cat(list(ours)).cpu() - torch.cat(list(theirs))).abs().max())


def _mean_distance(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    return float((torch.cat(list(ours)).cpu() - torch.cat(list(theirs))).abs().mean())


def _ratio(ours: float, theirs: float) -> float:
    """The relative distance of two numbers."""
    return abs(ours / theirs - 1)
