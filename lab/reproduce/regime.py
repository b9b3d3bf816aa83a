"""The settings of runs: how large their updates are, how many a step makes, and where the nano model learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragen_lab.markdown import table
from ragen_lab.reproduce.judgement import Warnings
from ragen_lab.reproduce.settings import unpacked
from ragen_lab.reproduce.sweep import Sweep

from ragen_verl.names import HELD_OUT_SUCCESS

__all__ = ["regimes", "updates_a_step", "warned"]


def regimes(sweeps: Sequence[Sweep], results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The map: settings of the Sokoban runs that there are, and held-out success at their end; the highest first."""
    rows: dict[tuple[Any, ...], list[float | None]] = {}
    for run, own, curve in _runs(sweeps, results):
        steps = int(own["trainer.total_training_steps"])
        rows.setdefault(_regime(own, steps), []).append(curve[-1][1] if curve and run["steps"] == steps else None)
    ended = {key: [end for end in ends if end is not None] for key, ends in rows.items()}
    found = sorted(rows.items(), key=lambda row: -sum(ended[row[0]]) / max(1, len(ended[row[0]])))
    yield from table(
        ("algorithm", "learning rate", "trajectories an update", "updates a step", "episodes played",
         "runs that reached the end", "held-out success there"),
        [(*map(str, key), f"{len(ended[key])} of {len(ends)}", _range(ended[key])) for key, ends in found],
    )  # fmt: skip


def warned(sweeps: Sequence[Sweep], results: Mapping[str, Mapping[str, Any]]) -> str:
    """How often the verdict of the diagnostics was right on the Sokoban runs that there are, in two sentences."""
    found = list(_runs(sweeps, results))
    start = next((curve[0][1] for _, _, curve in found if curve and curve[0][0] == 0), 0.0)
    good = [run for run, _, curve in found if run["collapsed"] is None and curve and curve[-1][1] >= start]
    told = Warnings.of([run for run, *_ in found]).sentence
    return (
        f"{told} Of {len(good)} that it does not call collapsed and that end at or above their start ({start:.3f}), it "
        f"warned in {sum(run['warned'] is not None for run in good)}."
    )


def _runs(
    sweeps: Sequence[Sweep], results: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], list[list[float]]]]:
    """Each Sokoban run once, with its settings and its curve of held-out success."""
    seen = set()
    for sweep in sweeps:
        if sweep.recipe != "nano/sokoban":
            continue
        settings = unpacked(results[sweep.name]["settings"])
        title = next((title for title, metric in sweep.panels.items() if metric == HELD_OUT_SUCCESS), "")
        for run in results[sweep.name]["runs"]:
            made_by = sweep.runs_of.get(run["variant"], f"{sweep.name}/{run['variant']}"), run["seed"]
            if made_by not in seen:
                seen.add(made_by)
                yield run, settings[run["variant"]], run["curves"].get(title, [])


def updates_a_step(settings: Mapping[str, Any]) -> int:
    """Optimiser updates in a step of a run with these settings, if the filter keeps its share."""
    kept = _kept(settings)
    return round(kept / min(settings["actor_rollout_ref.actor.ppo_mini_batch_size"], kept))


def _kept(settings: Mapping[str, Any]) -> float:
    """Groups that a step learns from."""
    share = settings["ragen.filter.value"] if settings["ragen.filter.strategy"] == "top_k" else 1.0
    return settings["data.train_batch_size"] * share


def _regime(settings: Mapping[str, Any], steps: int) -> tuple[Any, ...]:
    groups, size, kept = settings["data.train_batch_size"], settings["actor_rollout_ref.rollout.n"], _kept(settings)
    parts = ["PPO" if settings["algorithm.adv_estimator"] == "gae" else "GRPO"]
    if settings["algorithm.use_kl_in_reward"] or settings["actor_rollout_ref.actor.use_kl_loss"]:
        parts.append("KL")
    if settings["actor_rollout_ref.actor.clip_ratio_high"] > 0.2:
        parts.append("clip-higher")
    if kept < groups:
        parts.append(f"{kept / groups:.0%} of the groups" + (", cross-fitted" * settings["ragen.filter.cross_fit"]))
    rate, updates = settings["actor_rollout_ref.actor.optim.lr"], updates_a_step(settings)
    return ", ".join(parts), f"{rate:g}", round(kept * size / updates), updates, f"{groups * size * steps:,}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{sum(values) / len(values):.2f} ({low:.2f} to {high:.2f})" if len(values) > 1 else f"{low:.2f}"
