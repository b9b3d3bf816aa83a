"""Benchmarks by name: which environments and tasks they are, and how their official score is made of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragen_lab.evaluate.plan import Episode, episodes
from ragen_lab.evaluate.summary import Record, by_state
from ragen_lab.statistics import bounded, pass_hat_k, stratified

from ragen_verl.config import RagenConfig
from ragen_verl.env import Env, make
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.runs.folder import RunFolder
from ragen_verl.validation.tasks import check_tasks, near_copies

__all__ = ["BENCHMARKS", "Bench", "Part", "contamination", "find", "score"]


@dataclass(frozen=True)
class Part:
    """One environment of a benchmark; all its tasks are played.

    Attributes:
        name: its name in tables.
        id, kwargs: the environment.
    """

    name: str
    id: str
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """A benchmark.

    Attributes:
        parts: its environments, which count the same.
        measure: what the official score is a mean of: "success", or "return" where tasks give parts of a point.
        known: since when tasks and solutions have been public.
    """

    parts: tuple[Part, ...]
    measure: str
    known: str

    def played_with(self, user: str) -> Bench:
        """The same benchmark with a customer, as its environments take it."""
        return replace(self, parts=tuple(replace(one, kwargs={**one.kwargs, "user": user}) for one in self.parts))

    def environments(self) -> list[Env]:
        """The environments of the parts; raises MissingExtra where a package is not installed."""
        built = []
        for part in self.parts:
            env = make(part.id, **part.kwargs)
            if env.tasks is None:
                raise RecipeError(f"{part.id} has no finite number of tasks: it is an environment and no benchmark.")
            env.close()
            built.append(env)
        return built

    def recipe(self, envs: Sequence[Env], tasks: int | None, response_length: int) -> RagenConfig:
        """A recipe whose held-out split plays each task once, or the first `tasks` of each part."""
        groups = [min(env.tasks, tasks or env.tasks) for env in envs]
        listed = [
            {"id": part.id, "name": part.name, "groups": count, "kwargs": dict(part.kwargs)}
            for part, count in zip(self.parts, groups, strict=True)
        ]
        budget = max(env.max_actions for env in envs)
        rollout = {"protocol": "tools", "think": False, "max_turns": budget, "max_actions_per_turn": 8}
        split = {"envs": listed, "seed": 0}
        blocks = {"train": split, "val": split, "run": {"dir": "none"}}
        ragen = RagenConfig.from_omegaconf({**blocks, "rollout": {**rollout, "response_length": response_length}})
        check_tasks({"val": ragen.val}, {"val": envs})
        return ragen

    def plan(self, ragen: RagenConfig, envs: Sequence[Env], samples: int) -> list[Episode]:
        """The episodes: the seeds of a part's episodes are the numbers of its tasks."""
        first: dict[str, int] = {}
        tasks = {part.name: env.tasks for part, env in zip(self.parts, envs, strict=True)}
        found = []
        for one in episodes(ragen, samples):
            start = first.setdefault(one.env, one.seed)
            seed = (one.seed - start) % tasks[one.env]
            found.append(Episode(one.split, one.env, one.env_id, one.kwargs, seed, one.rollout_index))
        return found


_PUBLIC = "a model may have read tasks and solutions, which have been public since {}"
BENCHMARKS = {
    "bfcl": Bench(
        tuple(
            Part(category, "BFCL-v0", {"category": category})
            for category in ("base", "miss_func", "miss_param", "long_context")
        ),
        "success",
        "2024",
    ),
    "tau2": Bench((Part("telecom", "Tau2-v0", {"split": "base"}),), "success", "2025"),
    "tau2_retail": Bench((Part("retail", "Tau2-v0", {"domain": "retail"}),), "success", "2024"),
    "tau2_airline": Bench((Part("airline", "Tau2-v0", {"domain": "airline"}),), "success", "2024"),
    "human_eval": Bench((Part("human_eval", "HumanEval-v0", {}),), "success", "2021"),
    "miniwob": Bench((Part("miniwob", "MiniWoB-v0", {}),), "success", "2018"),
}
"""Name -> benchmark, in the order of docs/benchmarks.md."""


def find(name: str) -> Bench:
    """The benchmark of a name.

    Raises:
        RecipeError: there is none.
    """
    if name not in BENCHMARKS:
        raise RecipeError(f"There is no benchmark {name!r}: {nearest(name, list(BENCHMARKS))}")
    return BENCHMARKS[name]


def score(bench: Bench, records: Sequence[Record], samples: int) -> dict[str, Any]:
    """The official score of one policy.

    Args:
        bench: the benchmark.
        records: its trajectories; one that the environment or the engine failed counts as 0, as in the official ones.
        samples: the number of episodes of a task.

    Returns:
        `score` (`Estimate` as a dict; the parts have equal weights), `parts` (name -> mean), `pass^k` (k -> the chance
        that k of k episodes of a task succeed) and `failed` (episodes that could not be played).
    """
    counted = [
        {**one, "success": False, "return": 0.0, "excluded": False} if one["excluded"] else one for one in records
    ]
    states = {part.name: by_state(one for one in counted if one["env"] == part.name) for part in bench.parts}
    values = [
        [sum(float(one[bench.measure]) for one in episodes) / len(episodes) for episodes in part.values()]
        for part in states.values()
    ]
    outcomes = [[bool(one["success"]) for one in episodes] for part in states.values() for episodes in part.values()]
    return {
        "score": vars(bounded(stratified(values, (0.0, 1.0)))),
        "parts": {name: sum(part) / len(part) for name, part in zip(states, values, strict=True)},
        "pass^k": {str(k): pass_hat_k(outcomes, k) for k in range(1, samples + 1)},
        "failed": sum(bool(one["excluded"]) for one in records),
    }


def contamination(bench: Bench, envs: Sequence[Env], policy: str) -> str:
    """A sentence about how far the tasks may be known to a policy (as the command line names it)."""
    public = _PUBLIC.format(bench.known)
    if not policy.startswith("run:"):
        return f"{public}; what it was trained on is not known here"
    mine = {env.task_key(task): (env, task) for env in envs for task in range(env.tasks)}
    trained: dict[str, tuple[Env, int]] = {}
    block = RagenConfig.from_omegaconf(RunFolder(policy.removeprefix("run:").partition("@")[0]).ragen_block())
    for one in block.train.envs:
        env = make(one.id, **one.kwargs_at(1))
        for task in range(env.tasks or 0):
            trained[env.task_key(task)] = env, task
    same, copies = mine.keys() & trained.keys(), near_copies(mine, trained)
    return f"the run was trained on {len(same)} of these tasks and on the solutions of {len(copies)}; {public}"
