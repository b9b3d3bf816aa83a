"""Play the episodes of a plan with a policy, and record each when it ends.

The folder of an evaluation holds `settings.json` (the settings behind the results), `episodes.jsonl` (one record per
line) and `preambles.jsonl` (`ragen_verl.runs.trajectories`). An evaluation that was interrupted continues with the
missing episodes; episodes in which the engine failed are played again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ragen_lab.evaluate.plan import Episode
from ragen_lab.evaluate.policies import Player, Policy

from ragen_verl.config import RagenConfig
from ragen_verl.env import Env, make, registry
from ragen_verl.env.hosting.process import EnvProcesses
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.trajectory import StopReason
from ragen_verl.runs.folder import mapping
from ragen_verl.runs.trajectories import read_file
from ragen_verl.runs.writing import TASK_PROMPTS, TaskPrompts, appending, line

__all__ = ["evaluate", "recorded"]

_CONCURRENCY = 64
_UNLIMITED = 1_000_000_000  # entries of a conversation of messages, for which a recipe's limits on tokens do not hold


def evaluate(
    ragen: RagenConfig,
    policy: Policy,
    plan: Sequence[Episode],
    folder: Path,
    *,
    lengths: tuple[int, int],
    settings: dict[str, Any],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Play the missing episodes of a plan.

    Args:
        ragen: the recipe's block.
        policy: the policy that plays.
        plan: the episodes.
        folder: the folder of this evaluation; it is made if missing.
        lengths: the highest numbers of tokens of a prompt and of a response row, as in the recipe
            (`data.max_prompt_length` and `data.max_response_length`); they hold for policies with token ids.
        settings: further settings behind the results; kept in the folder and compared when it is used again.
        progress: called after each episode with the number of finished episodes and of all.

    Returns:
        The records of the whole plan, in its order, those of earlier calls included.

    Raises:
        RecipeError: the folder holds the evaluation of another recipe, policy or setting; or the policy cannot play at
            all, such as a server that refuses the key or does not know the model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, dict[str, Any]] = {}
    for episode in plan:
        arguments.setdefault(episode.split, {})[episode.env] = episode.kwargs
    played = {"arguments": arguments, "shared_group_rng": ragen.rollout.shared_group_rng}
    _same_settings(folder / "settings.json", {**policy.settings(), **played, **settings})
    file = folder / "episodes.jsonl"
    done = recorded(folder, plan)
    missing = [episode for episode in plan if episode.key not in done]
    progress(len(done), len(plan))
    if missing:
        asyncio.run(_play_all(ragen, policy, missing, file, lengths, done, lambda: progress(len(done), len(plan))))
    return [done[episode.key] for episode in plan]


def recorded(folder: Path, plan: Sequence[Episode]) -> dict[tuple, dict[str, Any]]:
    """The records of a plan's episodes in a folder, by their keys, without those in which the engine failed."""
    wanted, failed = {episode.key for episode in plan}, str(StopReason.ENGINE_ERROR)
    found = {key: one for key, one in _done(folder / "episodes.jsonl") if one["stop_reason"] != failed}
    return {key: one for key, one in found.items() if key in wanted}


async def _play_all(
    ragen: RagenConfig,
    policy: Policy,
    missing: Sequence[Episode],
    file: Path,
    lengths: tuple[int, int],
    done: dict[tuple, dict[str, Any]],
    tell: Callable[[], None],
) -> None:
    gate = asyncio.Semaphore(policy.concurrency or _CONCURRENCY)
    protocol, context = ragen.rollout.chat_protocol(), ragen.rollout.chat_context()
    chat = policy.chat(protocol)
    prompt, response = lengths
    limits = Limits(
        response_length=policy.response_length or ragen.rollout.response_length,
        context_length=min(prompt + response, policy.context or _UNLIMITED) if policy.exact else _UNLIMITED,
        step_timeout=ragen.rollout.step_timeout,
        prompt_length=prompt if policy.exact and context.row_per_turn else None,
    )
    processes: list[EnvProcesses] = []
    task_prompts = TaskPrompts(file.with_name(TASK_PROMPTS))
    with EnvWorkers(ragen.rollout.env_threads) as threads, appending(file) as out:

        async def one(episode: Episode) -> None:
            async with gate:
                player = policy.player(episode, protocol)
                build, workers = make, threads
                if registry.isolation(episode.env_id) == "process":
                    if not processes:
                        processes.append(EnvProcesses(ragen.rollout.env_processes, ragen.rollout.step_timeout))
                    process = processes[0].worker()
                    build, workers = process.make, process.threads
                trajectory = await play(
                    partial(_built_for, player, build, episode),
                    seed=episode.seed,
                    rollout_index=episode.rollout_index,
                    protocol=protocol,
                    chat=chat,
                    generate=player,
                    limits=limits,
                    workers=workers,
                    env_id=episode.env_id,
                    env_name=episode.env,
                    context=context,
                    shared_rng=ragen.rollout.shared_group_rng,
                    rewards=ragen.rewards.chosen,
                )
                if player.unusable:
                    raise player.unusable
                record = {
                    **trajectory.record(chat.offsets if ragen.run.tokens and policy.exact else None),
                    "split": episode.split,
                    "policy": policy.name,
                    "usage": player.usage.record(),
                }
                out.write(line(record, task_prompts))
                out.flush()
                done[episode.key] = record
                tell()

        tasks = [asyncio.ensure_future(one(episode)) for episode in missing]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await policy.close()


def _built_for(player: Player, build: Callable[..., Env], episode: Episode) -> Env:
    player.env = build(episode.env_id, **episode.kwargs)
    return player.env


def _done(file: Path) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """The records with the keys of their episodes; if an episode has two, the later one comes last."""
    for one in read_file(file) if file.exists() else ():
        yield (one["split"], one["env"], one["seed"], one["rollout_index"]), one


def _same_settings(file: Path, settings: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(settings))
    if not file.exists():
        file.write_text(json.dumps(plain, indent=2))
        return
    known = mapping(file) or {}
    differs = sorted(key for key in {*known, *plain} if known.get(key) != plain.get(key))
    if differs:
        raise RecipeError(
            f"{file.parent} holds an evaluation with another {', '.join(differs)}: choose another --out, or remove it."
        )
