"""Compare a recipe's keys with verl's own defaults: a key that neither verl nor this package knows is refused.

verl itself refuses unknown keys in some blocks and ignores them in others (`data`, `trainer`, `algorithm`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ragen_verl.config import nearest
from ragen_verl.errors import RecipeError
from ragen_verl.validation.composition import verl_defaults
from ragen_verl.validation.verl_source import dataclass_fields

__all__ = ["check_keys"]

# keys of this package inside verl's blocks, and blocks that belong to others
_OWN_KEYS = {"ragen", "hydra", "data.ragen"}
_INERT = "actor_rollout_ref.rollout.multi_turn."
_ANY_SIGN = ("entropy_coeff", "clip_cov_lb")
_KINDS = {"int": (int, "a whole number"), "float": (int | float, "a number"), "list": (list, "a list")}


def check_keys(config: DictConfig, values: bool = False) -> None:
    """Refuse keys that neither verl's defaults, nor their dataclasses, nor this package have; or their `values`."""
    theirs = _verl_defaults(str(config.get("model_engine", "dp")))
    _compare_keys(OmegaConf.to_container(config, resolve=False), theirs, "", values)


@cache
def _verl_defaults(model_engine: str) -> dict:
    return OmegaConf.to_container(verl_defaults(model_engine), resolve=False)


def _compare_keys(mine: dict, defaults: dict, path: str, values: bool) -> None:
    annotations = dataclass_fields(defaults["_target_"]) if "_target_" in defaults else {}
    known = {*defaults, *annotations}
    for key, value in mine.items():
        where = f"{path}.{key}" if path else str(key)
        if where in _OWN_KEYS:
            continue
        if key not in known:
            block = f"the block {path}" if path else "the recipe"
            raise RecipeError(f"{where} is not a key that verl or ragen_verl knows in {block}: {nearest(key, known)}")
        theirs = defaults.get(key)
        _compare_kinds(where, value, theirs)
        if values:
            _compare_values(where, value, theirs, annotations.get(key, ""))
        # an empty block in verl's defaults takes any keys: engine arguments, model overrides, sampler arguments
        if isinstance(value, dict) and isinstance(theirs, dict) and theirs and not _free(where):
            _compare_keys(value, theirs, where, values)


def _compare_kinds(path: str, mine: Any, theirs: Any) -> None:
    """Refuse a value whose kind differs from verl's default: a number of either kind, or true or false, but null."""
    if mine is None or (isinstance(mine, str) and "${" in mine):
        return
    if isinstance(theirs, bool):
        if not isinstance(mine, bool):
            raise RecipeError(f"{path} is {mine!r} but has to be true or false.")
    elif isinstance(theirs, int | float) and (isinstance(mine, bool) or not isinstance(mine, int | float)):
        raise RecipeError(f"{path} is {mine!r} but has to be a number, like verl's default {theirs}.")


def _compare_values(path: str, mine: Any, theirs: Any, annotation: str) -> None:
    """Refuse a number below 0, a value of another type than the field's, and keys that nothing reads."""
    if path.startswith(_INERT) and mine != theirs:
        raise RecipeError(f"{path} belongs to an agent loop of verl that is not used: set ragen.rollout instead.")
    if mine is None or isinstance(mine, bool) or (isinstance(mine, str) and "${" in mine):
        return
    kind, words = _KINDS.get(annotation, (object, ""))
    if not isinstance(mine, kind) and (theirs is None or isinstance(theirs, kind)):
        raise RecipeError(f"{path} is {mine!r} but has to be {words}.")
    if isinstance(theirs, int | float) and not mine >= (least := min(0, theirs)) and not path.endswith(_ANY_SIGN):
        raise RecipeError(f"{path} is {mine!r} but has to be a number of {least} or more.")


def _free(path: str) -> bool:
    """Whether verl passes a block unchanged to something else, which has its own arguments."""
    return path in ("ray_kwargs.ray_init", "ray_kwargs.ray_init.runtime_env") or path.endswith(
        ("override_transformer_config", "override_config", "engine_kwargs", "fused_kernel_options")
    )
