"""The files and metrics of a run: its folder's files, the verdict, metrics of evaluations, the cause if it fails."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf, open_dict

from ragen_verl.config import RagenConfig
from ragen_verl.names import ACTOR, ENTROPY, FIRST_ERROR, GENERALISATION, HELD_OUT, TRAIN
from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.overlap import InitialStates
from ragen_verl.rollout.trajectory import RECORD
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.plots import learning_curve
from ragen_verl.training.batch import TrajectoryBatch, fill_tokens
from ragen_verl.training.data_plane import Batch
from ragen_verl.training.monitoring import TrainingMonitor
from ragen_verl.training.trackers import samples, write_inside
from ragen_verl.training.watchdog import Watchdog

__all__ = ["Recorder", "trajectories_of"]

_SPLITS = {"val": HELD_OUT, "generalisation": GENERALISATION}

_TEXT = 300
"""Characters of an error that are shown with a step."""


class Recorder:
    """Writes the folder of a run while it trains; `config` is verl's, with the recipe's `ragen` block."""

    def __init__(self, config: DictConfig, ragen: RagenConfig) -> None:
        self.config, self.ragen = config, ragen
        self.folder = RunFolder(ragen.run.dir)
        kept = ragen.kept_groups / ragen.train.groups
        self.monitor = TrainingMonitor(ragen, self.folder, config.trainer.default_local_dir, kept)
        self.watchdog = Watchdog(ragen.run.stall_minutes, self.folder.error)
        self.met = InitialStates()
        self._records: list[dict[str, Any]] = []  # of the current step

    @contextmanager
    def start(self) -> Iterator[None]:
        """A context for the start of models and engine: nodes are checked first, and the cause of a failure is kept.

        Raises:
            RecipeError: a node of the cluster differs.
        """
        with self.folder.keeps_cause():
            if len(ray.nodes()) > 1:
                from ragen_verl.training.nodes import check_nodes

                check_nodes(self.folder.path)
            self.watchdog.expect("the start of models and engine")
            yield

    @contextmanager
    def run(self, step: int, workers: Sequence[Any]) -> Iterator[None]:
        """A context for verl's training loop: before it the folder is opened, after it the summary is written.

        With `trainer.val_only` the newest checkpoint, or the model if there is none, is evaluated, and all other files
        of the folder stay as they are. `step` is that of the checkpoint that was loaded, 0 without one; `workers` are
        Ray actors that must not die.
        """
        trainer, evaluates = self.config.trainer, self.config.trainer.val_only
        write_inside(self.folder.path, step, trainer.logger)
        with self.folder.keeps_cause():
            if not evaluates:
                if step:
                    from ragen_verl.runs.resume import note_changes

                    note_changes(self.folder, OmegaConf.to_container(self.config, resolve=True), step)
                self.folder.begin(self.config, step)
                self.monitor.resume()
                self.met.read(self.folder.trajectories("train"), step)
                self.watchdog.look_after(workers)
            if evaluates or step:  # a resumed run made the evaluation before training before
                with open_dict(self.config):
                    trainer.val_before_train = evaluates
            yield
            if not evaluates:
                self.watchdog.rest()
                self.folder.finish(recipe=self.folder.recipe or trainer.experiment_name, seed=self.ragen.train.seed)
                learning_curve([self.folder], self.folder.curve, trainer.experiment_name)
                if self.monitor.rules.reason == "failed_episodes":
                    raise RuntimeError(f"ragen.stop.failed_episodes: {self.folder.rows()[-1].get(FIRST_ERROR)}")

    def begin(self, phase: str) -> None:
        """Write what the run is doing now; it is shown until the first step has ended."""
        self.watchdog.expect(phase)
        self.folder.write_phase(phase)

    def played(self, step: int, played: TrajectoryBatch, kept: Collection[int]) -> dict[str, float]:
        """Write all trajectories of a step, and whether the update uses them; the metrics `train/...`.

        Raises:
            RuntimeError: all of them failed.
        """
        stays = set(kept)
        self._records = [{**record, "kept": i in stays} for i, record in enumerate(played.records)]
        self.folder.write_trajectories("train", step, self._records)
        self.met.add(self._records)
        if all(record["excluded"] for record in self._records):
            error = self._records[0]["error"]
            raise RuntimeError(f"every trajectory of step {step} failed, the first with: {error}")
        return summarize(self._records, TRAIN, groups=played.groups)

    def weighed(self, step: int, batch: Batch, trained: TrajectoryBatch) -> None:
        """Where the recipe asks for tokens, write the step's trajectories again, with the advantages of the update."""
        if self.ragen.run.tokens:
            fill_tokens(batch, trained)
            self.folder.write_trajectories("train", step, self._records)

    def step(self, step: int, metrics: dict[str, Any]) -> str | None:
        """Add the verdict to a step's metrics and write them.

        Returns:
            The reason to stop after this step, which is also printed; None to continue.

        Raises:
            RuntimeError: the update was not finite too often.
        """
        self.watchdog.expect(f"the end of step {step}: logging, a checkpoint or an evaluation")
        if ENTROPY not in metrics and f"{ACTOR}/entropy_loss" in metrics:
            metrics[ENTROPY] = metrics[f"{ACTOR}/entropy_loss"]  # with the engine's log-probs no other pass has it
        if errors := [record["error"] for record in self._records if record["excluded"] and record["error"]]:
            metrics[FIRST_ERROR] = " ".join(errors[0].split())[:_TEXT]
        reason = self.monitor.step(step, metrics)
        self.folder.log(step, metrics)
        metrics.pop(FIRST_ERROR, None)  # trackers take numbers
        self.monitor.updates.check(step)
        if reason:
            print(reason)
        return reason

    def evaluation(self, step: int, records: Sequence[dict[str, Any]], tables: Any) -> dict[str, float]:
        """Write the trajectories of an evaluation; its metrics `val-env/...` and `generalisation/...`.

        verl's logger of trajectories (`tables`) gets as many of them as `trainer.log_val_generations` says.
        """
        if most := self.config.trainer.log_val_generations:
            tables.log(self.config.trainer.logger, samples(records, most), step)
        metrics: dict[str, float] = {}
        for name, prefix in _SPLITS.items():
            if split := self.ragen.splits.get(name):
                mine = [record for record in records if record["seed"] in split.seeds()]  # the splits share no seed
                self.folder.write_trajectories(name, step, mine)
                metrics |= summarize(mine, prefix) | self.met.metrics(mine, prefix)
        return metrics

    def evaluated(self, step: int, metrics: dict[str, Any], *, training: bool) -> None:
        """Write the metrics of an evaluation, unless they belong to the line of a step (`training`)."""
        if self.config.trainer.val_only:
            self.folder.write_evaluation(step, metrics)
        elif not training:
            self.folder.log(step, metrics)


def trajectories_of(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the records of an evaluation out of the data that verl passes on about it (`reward_extra_infos_dict`).

    verl passes the last row of each trajectory, with the reward of that row. It is replaced by the return of the whole
    trajectory.
    """
    found = [json.loads(text) if text else None for text in rows.pop(RECORD)]
    rewards = rows["reward"]
    rewards[:] = [record["return"] if record else one for record, one in zip(found, rewards, strict=True)]
    return [record for record in found if record]
