"""The facts of a run: recipe, versions, hardware, times, and the results before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ragen_lab.report.curves import intervals, marks
from ragen_lab.report.opening import overrides
from ragen_lab.report.reading import Run
from ragen_lab.report.trajectories import finite

from ragen_verl.names import HELD_OUT, HELD_OUT_SUCCESS, RETURN, SECONDS, STEP_SECONDS, TEST_SECONDS, VALID

__all__ = [
    "OTHER",
    "PHASES",
    "TESTING",
    "HeldOut",
    "before_and_after",
    "device_hours",
    "differing",
    "duration",
    "facts",
    "held_out",
    "phases",
    "seconds",
    "tokens_per_second",
    "verdict",
]

PHASES = {
    "rollout": ("gen",),
    "rewards": ("reward",),
    "log-probs": ("old_log_prob", "ref"),
    "values and advantages": ("values", "adv"),
    "update": ("update_actor", "update_critic"),
    "weights to the engine": ("update_weights",),
    "checkpoints": ("save_checkpoint",),
}
"""Phase of a step -> verl's timers. The rest of a step is `other`; held-out evaluation is outside of the step."""
OTHER, TESTING = "other", "held-out evaluation"


@dataclass(frozen=True)
class HeldOut:
    """One held-out evaluation: success with its interval, return, share of valid turns; None where unknown."""

    step: int
    success: float
    low: float | None
    high: float | None
    ret: float | None
    valid: float | None


def held_out(run: Run) -> list[HeldOut]:
    """Every held-out evaluation, in the order of the steps."""
    ends = intervals(run)
    return [
        HeldOut(
            row["step"],
            row[HELD_OUT_SUCCESS],
            *ends.get(row["step"], (None, None)),
            row.get(f"{HELD_OUT}/{RETURN}"),
            row.get(f"{HELD_OUT}/{VALID}"),
        )
        for row in run.rows
        if finite(row.get(HELD_OUT_SUCCESS))
    ]


def before_and_after(run: Run) -> dict[str, HeldOut]:
    """`before`, `best` and `after`; with one evaluation only `before`."""
    found = held_out(run)
    if not found:
        return {}
    if len(found) == 1:
        return {"before": found[0]}
    return {"before": found[0], "best": max(found, key=lambda one: one.success), "after": found[-1]}


def verdict(run: Run) -> str:
    """The verdict in words; notes alone leave a run healthy. "" where there is none."""
    status = run.verdict.get("status")
    count = len(marks(run))
    if status == "note":
        return f"healthy, {'one note' if count == 1 else f'{count} notes'}"
    return str(status or "")


def phases(run: Run) -> dict[str, float]:
    """Seconds of each phase over all logged steps, without phases of no time."""
    found = {name: sum(_total(run, f"{SECONDS}/{key}") for key in keys) for name, keys in PHASES.items()}
    found[OTHER] = max(0.0, _total(run, STEP_SECONDS) - sum(found.values()))
    found[TESTING] = _total(run, TEST_SECONDS)
    return {name: seconds for name, seconds in found.items() if seconds >= 0.05}


def seconds(run: Run) -> float:
    """The seconds of all steps and of the evaluations after them."""
    return _total(run, STEP_SECONDS) + _total(run, TEST_SECONDS)


def _devices(run: Run) -> int:
    """The number of training processes with a device of their own."""
    nodes, each = run.setting("trainer.nnodes", 1), run.setting("trainer.n_gpus_per_node", 1)
    return int(nodes) * int(each) if finite(nodes) and finite(each) else 1


def tokens_per_second(run: Run) -> float | None:
    """Trained and prompt tokens of all steps divided by the seconds of those steps, over all devices."""
    rows = [row for row in run.rows if finite(row.get("perf/total_num_tokens")) and finite(row.get(STEP_SECONDS))]
    spent = sum(row[STEP_SECONDS] for row in rows)
    return sum(row["perf/total_num_tokens"] for row in rows) / spent if spent else None


