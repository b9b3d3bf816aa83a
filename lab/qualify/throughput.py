"""Tokens per second of verl's updates and log-probs: micro-batches, token budgets, checkpointing, entropy, kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from ragen_lab.qualify import memory
from ragen_lab.qualify.findings import Outcome, Status
from ragen_lab.qualify.shapes import SHAPES, make
from ragen_lab.qualify.workers import ACTOR, Rows, actor, changed, freed, recipe
from verl.utils.device import get_torch_device

__all__ = ["peak_of_update", "run"]

_RECIPE = "paper/sokoban_starpo_ppo"
_ENTROPY = f"{ACTOR}.actor.fsdp_config"

#: Name -> keys of an engine that is built for it; the recipe's own first.
_ENGINES: dict[str, dict[str, Any]] = {
    "checkpointing": {f"{ACTOR}.model.enable_gradient_checkpointing": True},
    "no checkpointing": {f"{ACTOR}.model.enable_gradient_checkpointing": False},
    "entropy in chunks": {
        f"{ACTOR}.model.enable_gradient_checkpointing": True,
        f"{_ENTROPY}.entropy_from_logits_with_chunking": True,
    },
    "packed with sdpa and its mask": {
        f"{ACTOR}.model.enable_gradient_checkpointing": True,
        f"{ACTOR}.model.override_config.attn_implementation": "sdpa",
    },
    "fused kernels": {
        f"{ACTOR}.model.enable_gradient_checkpointing": True,
        f"{ACTOR}.model.use_fused_kernels": True,
        f"{ACTOR}.model.fused_kernel_options": {"impl_backend": "torch"},
    },
}
_MUST = ("checkpointing", "no checkpointing")
"""Engines that every verl has: an error in them, except a lack of memory, fails the part."""
_FULL = "out of memory"


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome, setting after setting until its time is up.

    Args:
        outcome: of the part.
        settings: `device`, `models` (folder), `shapes` (names), `seconds`, `save`.
    """
    device, deadline = settings["device"], time.monotonic() + settings["seconds"]
    if device == "cpu":
        torch.set_num_threads(1)
    left_out = 0
    for shape in settings["shapes"]:
        rows = _rows(device)
        config = _config(shape, device, Path(settings["models"]))
        for name, keys in _ENGINES.items():
            if outcome.tables and time.monotonic() > deadline:
                left_out += 1
                continue
            _engine(outcome, shape, name, changed(config, keys), rows, device, deadline)
            settings["save"]()
    outcome.notes.append(
        f"{len(rows.cells)} rows of {min(map(_length, rows.cells))} to {max(map(_length, rows.cells))} tokens, random "
        "weights, packed with the recipe's attention on a GPU, padded on the CPU; each number is the second of two "
        "calls. An update has an entropy term and ends with Adam's step. Peak: PyTorch's, GB."
    )
    done = [row for row in outcome.tables.get("update", []) if isinstance(row["tokens_per_second"], float)]
    if not done:
        outcome.status, outcome.sentence = Status.FAIL, "No setting came to an end."
        return
    best = max(done, key=lambda row: (row["shape"] == done[0]["shape"], row["tokens_per_second"]))
    later = f"; {left_out} engines were left out for want of time" if left_out else ""
    outcome.judge(
        f"{best['shape']}: updates at up to {best['tokens_per_second']:,.0f} tokens/s ({best['engine']}, "
        f"{best['batches']}){later}."
    )


def peak_of_update(shape: str, device: str, models: Path, recipe_name: str, rows: int) -> float:
    """The peak of PyTorch's memory in GB during one update of `rows` rows of a paper recipe's greatest length."""
    config = recipe(recipe_name, device, str(make(shape, models)))
    length = config.data.max_prompt_length, config.data.max_response_length
    drawn = Rows.draw([length] * rows, SHAPES[shape].vocabulary)
    worker = actor(config)
    settings = {"micro_batch_size_per_gpu": rows, "use_dynamic_bsz": False, "entropy": True}
    get_torch_device().reset_peak_memory_stats()
    drawn.update(worker, [torch.zeros_like(one) for one in drawn.advantages], **settings)
    peak = get_torch_device().max_memory_allocated() / memory.GB
    del worker
    freed()
    return peak


def _config(shape: str, device: str, models: Path) -> DictConfig:
    return recipe(_RECIPE, device, str(make(shape, models)), {f"{ACTOR}.actor.use_torch_compile": False})


def _rows(device: str) -> Rows:
    """Rows with lengths like an agent's: from a third of the longest to the longest."""
    count, longest, prompt = (16, 96, 24) if device == "cpu" else (64, 1800, 400)
    lengths = torch.linspace(longest / 3, longest, count)[
        torch.randperm(count, generator=torch.Generator().manual_seed(0))
    ]
    return Rows.draw([(min(prompt, int(one) // 2), int(one) - min(prompt, int(one) // 2)) for one in lengths], 600)


def _length(cell: tuple[list[int], list[int]]) -> int:
    return len(cell[0]) + len(cell[1])


def _engine(
    outcome: Outcome, shape: str, name: str, config: DictConfig, rows: Rows, device: str, deadline: float
) -> None:
    """Measure one engine with all divisions of batches for which there is time."""
    try:
        worker = actor(config)
    except Exception as error:  # the installed verl may lack a feature, or the device the memory
        outcome.row("update", shape=shape, engine=name, batches="-", tokens_per_second=_reason(error), peak_gb="-")
        return
    old = [torch.zeros_like(one) for one in rows.advantages]
    calls: dict[str, Callable[[], Any]] = {}
    for batches, how in _batches(device, rows):
        if outcome.tables and time.monotonic() > deadline:
            break
        calls["update"] = partial(rows.update, worker, old, entropy=True, **how)
        if name == next(iter(_ENGINES)):
            calls["log-probs"] = partial(rows.log_probs, worker, entropy=True, **how)
        for table, call in calls.items():
            get_torch_device().reset_peak_memory_stats()
            ok = None
            try:
                rate: float | str = rows.tokens / _seconds(call)
            except Exception as error:
                rate = _reason(error)
                ok = False if name in _MUST and rate != _FULL else None
                freed()
            peak = round(get_torch_device().max_memory_allocated() / memory.GB, 2)
            what = {"shape": shape, "engine": name, "batches": batches, "check": f"{shape}, {name}, {batches}"}
            outcome.row(table, **what, tokens_per_second=rate, peak_gb=peak, ok=ok)
    del worker, calls
    freed()


def _batches(device: str, rows: Rows) -> Iterator[tuple[str, dict[str, Any]]]:
    """Divisions of a batch: by a fixed number of rows, or by a budget of tokens."""
    longest = max(map(_length, rows.cells))
    for micro in (4, 16) if device == "cpu" else (4, 1, 2, 8, 16, 32):
        yield f"{micro} rows", {"micro_batch_size_per_gpu": micro, "use_dynamic_bsz": False}
    for budget in (2 * longest, 8 * longest) if device == "cpu" else (8192, 16384, 32768):
        yield f"{budget} tokens", {"max_token_len_per_gpu": budget, "use_dynamic_bsz": True}


def _seconds(call: Callable[[], Any]) -> float:
    """The seconds of the second call; the first call warms up."""
    call()
    get_torch_device().synchronize()
    start = time.perf_counter()
    call()
    get_torch_device().synchronize()
    return time.perf_counter() - start


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return _FULL
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:100]}"
