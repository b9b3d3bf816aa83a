"""verl's own workers without Ray: an actor or a critic in this process, and rows for it."""

from __future__ import annotations

import copy
import gc
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_torch_device
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig
from verl.workers.utils.losses import value_loss

from ragen_verl.training.probes import Places, cross_rows
from ragen_verl.validation.composition import compose

__all__ = [
    "ACTOR",
    "BFLOAT16",
    "CRITIC",
    "FLOAT32",
    "Rows",
    "actor",
    "changed",
    "critic",
    "environment",
    "free_port",
    "freed",
    "precision",
    "recipe",
]

ACTOR, CRITIC = "actor_rollout_ref", "critic"
FLOAT32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
BFLOAT16 = {"param_dtype": "bf16", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def environment(rank: int = 0, ranks: int = 1, port: int | None = None) -> dict[str, str]:
    """The environment variables that verl's workers read, and that Ray would set."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",  # each process sees one device
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port or free_port()),
    }


def free_port() -> int:
    """A free TCP port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def recipe(name: str, device: str, model: str, settings: dict[str, Any] | None = None) -> DictConfig:
    """A recipe of the package on this device's hardware variant, with a model and other values of keys."""
    config = compose(name, [f"hardware={'cpu' if device == 'cpu' else 'gpu'}", f"actor_rollout_ref.model.path={model}"])
    return changed(config, settings or {})


def changed(config: DictConfig, settings: dict[str, Any]) -> DictConfig:
    """A copy of the configuration with these values; keys may be new."""
    config = copy.deepcopy(config)
    OmegaConf.set_struct(config, False)
    for key, value in settings.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


def precision(kind: dict[str, str]) -> dict[str, Any]:
    """Keys that set the arithmetic of actor and critic; master weights are in float32 anyway."""
    return {f"{ACTOR}.actor.fsdp_config.mixed_precision": kind, f"{CRITIC}.fsdp.mixed_precision": kind}


def actor(config: DictConfig) -> ActorRolloutRefWorker:
    """verl's worker in the role of an actor, ready to compute."""
    os.environ |= {} if "RANK" in os.environ else environment()
    worker = ActorRolloutRefWorker(copy.deepcopy(config[ACTOR]), role="actor")
    worker.init_model()
    return worker


def critic(config: DictConfig) -> TrainingWorker:
    """verl's worker as the trainer makes it for a critic (trainer/ppo/v1/trainer_base.py:264-325)."""
    os.environ |= {} if "RANK" in os.environ else environment()
    own: Any = omega_conf_to_dataclass(config[CRITIC])
    own.engine.infer_max_token_len_per_gpu = own.ppo_infer_max_token_len_per_gpu
    own.engine.max_token_len_per_gpu = own.ppo_infer_max_token_len_per_gpu
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="value_model",
            model_config=own.model,
            engine_config=own.engine,
            optimizer_config=own.optim,
            checkpoint_config=own.checkpoint,
            profiler_config=None,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(value_loss, config=own))
    return worker


def freed() -> None:
    """Free the memory of dropped workers."""
    gc.collect()
    get_torch_device().empty_cache()


@dataclass(frozen=True)
class Rows:
    """Random rows.

    Attributes:
        cells: (prompt ids, response ids) of each.
        advantages: one for each response token.
    """

    cells: list[tuple[list[int], list[int]]]
    advantages: list[torch.Tensor]

    @classmethod
    def draw(cls, sizes: Sequence[tuple[int, int]], vocabulary: int, seed: int = 0) -> Rows:
        """Ids and standard normal advantages.

        Args:
            sizes: (prompt, response) tokens of each row.
            vocabulary: ids are below it.
            seed: of what is drawn.
        """
        random = torch.Generator().manual_seed(seed)
        ids = [torch.randint(4, vocabulary, (p + r,), generator=random).tolist() for p, r in sizes]
        cells = [(one[:p], one[p:]) for one, (p, _) in zip(ids, sizes, strict=True)]
        return cls(cells, [torch.randn(r, generator=random) for _, r in sizes])

    @property
    def tokens(self) -> int:
        """The number of tokens of all rows together."""
        return sum(len(p) + len(r) for p, r in self.cells)

    def part(self, rows: Sequence[int]) -> Rows:
        """A selection of the rows."""
        return Rows([self.cells[row] for row in rows], [self.advantages[row] for row in rows])

    def data(self, **settings: Any) -> TensorDict:
        """The rows in the form of verl's engines; settings are verl's own for one call."""
        rows = cross_rows(self.cells, Places(tuple(range(len(self.cells))), 1))
        tu.assign_non_tensor(rows, temperature=1.0, **settings)
        return rows

    def log_probs(self, worker: ActorRolloutRefWorker, *, entropy: bool = False, **settings: Any) -> list[torch.Tensor]:
        """Log-probabilities of each row's response by an actor; `entropy` adds the cost that a run pays."""
        rows = self.data(calculate_entropy=entropy, compute_loss=False, **settings)
        return self._responses(worker.compute_log_prob(rows)["log_probs"])

    def values(self, worker: TrainingWorker, **settings: Any) -> list[torch.Tensor]:
        """Values of each row's response by a critic."""
        return self._responses(worker.infer_batch(self.data(compute_loss=False, **settings))["values"].cpu())

    def _responses(self, found: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(self.cells, found.unbind(), strict=True)
        return [one[-len(response) - 1 : -1].float() for (_, response), one in pairs]

    def update_data(
        self, old: Sequence[torch.Tensor], rows: int, *, entropy: bool = False, **settings: Any
    ) -> TensorDict:
        """The rows for an update: `old` log-probabilities, and one optimiser step over `rows` rows of all ranks."""
        data = self.data(
            global_batch_size=rows,
            mini_batch_size=rows,
            dataloader_kwargs={"shuffle": False},
            calculate_entropy=entropy,
            **settings,
        )
        data["old_log_probs"], data["advantages"] = _ragged(old), _ragged(self.advantages)
        return data

    def update(self, worker: ActorRolloutRefWorker, old: Sequence[torch.Tensor], **settings: Any) -> float:
        """One optimiser step of an actor; returns the gradient norm before clipping."""
        ranks = worker.actor.engine.get_data_parallel_size()
        output = worker.update_actor(self.update_data(old, len(self.cells) * ranks, **settings))
        norm = tu.get(output, "metrics")["grad_norm"]
        return float(norm[0] if isinstance(norm, list) else norm)

    def update_values(
        self, worker: TrainingWorker, old: Sequence[torch.Tensor], aim: Sequence[torch.Tensor], **settings: Any
    ) -> float:
        """One optimiser step of a critic with `old` values towards an aim; returns the gradient norm."""
        data = self.data(
            global_batch_size=len(self.cells),
            mini_batch_size=len(self.cells),
            dataloader_kwargs={"shuffle": False},
            **settings,
        )
        data["values"], data["returns"] = _ragged(old), _ragged(aim)
        norm = tu.get(worker.train_mini_batch(data), "metrics")["grad_norm"]
        return float(norm[0] if isinstance(norm, list) else norm)


def _ragged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
