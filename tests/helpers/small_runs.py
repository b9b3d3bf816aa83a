"""Folders of small runs, written through the package's own writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from omegaconf import OmegaConf
from traces import healthy

from ragen_verl.diagnostics.monitor import judge
from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.writing import TaskPrompts, appending
from ragen_verl.runs.writing import line as row

GROUPS, MEMBERS, STATES = 3, 4, 6
ACTIONS = ("Left", "Right", "Up")
TOKEN = 5  # characters
CONFIG = {
    "actor_rollout_ref": {"model": {"path": "a/model"}, "rollout": {"n": MEMBERS, "val_kwargs": {"n": 1}}},
    "trainer": {"total_training_steps": 8, "nnodes": 1, "n_gpus_per_node": 2, "device": "cuda"},
    "ragen": {"train": {"envs": [{"id": "Lake-v0", "groups": GROUPS}], "seed": 100}},
}


def says(step: int, seed: int, index: int, turn: int) -> str:
    """What the model of a small run answers."""
    return f"thought {turn} of sample {index} at step {step}"


def trajectory(
    step: int, seed: int, index: int, said: Callable = says, turns: int = 2, env: str = "Lake-v0"
) -> Trajectory:
    """One episode; it is solved where step and numbers say so, else its turns are used up."""
    played = []
    for number in range(1, turns + 1):
        words = said(step, seed, index, number)
        text = f"{words}</think><answer>{ACTIONS[(seed + index + number) % 3]}</answer>"
        action = ACTIONS[(seed + index + number) % 3]
        ids = list(range(-(-len(text) // TOKEN)))
        played.append(
            Turn(
                state=f"state {number} of seed {seed}",
                prompt_ids=[1, 2, 3],
                response_ids=ids,
                log_probs=[-0.5 * (one % 4) for one in ids],
                user=f"You see state {number}.",
                prefill="<think>",
                text=text,
                think=words,
                format_ok=True,
                actions=[action, "Down"],
                num_valid=2,
                executed=[action],
                valid=True,
                effective=number % 2 == 0,
                infos=[{"success": False, "action_is_valid": True, "action_is_effective": True, "distance": number}],
                observation=f"state {number + 1} of seed {seed}",
            )
        )
    solved = (seed + index + step) % 3 == 0
    played[-1].reward = float(solved)
    reason = StopReason.SOLVED if solved else StopReason.TURN_BUDGET
    texts = {"system": "You are a helper.", "task_prompt": "Walk to the goal."}
    return Trajectory(env, seed, index, turns=played, stop_reason=reason, seconds=0.5, **texts)


def small_evaluation(path: Path, policies: tuple[str, ...] = ("first", "second"), states: int = 4) -> Path:
    """The folder of an evaluation in which every policy but the first one solves one state more than that before it."""
    for number, policy in enumerate(policies):
        episodes, preambles = path / policy / "episodes.jsonl", TaskPrompts(path / policy / "preambles.jsonl")
        with appending(episodes) as out:
            for seed in range(states):
                played = trajectory(1, seed, 0, said=lambda *_, who=policy: f"I am the {who}").record()
                reason = "solved" if seed < number else "turn_budget"
                played |= {"success": seed < number, "return": float(seed < number), "stop_reason": reason}
                played |= {"split": "val", "policy": policy}
                out.write(row(played, preambles))
        (path / policy / "settings.json").write_text(json.dumps({"policy": policy, "recipe": "a/recipe"}))
    (path / "results.json").write_text(json.dumps({"recipe": "a/recipe", "policies": {}, "compared": []}))
    return path


def offsets(ids: list[int]) -> list[int]:
    """Where each token of a small run's responses begins: they all have `TOKEN` characters."""
    return [TOKEN * one for one in ids]


def small_run(
    path: Path,
    steps: int = 4,
    said: Callable = says,
    spike: int | None = None,
    tokens: bool = False,
    **sizes: int,
) -> RunFolder:
    """A finished run.

    Args:
        path: its folder.
        steps: how many; every second one is followed by an evaluation.
        said: (step, seed, index, turn) -> what the model answers.
        spike: from this step on the gradient norm is huge, which the verdict warns of.
        tokens: records have tokens; the advantage of a trajectory's tokens is its rollout index less one.
        sizes: `groups`, `members`, `states`, `turns` where they are not those of this module.
    """
    groups, members = sizes.get("groups", GROUPS), sizes.get("members", MEMBERS)
    states, turns = sizes.get("states", STATES), sizes.get("turns", 2)
    folder = RunFolder(path)
    folder.begin(OmegaConf.create(CONFIG), step=0)
    at = offsets if tokens else None
    lines = [{"step": 0}, *healthy(0, max(steps, 1))[:steps]]
    for line in lines:
        step = line["step"]
        line.pop("val-env/success", None)
        if spike is not None and step >= spike:
            line["actor/grad_norm"] *= 1e4
        if step % 2 == 0:
            held_out = [trajectory(step, seed, 0, said, turns).record(at) for seed in range(states)]
            folder.write_trajectories("val", step, held_out)
            line |= summarize(held_out, "val-env")
        if step:
            seeds = range(100 + groups * (step - 1), 100 + groups * step)
            played = [trajectory(step, seed, i, said, turns).record(at) for seed in seeds for i in range(members)]
            for one in played if tokens else ():
                for turn in one["turns"]:
                    turn["tokens"]["advantages"] = [one["rollout_index"] - 1.0] * len(turn["tokens"]["ids"])
            folder.write_trajectories("train", step, [{**one, "kept": one["seed"] % 2 == 0} for one in played])
            line |= summarize(played, "train") | {"train/success": line["train/success"]}
            line |= {"timing_s/step": 10.0, "timing_s/gen": 4.0, "timing_s/update_actor": 5.0, "timing_s/testing": 2.0}
            line |= {"perf/total_num_tokens": 1000}
        folder.log(step, line)
    folder.write_verdict(judge(folder.rows()[1:]).record())
    folder.finish(recipe="a/recipe", seed=100)
    return folder
