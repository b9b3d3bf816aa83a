"""Check the model of a recipe: it exists, and its chat template can continue a conversation token by token."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors
from omegaconf import DictConfig, OmegaConf

from ragen_verl.config import RagenConfig
from ragen_verl.cpu.small_model import small_path
from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import mapping

__all__ = ["check_folders", "check_model", "tokenizer_of"]

_FOLDERS = ("path", "tokenizer_path", "hf_config_path", "lora_adapter_path")


def check_folders(config: DictConfig) -> None:
    """Refuse folders of models that are not there or lack a part; nothing of them is imported or resolved."""
    blocks = ("actor_rollout_ref", "critic") if OmegaConf.select(config, "critic.enable") else ("actor_rollout_ref",)
    for key in (f"{block}.model.{name}" for block in blocks for name in _FOLDERS):
        path = OmegaConf.select(config, key)
        folder = Path(str(path)).expanduser()
        if folder.is_dir() and key.endswith(".path") and (lacks := _lacks(folder)):
            raise RecipeError(f"{key} is {path}, which {lacks}: set it to the folder of a whole model.")
        known = folder.is_dir() or folder == small_path()  # which `check_machine` fetches
        if not known and (not _hub_name(path) if path else key.endswith(".path")):
            raise RecipeError(f"{key} is {path}, which is no folder on this machine: set it to one, or a hub's name.")
    library = OmegaConf.select(config, "actor_rollout_ref.model.external_lib")
    if isinstance(library, str) and not find_spec(library.partition(".")[0]):
        raise RecipeError(f"actor_rollout_ref.model.external_lib is {library}, which is not installed: leave it out.")


def _lacks(folder: Path) -> str | None:
    """What the folder of a model lacks, in a few words."""
    if not (mapping(folder / "config.json") or {}).get("model_type"):
        return "has no config.json with a model_type"
    shards = (mapping(folder / "model.safetensors.index.json") or {}).get("weight_map", {})
    for file in sorted({*folder.glob("model*.safetensors"), *(folder / name for name in shards.values())}):
        try:
            safetensors.safe_open(file, "numpy")
        except (OSError, safetensors.SafetensorError) as error:
            return f"has weights that cannot be read ({file.name}: {error})"
    return None if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")) else "has no weights"


def check_model(config: DictConfig, ragen: RagenConfig, template: bool = True) -> None:
    """Refuse passes that verl cannot do, and a chat template that cannot be continued token by token.

    Args:
        config: verl's whole configuration.
        ragen: its typed `ragen` block.
        template: whether to check the template, which imports transformers and torch; not if it had to be downloaded.
    """
    _check_passes(config)
    model = config.actor_rollout_ref.model
    path = str(model.tokenizer_path or model.path)
    fetched = Path(path) != small_path() or Path(path).is_dir()
    tokenizer = tokenizer_of(config, local=True) if template and fetched else None
    try:
        if tokenizer is not None:
            ragen.rollout.chat_protocol().chat(tokenizer, config.data.apply_chat_template_kwargs)
    except RecipeError as error:
        raise RecipeError(f"The model {path} cannot be used: {error}") from error


def _check_passes(config: DictConfig) -> None:
    """Refuse attention and adapters with which verl's FSDP engines fail at their start or compute wrong values."""
    blocks = {"actor_rollout_ref": config.actor_rollout_ref.actor}
    if config.critic.enable:
        blocks["critic"] = config.critic
        rank = config.critic.model.get("lora_rank", 0)
        if rank > 0:
            raise RecipeError(
                f"critic.model.lora_rank is {rank} but verl gives a value model the adapter of a causal one, which "
                "fails at its start: set it to 0, the critic is trained in full."
            )
    for path, block in blocks.items():
        if block.strategy not in ("fsdp", "fsdp2"):
            continue
        key = f"{path}.model.override_config.attn_implementation"
        attention = OmegaConf.select(config, key, default="flash_attention_2")
        flash = attention.startswith("flash_attention")
        if flash and not any(find_spec(package) for package in ("flash_attn", "kernels")):
            raise RecipeError(
                f"{key} is {attention} but neither flash-attn nor kernels is installed: set it to sdpa, or install one."
            )
        engine = block.fsdp_config if "fsdp_config" in block else block.fsdp
        shared = max(block.get("ulysses_sequence_parallel_size", 1), engine.get("ulysses_sequence_parallel_size", 1))
        if shared > 1 and not flash:
            raise RecipeError(
                f"ulysses_sequence_parallel_size of {path} is {shared} but verl splits sequences in flash-attention "
                f"alone, and {key} is {attention}: log-probabilities would be wrong; set the first to 1."
            )


def _hub_name(path: str) -> bool:
    """Whether a model path can only be a name on a hub, or on a remote file system."""
    if "://" in path:
        return True
    return not path.startswith(("/", ".", "~")) and path.count("/") <= 1 and not Path(path).exists()


def tokenizer_of(config: DictConfig, *, local: bool = False) -> Any | None:
    """The tokenizer of a recipe's model, with the chat template that the recipe sets.

    Args:
        config: verl's whole configuration.
        local: whether to download nothing; the result is then None if the tokenizer is not on this machine.

    Raises:
        RecipeError: the folder holds no tokenizer, or the hub gives none.
    """
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    path = str(model.tokenizer_path or model.path)
    folder = Path(path).expanduser()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder) if folder.is_dir() else path,
            local_files_only=local,
            trust_remote_code=bool(model.trust_remote_code),
        )
    except (OSError, ValueError) as error:  # an empty folder is a ValueError
        if folder.is_dir():
            reason = str(error).splitlines()[0].rstrip(".:")
            raise RecipeError(f"The folder {folder} holds no tokenizer ({reason}).") from error
        if local:
            return None
        raise RecipeError(f"The tokenizer of {path} cannot be had: {str(error).splitlines()[0]}") from error
    if model.custom_chat_template:
        tokenizer.chat_template = model.custom_chat_template
    return tokenizer
