"""Finite environments in a recipe: a held-out split plays each task once, and no task is in two splits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import gcd

from ragen_verl.config.envs import Split
from ragen_verl.env.core import Env
from ragen_verl.errors import RecipeError

__all__ = ["check_tasks", "near_copies"]

_log = logging.getLogger(__name__)


def check_tasks(splits: Mapping[str, Split], built: Mapping[str, Sequence[Env]]) -> None:
    """Refuse splits that cannot play the tasks of their finite environments once, and warn of near-copies.

    Args:
        splits: the splits by name.
        built: for each split its environments, in the recipe's order.

    Raises:
        RecipeError: a held-out split has more groups of an environment than that has tasks; two splits have a task in
            common; or training would never come to some of the tasks.
    """
    known: dict[str, dict[str, tuple[Env, int]]] = {}
    for name, split in splits.items():
        places = [split.envs.index(split.env_of(place)) for place in range(split.groups)]
        for i, env in enumerate(built[name]):
            if (tasks := env.tasks) is None:
                continue
            where, mine = f"ragen.{name}.envs[{i}]", [place for place, one in enumerate(places) if one == i]
            if name == "train":
                numbers = list(range(tasks))
                if mine and len(mine) < (period := gcd(split.groups, tasks)):
                    raise RecipeError(
                        f"{where} plays {len(mine)} of every {split.groups} seeds, so that it never comes to some of "
                        f"the {tasks} tasks of {split.envs[i].id}: give it {period} groups or more, or ragen.train "
                        "one group more."
                    )
            elif len(mine) > tasks:
                raise RecipeError(
                    f"{where} has {len(mine)} groups of {split.envs[i].id}, which has {tasks} tasks: a held-out split "
                    "plays each task once, so lower groups."
                )
            else:
                numbers = [(split.seed + place) % tasks for place in mine]
            known.setdefault(name, {}).update({env.task_key(task): (env, task) for task in numbers})
    names = list(known)
    for i, name in enumerate(names):
        for other in names[i + 1 :]:
            if both := sorted(known[name].keys() & known[other].keys()):
                raise RecipeError(
                    f"ragen.{name} and ragen.{other} share {len(both)} tasks (such as {both[0]}): give them different "
                    "splits or categories of the benchmark."
                )
            if copies := near_copies(known[name], known[other]):
                _log.warning(
                    "%d tasks of ragen.%s have exactly the solution of a task of ragen.%s (such as %s), which is "
                    "contamination: leave them out where the environment has an argument for it.",
                    *(len(copies), name, other, copies[0]),
                )


def near_copies(some: Mapping[str, tuple[Env, int]], others: Mapping[str, tuple[Env, int]]) -> list[str]:
    """The keys in `some` whose solution is that of a task in `others`; both map a key to (environment, task)."""
    gold = {env.task_gold(task) for env, task in others.values()} - {None}
    return [key for key, (env, task) in some.items() if env.task_gold(task) in gold]
