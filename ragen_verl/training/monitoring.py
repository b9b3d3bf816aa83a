"""The diagnostics of a run in progress, as `trainer.py` calls them: verdict, stop rules, kept checkpoints, probes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragen_verl.config import RagenConfig
from ragen_verl.diagnostics.early_stop import EarlyStop
from ragen_verl.diagnostics.echo_trap import StepIndicators
from ragen_verl.diagnostics.finite import FiniteUpdates
from ragen_verl.diagnostics.keeping import Action, CheckpointPolicy
from ragen_verl.diagnostics.monitor import Monitor, MonitorConfig
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.runs.folder import RunFolder, checkpoint_of, checkpoints_in
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.batch_mismatch import batch_mismatch
from ragen_verl.training.data_plane import Batch

__all__ = ["TrainingMonitor"]


class TrainingMonitor:
    """Reads the metrics of every step. Its state follows from metrics.jsonl, so a resumed run continues with it.

    Args:
        ragen: the recipe's `ragen` block.
        folder: the run's folder.
        checkpoints: `trainer.default_local_dir`, where verl saves checkpoints.
        kept: the share of trajectories that the update uses.
    """

    def __init__(self, ragen: RagenConfig, folder: RunFolder, checkpoints: str | Path, kept: float) -> None:
        self.config, self.folder, self.checkpoints = ragen.diagnostics, folder, Path(checkpoints)
        self.monitor = Monitor(MonitorConfig.from_recipe(asdict(ragen)))
        self.indicators = StepIndicators(self.config.indicators)
        self.rules = EarlyStop(ragen.stop)
        self.policy = CheckpointPolicy(ragen.stop)
        self.information = None
        if self.config.mutual_information.enabled:
            from ragen_verl.training.probes import MutualInformationProbe

            measured = self.config.mutual_information
            self.information = MutualInformationProbe(measured, ragen.train.seed, kept, ragen.rollout.think)
        self.scores: dict[int, float] = {}
        self.updates = FiniteUpdates()

    def resume(self) -> None:
        """Read the steps that are in the run's folder already."""
        for row in self.folder.rows():
            self._see(row["step"], row)

    def played(self, trainer: Any, batch: Batch, played: TrajectoryBatch) -> dict[str, float]:
        """The metrics of all trajectories of a step, before any is dropped."""
        metrics = self.indicators(played.records)
        return metrics | self.information(trainer, batch, played) if self.information else metrics

    def mismatch(self, trainer: Any, batch: Batch) -> dict[str, float]:
        """The distance between trainer's and engine's log-probabilities; call it once the old ones are known."""
        rollout, correction = trainer.config.actor_rollout_ref.rollout, trainer.config.algorithm.rollout_correction
        bypass = bool(correction and correction.get("bypass_mode", False))
        if not (rollout.calculate_log_probs and self.config.mismatch.due(trainer.global_steps, bypass)):
            return {}
        actor = trainer.actor_rollout_wg if bypass else None
        return batch_mismatch(batch, trainer.global_steps, self.config.mismatch.threshold, actor, rollout.temperature)

    def gradients(self, trainer: Any, batch: Batch, trained: TrajectoryBatch) -> dict[str, float]:
        """Gradient norms by reward variance; call it once advantages are known."""
        if not self.config.gradient_signal.enabled:
            return {}
        from ragen_verl.training.probes import gradient_signal

        return gradient_signal(trainer, batch, trained, self.config.gradient_signal)

    def step(self, step: int, metrics: dict[str, Any]) -> str | None:
        """Add the verdict to a step's metrics, write it, print it if a warning is new, and keep good checkpoints.

        Returns:
            The reason to stop after this step, in one sentence; None to continue.
        """
        before = self.monitor.verdict.warned
        metrics.update(self.updates.measure(metrics))
        rule = self._see(step, metrics)
        verdict = self.monitor.verdict
        metrics.update(verdict.metrics() | self.rules.metrics())
        self.folder.write_verdict(verdict.record())
        if verdict.warned != before:
            from rich.console import Console

            from ragen_verl.diagnostics.table import verdict_table

            Console(width=160, emoji=False, markup=False).print(verdict_table(verdict))
        action = self.policy.decide(step, verdict, self.scores, self._saved(), rule)
        self._keep(action)
        return action.stop

    def _see(self, step: int, metrics: Mapping[str, Any]) -> str | None:
        if HELD_OUT_SUCCESS in metrics:
            self.scores[step] = metrics[HELD_OUT_SUCCESS]
        if step > 0:
            self.updates.see(metrics)
            self.monitor.update(step, metrics)
        return self.rules.update(metrics)

    def _saved(self) -> list[int]:
        """The steps that have a checkpoint: verl's own, and kept ones that verl has deleted since."""
        kept = {int(path.read_text()) for path in self.folder.kept.glob("*/step.txt")}
        return sorted(kept.union(checkpoints_in(self.checkpoints)))

    def _keep(self, action: Action) -> None:
        """Link what has to stay under another name, because verl deletes all but the newest checkpoints."""
        for name, step in (("best", action.best), ("before_warning", action.last_good)):
            source, target = checkpoint_of(self.checkpoints, step), self.folder.kept / name
            marker = target / "step.txt"
            if step not in action.keep or not source.exists() or (marker.exists() and marker.read_text() == str(step)):
                continue
            beside = self.folder.path / "kept.tmp"  # if the disk is full, the one kept before remains
            shutil.rmtree(beside, ignore_errors=True)
            try:
                shutil.copytree(source, beside, copy_function=_link)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(exist_ok=True)
            beside.rename(target)
            marker.write_text(str(step))


def _link(source: str, target: str) -> None:
    """Make a hard link, or a copy where that is impossible: between file systems, and on some that have no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