def device_hours(run: Run) -> tuple[str, float]:
    """("GPU hours" or "core hours", how many) of steps and evaluations."""
    hours = seconds(run) / 3600
    if run.setting("trainer.device") == "cpu":
        cores = run.versions.get("cores")
        return "core hours", hours * (cores if finite(cores) else 1)
    return "GPU hours", hours * _devices(run)


def facts(run: Run) -> dict[str, dict[str, str]]:
    """Title -> label -> value: recipe, versions, hardware, time; without unknown values."""
    unit, hours = device_hours(run)
    rate = tokens_per_second(run)
    versions = {name: str(value) for name, value in run.versions.items() if name not in ("machine", "cores", "gpus")}
    gpus = run.versions.get("gpus")
    processes = f"{_devices(run)} × {run.setting('trainer.device', 'device')}"
    found = {
        "Recipe": {
            "recipe": run.recipe,
            "overrides": "\n".join(overrides(run)),
            "model": _tail(run.setting("actor_rollout_ref.model.path")),
            "trained on": _split(run, "train"),
            "held out": _split(run, "val"),
            "trajectories a group": _show(run.setting("actor_rollout_ref.rollout.n")),
            "advantages": _show(run.setting("algorithm.adv_estimator")),
            "filter": _show(run.setting("ragen.filter.strategy")),
            "turns, actions at most": _pair(run, "ragen.rollout.max_turns", "ragen.rollout.max_actions"),
            "learning rate": _show(run.setting("actor_rollout_ref.actor.optim.lr")),
            "steps": _steps(run),
        },
        "Hardware and time": {
            "processes": processes if run.config else "",
            "GPUs": _counted(gpus) if isinstance(gpus, list) else "",
            "machine": _machine(run),
            "began": _clock(run.rows[0].get("time")) if run.rows else "",
            "steps and evaluations": duration(seconds(run)) if run.rows else "",
            unit: f"{hours:.3g}" if run.rows else "",
            "tokens per second": f"{rate:,.0f}" if rate else "",
        },
        "Versions": versions,
    }
    return {title: shown for title, rows in found.items() if (shown := {k: v for k, v in rows.items() if v})}


def differing(found: Sequence[dict[str, dict[str, str]]]) -> list[tuple[str, str, list[str], bool]]:
    """Facts of several runs side by side: title, label, a value for each run, and whether these differ."""
    labels = dict.fromkeys((title, label) for one in found for title, rows in one.items() for label in rows)
    rows = [(title, label, [one.get(title, {}).get(label, "") for one in found]) for title, label in labels]
    return [(title, label, values, len(set(values)) > 1) for title, label, values in rows]


def duration(took: float) -> str:
    """Seconds as text, such as "2 h 05 min"."""
    minutes, rest = divmod(round(took), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _total(run: Run, metric: str) -> float:
    return sum(value for _, value in run.series(metric))


def _split(run: Run, name: str) -> str:
    envs = run.setting(f"ragen.{name}.envs")
    shown = []
    for env in envs if isinstance(envs, list) else []:
        if isinstance(env, dict):
            groups = env.get("groups")
            shown.append(str(env.get("name") or env.get("id")) + (f" × {groups}" if groups else ""))
    seed = run.setting(f"ragen.{name}.seed")
    return ", ".join(shown) + (f", seeds from {seed}" if shown and seed is not None else "")


def _steps(run: Run) -> str:
    wanted = run.setting("trainer.total_training_steps")
    return f"{run.step} of {wanted}" if wanted else str(run.step)


def _machine(run: Run) -> str:
    kind, cores = run.versions.get("machine"), run.versions.get("cores")
    return ", ".join(part for part in (_show(kind), f"{cores} cores" if cores else "") if part)


def _counted(names: Sequence[Any]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in Counter(map(str, names)).items())


def _pair(run: Run, *keys: str) -> str:
    return ", ".join(_show(run.setting(key)) for key in keys if run.setting(key) is not None)


def _tail(path: Any) -> str:
    """A model's name: the last part of a folder, or a whole Hugging Face name."""
    name = _show(path)
    return name.rstrip("/").rpartition("/")[2] if name.startswith(("/", ".", "~")) else name


def _clock(moment: Any) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC") if finite(moment) else ""


def _show(value: Any) -> str:
    return "" if value is None else str(value)
