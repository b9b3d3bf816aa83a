"""Check a recipe and its `sft` block before supervised training, and make verl's configuration from them.

verl's trainer is `verl.trainer.sft_trainer`. Its blocks `model`, `engine` and `optim` have the same classes as the
recipe's `actor_rollout_ref.model`, `.actor.fsdp_config` and `.actor.optim`, so these are copied unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from ragen_lab.sft.config import Sft
from ragen_lab.sft.demonstrations import check_apart
from ragen_lab.sft.parquet import MESSAGES, check_dialogue, dialogue, read
from ragen_lab.sft.rows import answer_ids, encode

from ragen_verl.config import RagenConfig, unresolved
from ragen_verl.errors import RecipeError
from ragen_verl.validation.composition import compose, sft_defaults
from ragen_verl.validation.machine import check_machine
from ragen_verl.validation.model import tokenizer_of
from ragen_verl.validation.recipe import check

__all__ = ["Supervised", "prepare", "recipe_of", "verl_config"]

_BLOCK = "sft"  # also the name of its file in recipes/
_FINAL_LR = 0.1
"""The last learning rate, as a share of the highest."""


@dataclass(frozen=True)
class Supervised:
    """A supervised run that may start.

    Attributes:
        config: the configuration of verl's trainer.
        chats: the number of demonstrations.
        steps: the number of updates.
    """

    config: DictConfig
    chats: int
    steps: int


def recipe_of(recipe: str, overrides: Sequence[str], *, machine: bool = True) -> tuple[DictConfig, RagenConfig, Sft]:
    """Compose and check a recipe and its `sft` block; the recipe's interpolations are resolved.

    Args:
        recipe: a name in the package, or a YAML file.
        overrides: Hydra overrides of both.
        machine: whether to check as well that this machine has what the recipe needs.

    Raises:
        RecipeError: it cannot work.
    """
    own = [one for one in overrides if one.lstrip("+~").partition("=")[0].partition(".")[0] == _BLOCK]
    block = compose(_BLOCK, own)[_BLOCK]
    config = compose(recipe, [one for one in overrides if one not in own])
    ragen = check(config, template=False)
    try:
        if machine:
            check_machine(config)
        OmegaConf.resolve(config)
        return config, ragen, Sft.of(OmegaConf.to_container(block, resolve=True))
    except OmegaConfBaseException as error:
        raise RecipeError(unresolved(error)) from error


def prepare(recipe: str, overrides: Sequence[str], data: Path, out: Path) -> Supervised:
    """Check everything that supervised training needs; nothing is written.

    Args:
        recipe: a name in the package, or a YAML file.
        overrides: Hydra overrides of the recipe and of the `sft` block.
        data: a file that `ragen-verl collect` wrote for this recipe.
        out: the run's folder.

    Raises:
        RecipeError: it cannot work; one sentence that says what to change.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RecipeError(f"{out} is there already: name another --out, or remove it.")
    chats, note = read(data)
    config, ragen, block = recipe_of(recipe, overrides)
    check_dialogue(data, note["dialogue"], dialogue(ragen))
    check_apart(ragen, range(*note["seeds"]), config.trainer.total_training_steps)
    if config.actor_rollout_ref.actor.strategy not in ("fsdp", "fsdp2"):
        raise RecipeError("Supervised training runs on FSDP and the recipe's actor does not: add hardware=gpu.")
    if config.actor_rollout_ref.model.lora_rank > 0:
        raise RecipeError(
            f"actor_rollout_ref.model.lora_rank is {config.actor_rollout_ref.model.lora_rank} but supervised training "
            "makes a whole model: set it to 0."
        )
    if config.trainer.nnodes != 1:
        raise RecipeError(
            f"trainer.nnodes is {config.trainer.nnodes} but supervised training runs on one: set it to 1."
        )
    ranks = config.trainer.n_gpus_per_node
    if block.batch_size % ranks:
        raise RecipeError(f"sft.batch_size {block.batch_size} cannot be shared by {ranks} devices: change it.")
    if block.batch_size > len(chats):
        raise RecipeError(f"{data} has {len(chats)} chats and sft.batch_size is {block.batch_size}: lower it.")
    _check_lengths(config, ragen, data, chats)
    steps = len(chats) // block.batch_size * block.epochs
    return Supervised(verl_config(config, block, data, out), len(chats), steps)


def _check_lengths(config: DictConfig, ragen: RagenConfig, data: Path, chats: list[dict[str, Any]]) -> None:
    """Refuse demonstrations that are too long for the recipe's rows or for one of its responses."""
    chat = ragen.rollout.chat_protocol().chat(tokenizer_of(config), config.data.apply_chat_template_kwargs)
    whole = config.data.max_prompt_length + config.data.max_response_length
    for one in chats:
        messages = one[MESSAGES]
        if (found := len(encode(chat, messages)[0])) > whole:
            raise RecipeError(
                f"A chat of {data} (seed {one['seed']}) has {found} tokens with this model, and data.max_prompt_length "
                f"and data.max_response_length add up to {whole}: raise them."
            )
        replies = (answer_ids(chat, said["content"]) for said in messages if said["role"] == "assistant")
        if (longest := max(map(len, replies))) > ragen.rollout.response_length:
            raise RecipeError(
                f"An answer in {data} (seed {one['seed']}) has {longest} tokens with this model, and "
                f"ragen.rollout.response_length is {ragen.rollout.response_length}: raise it, or make shorter answers "
                "with --thoughts none."
            )


def verl_config(config: DictConfig, block: Sft, data: Path, out: Path) -> DictConfig:
    """The configuration of verl's trainer.

    Args:
        config: the recipe, resolved.
        block: its `sft` block.
        data: the demonstrations.
        out: the run's folder.
    """
    actor, out = config.actor_rollout_ref.actor, out.absolute()
    ranks = config.trainer.n_gpus_per_node
    micro = min(actor.ppo_micro_batch_size_per_gpu or 1, block.batch_size // ranks)
    micro = next(rows for rows in range(micro, 0, -1) if block.batch_size // ranks % rows == 0)
    optim = OmegaConf.to_container(actor.optim) | {
        "lr": block.peak(actor.optim.lr),
        "lr_scheduler_type": "cosine",
        "lr_warmup_steps": -1,
        "lr_warmup_steps_ratio": block.warmup,
        "min_lr_ratio": _FINAL_LR,
    }
    made = sft_defaults()
    with open_dict(made):
        made.model = config.actor_rollout_ref.model
        made.engine = actor.fsdp_config
        made.optim = optim
        made.data.update(
            train_files=[str(data.absolute())],
            train_batch_size=block.batch_size,
            micro_batch_size_per_gpu=micro,
            use_dynamic_bsz=False,
            max_length=config.data.max_prompt_length + config.data.max_response_length,
            custom_cls={"path": "pkg://ragen_lab.sft.dataset", "name": "DemonstrationDataset"},
            apply_chat_template_kwargs=config.data.apply_chat_template_kwargs,
            num_workers=0,
            ragen_rollout=config.ragen.rollout,
        )
        made.checkpoint.save_contents = ["model"]
        made.trainer.update(
            default_local_dir=str(out / "checkpoints"),
            project_name=config.trainer.project_name,
            experiment_name=out.name,
            logger=["file"],
            total_epochs=block.epochs,
            resume_mode="disable",
            device=config.trainer.device,
            n_gpus_per_node=ranks,
        )
    OmegaConf.resolve(made)
    return made
