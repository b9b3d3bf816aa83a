"""Additions to OmegaConf and Hydra that recipes need: resolvers (`${ragen_groups:${ragen.train}}`) and open blocks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from packaging.version import Version

from ragen_verl.errors import RecipeError

__all__ = ["find_verl", "open_options", "register_resolvers"]

_OPEN = ("rollout", "rewards", "filter", "advantage", "diagnostics.indicators", "diagnostics.causes")


def _groups_of(split: DictConfig | ListConfig | Mapping | list) -> int:
    """P of a recipe's split, or of its list of environments: the resolver `${ragen_groups:${ragen.train}}`.

    With it `data.train_batch_size` follows from the environments and need not be given a second time.
    """
    envs, total = split, 0
    if isinstance(split, Mapping | DictConfig):
        if split.get("groups") is not None:
            return split["groups"]
        envs = split["envs"]
    for i, env in enumerate(envs):
        count = env.get("groups") if isinstance(env, Mapping | DictConfig) else None
        if not isinstance(count, int) or isinstance(count, bool):
            raise RecipeError(f"ragen.*.envs[{i}].groups is {count!r} but has to be a whole number.")
        total += count
    return total


def register_resolvers() -> None:
    """Register the OmegaConf resolvers that recipes use; the plugin and the checks call it, and it may be repeated."""
    OmegaConf.register_new_resolver("ragen_groups", _groups_of, replace=True)
    OmegaConf.register_new_resolver("ragen_sum", lambda *numbers: sum(numbers), replace=True)
    OmegaConf.register_new_resolver("ragen_nano", _nano_model, replace=True)
    OmegaConf.register_new_resolver("ragen_small", _small_model, replace=True)
    OmegaConf.register_new_resolver("ragen_cpu", _cpu_size, replace=True)
    OmegaConf.register_new_resolver("ragen_attention", _attention, replace=True)
    OmegaConf.register_new_resolver("ragen_push", _push, replace=True)


def open_options(config_store: ModuleType) -> None:
    """Let the command line set options of plugins without a `+`, which Hydra asks for before keys that no file has.

    recipes/ragen.yaml begins with this piece, whose blocks are marked as open; Hydra keeps the mark when it merges. The
    plugin calls it once Hydra's module `hydra.core.config_store` is imported, so that verl's own main knows the piece.
    """
    blocks = OmegaConf.create({"ragen": {}})
    for name in _OPEN:
        OmegaConf.update(blocks, f"ragen.{name}", {})
        OmegaConf.set_struct(OmegaConf.select(blocks, f"ragen.{name}"), False)
    config_store.ConfigStore.instance().store(group="ragen", name="open_options", node=blocks, package="_global_")


def find_verl(plugins: ModuleType) -> None:
    """Let Hydra find verl's files for every recipe that builds on those of this package.

    The plugin calls it once Hydra's module `hydra.core.plugins` is imported. Otherwise every recipe would name verl's
    folder in `hydra.searchpath`, which Hydra reads from the primary file alone, and none could build on another.
    """
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class VerlSearchPath(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            if any(one.path == "pkg://ragen_verl.recipes" for one in search_path.get_path()):
                search_path.append("ragen-verl", "pkg://verl.trainer.config")

    plugins.Plugins.instance().register(VerlSearchPath)


def _nano_model(thoughts: str | None = None, number: int | None = None) -> str:
    """A nano model's folder: `${ragen_nano:}` and `${ragen_nano:tools}` (shipped), and `${ragen_nano:thoughts,1}`."""
    from ragen_verl.cpu.nano_model import nano_model_path

    if thoughts in (None, "tools"):
        return str(nano_model_path(thoughts or ""))
    from ragen_verl.cpu.nano_model.thinkers import nano_path

    return str(nano_path(thoughts, number))


def _small_model() -> str:
    """The folder of the pretrained model of recipes/small: the resolver `${ragen_small:}`."""
    from ragen_verl.cpu.small_model import small_path

    return str(small_path())


def _cpu_size(what: str, model: str, *numbers: int) -> int:
    """A size that follows from the model: `${ragen_cpu:bucket,<model>}` and others of `ragen_verl.cpu.sizes`."""
    from ragen_verl.cpu.sizes import SIZES

    size: Any = SIZES[what]
    return size(str(model), *numbers)


def _attention() -> str:
    """The fastest attention for packed rows that is installed: the resolver `${ragen_attention:}`.

    flash_attention_2 where flash-attn is, else torch's own from 2.11 on (`ragen_verl.patches.varlen`), else sdpa.
    """
    if find_spec("flash_attn"):
        return "flash_attention_2"
    return "varlen" if Version(version("torch")) >= Version("2.11") else "sdpa"


def _push(device: str) -> str:
    """verl's checkpoint engine for `mode=disaggregated`; NCCL needs cupy: the resolver `${ragen_push:cuda}`."""
    return "nccl" if device == "cuda" and find_spec("cupy") else "gloo"
