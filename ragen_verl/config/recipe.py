"""The whole `ragen:` block.

`RagenConfig.from_omegaconf` refuses an unknown key, a value of the wrong type and a value out of range. Checks that
need verl's own keys as well are in `ragen_verl.validation.recipe`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragen_verl.config.advantage import Advantage
from ragen_verl.config.diagnostics import Diagnostics, Stop
from ragen_verl.config.envs import Split, check_disjoint
from ragen_verl.config.filter import Filter
from ragen_verl.config.rewards import RewardBlocks
from ragen_verl.config.rollout import Rollout
from ragen_verl.config.schema import FILLED, at_least, parse, unresolved
from ragen_verl.errors import RecipeError
from ragen_verl.extensions import use_files
from ragen_verl.resolvers import register_resolvers

__all__ = ["RagenConfig", "Run"]


@dataclass(frozen=True)
class Run:
    """The run's folder, for resolved config, versions, metrics, trajectories, checkpoints and summary.

    Attributes:
        dir: the folder.
        tokens: whether trajectories are saved with their token ids.
        stall_minutes: a part of a step that takes longer ends the run (`ragen_verl.training.watchdog`).
    """

    dir: str = field(metadata=FILLED)
    tokens: bool = False
    stall_minutes: float = field(default=60.0, metadata=at_least(0))


@dataclass(frozen=True)
class RagenConfig:
    """The whole `ragen:` block."""

    train: Split
    val: Split
    run: Run
    generalisation: Split | None = None
    rollout: Rollout = field(default_factory=Rollout)
    rewards: RewardBlocks = field(default_factory=RewardBlocks)
    filter: Filter = field(default_factory=Filter)
    advantage: Advantage = field(default_factory=Advantage)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    stop: Stop = field(default_factory=Stop)
    share_prefixes: bool = True
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            split.check(f"ragen.{name}", held_out=name != "train")

    @property
    def splits(self) -> dict[str, Split]:
        """The splits that the recipe has, by name: train, val and perhaps generalisation."""
        named = {"train": self.train, "val": self.val, "generalisation": self.generalisation}
        return {name: split for name, split in named.items() if split is not None}

    @classmethod
    def from_omegaconf(cls, config: DictConfig | Mapping[str, Any]) -> RagenConfig:
        """Read a whole verl config that has a `ragen` block, or the block alone; its plugin files are imported first.

        Raises:
            RecipeError: a key is unknown or missing, its value is not what the key takes, or a plugin file cannot be
                imported.
        """
        register_resolvers()
        if not isinstance(config, DictConfig):
            config = OmegaConf.create(dict(config))
        block = config.get("ragen", config)
        try:
            plain = OmegaConf.to_container(block, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise RecipeError(unresolved(error)) from error
        if isinstance(plain, dict) and isinstance(files := plain.get("plugins"), list):
            plain["plugins"] = use_files([str(one) for one in files])  # before the names that they register are used
        return parse(cls, plain, "ragen")

    def check_seeds(self, steps: int) -> None:
        """Refuse splits that share initial states.

        Raises:
            RecipeError: two of the following have a seed in common: `steps` training steps with all groups that a
                dynamic sampling may add, validation, and generalisation.
        """
        check_disjoint(self.seeds(steps))

    def seeds(self, steps: int) -> dict[str, tuple[range, str]]:
        """Name of each split -> its seeds in a run of this many steps, and a remark on their origin."""
        groups = self.train.groups + self.filter.extra_groups(self.train.groups)
        train = range(self.train.seed, self.train.seed + steps * groups)
        held_out = {name: (split.seeds(), "") for name, split in self.splits.items() if name != "train"}
        return {"train": (train, f" ({steps} steps of {groups} groups)"), **held_out}

    @property
    def kept_groups(self) -> int:
        """Groups that the update of one step sees if all are informative; a lower bound with top_p and min_p."""
        return self.filter.least_kept(self.train.groups)

    def updates(self, mini_batch: int, kept: float) -> int:
        """Optimiser updates per epoch: as in a step that keeps everything, or in proportion, rounded, one at least.

        Args:
            mini_batch: groups of an update, verl's `ppo_mini_batch_size`.
            kept: groups that the update of the step sees; a fraction where trajectories are dropped one by one.
        """
        if self.filter.updates == "constant":
            return self.train.groups // mini_batch
        return max(1, math.floor(kept / mini_batch + 0.5))
