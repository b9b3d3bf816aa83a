"""A verl dataset of environments and seeds: it needs no files, and provides an endless stream of initial states.

verl builds it from `data.custom_cls` with the paths `env://train` and `env://val` (trainer/ppo/utils.py:110); the
environments come from the recipe's `ragen:` block, which the recipes pass on as `data.ragen`.
"""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig
from torch.utils.data import Dataset

from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError
from ragen_verl.names import AGENT_LOOP

__all__ = ["EnvDataset"]

_ENDLESS = 1_000_000
"""Steps of training data; a run's length is `trainer.total_training_steps`."""


class EnvDataset(Dataset):
    """One row per group of trajectories: an environment, its arguments and the group's seed.

    Row `i` of training belongs to step `i // P + 1` and has the seed `train.seed + i` (RAGEN's `seed.train`); that step
    and the position in it determine the environment and its arguments. So the number of groups drawn so far, which
    verl's data loader saves and restores, determines the next group. Where dynamic sampling draws more than P groups in
    a step, the rows, and with them a schedule, are ahead of the training steps by as many.

    Validation is the fixed seeds `val.seed + i`, once, and after them `generalisation.seed + i` where the recipe has
    that split.

    Args:
        data_files: `env://train` or `env://val`, or a list with one of them.
        tokenizer: unused; the rollout renders the prompts.
        processor: unused.
        config: verl's `data` block, with the recipe's `ragen` block under `ragen`.
        max_samples: at most this many rows; -1 for all.

    Raises:
        RecipeError: when the path is neither of the two or `data.ragen` is missing.
    """

    def __init__(
        self,
        data_files: str | list[str],
        tokenizer: Any,
        config: DictConfig,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        path = data_files if isinstance(data_files, str) else data_files[0]
        self.split = str(path).removeprefix("env://")
        if self.split not in ("train", "val"):
            raise RecipeError(
                f"data files are {path!r}: set data.train_files=env://train and data.val_files=env://val."
            )
        if config.get("ragen") is None:
            raise RecipeError("data.ragen is missing: set data.ragen=${ragen}, as recipes/ragen.yaml does.")
        ragen = RagenConfig.from_omegaconf(config.ragen)
        names = ("train",) if self.split == "train" else ("val", "generalisation")
        self.blocks = {name: ragen.splits[name] for name in names if name in ragen.splits}
        self.length = sum(one.groups for one in self.blocks.values()) * (_ENDLESS if self.split == "train" else 1)
        if max_samples > 0:
            self.length = min(self.length, max_samples)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, place = self.split, index
        if name == "val" and index >= self.blocks["val"].groups:
            name, place = "generalisation", index - self.blocks["val"].groups
        split = self.blocks[name]
        step, position = place // split.groups + 1, place % split.groups
        env, seed = split.env_of(position, step), split.seed + place
        return {
            # verl counts rows by this field and stacks at least one tensor; the rollout makes the real prompt
            "raw_prompt": [{"role": "user", "content": f"{env.tag} {seed}"}],
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
            "index": index,
            "data_source": f"{name}/{env.tag}" if name == "generalisation" else env.tag,
            "agent_name": AGENT_LOOP,
            "extra_info": {
                "split": name,
                "name": env.tag,
                "env_id": env.id,
                "kwargs": env.kwargs_at(step),
                "seed": seed,
            },
        }
