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
from ragen_verl.validation.values import PATTERNS
from ragen_verl.validation.verl_source import dataclass_fields
from ragen_verl.verl_files import folder

__all__ = ["check_keys"]

# keys of this package inside verl's blocks, and blocks that belong to others
_OWN_KEYS = {"ragen", "hydra", "data.ragen"}
_INERT = "actor_rollout_ref.rollout.multi_turn."
_KINDS: dict = {"dict": (dict, "a block of keys"), "list": (list | str, "a list"), "bool": (bool, "true or false")}
_KINDS |= {"int": (int, "a whole number"), "float": (int | float, "a number"), "str": (str, "a text")}


def check_keys(config: DictConfig) -> None:
    """Refuse keys that verl's defaults, their dataclasses and this package lack, and values of another kind."""
    engine = str(config.get("model_engine", "dp"))
    known = [one.stem for one in (folder() / "trainer" / "config" / "model_engine").glob("*.yaml")]
    if engine not in known:
        raise RecipeError(f"model_engine is {engine!r} but verl has {', '.join(sorted(known))}.")
    theirs = _verl_defaults(engine)
    _compare_keys(OmegaConf.to_container(config, resolve=False), theirs, "")


@cache
def _verl_defaults(model_engine: str) -> dict:
    return OmegaConf.to_container(verl_defaults(model_engine), resolve=False)


def _compare_keys(mine: dict, defaults: dict, path: str) -> None:
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
        _compare_values(where, value, theirs, annotations.get(key, ""))
        # an empty block in verl's defaults takes any keys: engine arguments, model overrides, sampler arguments
        if isinstance(value, dict) and isinstance(theirs, dict) and theirs and not _free(where):
            _compare_keys(value, theirs, where)


def _compare_values(path: str, mine: Any, theirs: Any, annotation: str) -> None:
    """Refuse a value of another kind than verl's, null for a block, negative numbers, and keys that nothing reads."""
    if path.startswith(_INERT) and mine != theirs:
        raise RecipeError(f"{path} belongs to an agent loop of verl that is not used: set ragen.rollout instead.")
    if (isinstance(mine, str) and "${" in mine) or (mine is None and not (isinstance(theirs, dict) and theirs)):
        return
    annotation = annotation.partition("[")[0]
    kind = annotation if annotation in _KINDS else {"int": "float", "str": ""}.get(one := type(theirs).__name__, one)
    right, words = _KINDS.get(kind, (object, ""))
    if not isinstance(mine, right) or (isinstance(mine, bool) and kind in ("int", "float")):
        raise RecipeError(f"{path} is {mine!r} but has to be {words}.")
    number = isinstance(theirs, int | float) and kind != "bool"
    if number and not mine >= (least := min(0, theirs)) and not any(one.match(path) for one, *_ in PATTERNS):
        raise RecipeError(f"{path} is {mine!r} but has to be a number of {least} or more.")


def _free(path: str) -> bool:
    """Whether verl passes a block unchanged to something else, which has its own arguments."""
    return path in ("ray_kwargs.ray_init", "ray_kwargs.ray_init.runtime_env") or path.endswith(
        ("override_transformer_config", "override_config", "engine_kwargs", "fused_kernel_options")
    )
