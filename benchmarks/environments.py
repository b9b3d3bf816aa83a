"""Every registered environment: scores of the random player and of the oracle, speed, tokens; gymnasium for comparison.

    python benchmarks/environments.py

Writes benchmarks/results/environments.json and, from it, docs/environments.md. Scores are those of the checker: whole
episodes through the rollout's own code, one action an answer, the environment's own budget. Speed is that of one thread
with random actions. The comparison takes turns with gymnasium's FrozenLake (and with gym-sokoban where it is
installed), on boards of the same size.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from ragen_lab.checker import FULL, Subject
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.costs import measure
from ragen_lab.checker.scores import play_all
from rich.console import Console
from rich.table import Table

from ragen_verl.env import ids, make
from ragen_verl.errors import RecipeError

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "results" / "environments.json"
PAGE = ROOT / "docs" / "environments.md"
EPISODES, LONG_EPISODES, LONG = 30, 3, 100  # episodes; fewer where the budget of actions is larger than LONG
COLUMNS = (
    *("id", "actions", "budget", "random: success", "return", "oracle: success", "return"),
    *("steps/s", "reset p50", "reset p99", "tokens mean", "max"),
)
HEAD = """# Environments

The environments of the package, as `benchmarks/environments.py` measured them. `ragen-verl env show ID` describes one
and draws it, `ragen-verl env play ID` plays it by hand, and `ragen-verl env check ID` repeats its row.
`ragen-verl env show ID --prompt` prints what a model is sent: system message, task, first observation and the tag
that a response begins with; `--recipe RECIPE` uses that recipe's texts, `--model FOLDER` that model's chat template.
See also [your own environment](your_own_environment.md).
"""
NOTES = """
- `actions`: the number of names, or free text. `budget`: actions of an episode (`max_actions`).
- random and oracle: success, and return with its standard error, over {episodes} seeds ({long} if the budget is above
  {above}). Each answer has one action, and nothing is deducted for format. The random player draws a name, or calls
  `random_action` for free text. The oracle makes a new plan before every action from what the environment knows. It
  does not always succeed where chance decides (Bandit, FrozenLake, 2048) or where the budget is too small for some
  levels. In Bandit a success is the choice of the better arm, whatever it pays.
- steps/s: from the median time of `step` with random actions in one thread. reset: milliseconds, median and 99th
  percentile.
- tokens: of an observation with the nano model's tokenizer, which has a token for each cell of a grid and spells rare
  words by letters; `ragen-verl env check ID --tokenizer FOLDER` counts with yours.
- A row of dashes: the environment needs data that were missing; `ragen-verl env show ID` says which.
"""
ROLLOUTS = """## In a rollout

`benchmarks/rollout_concurrency.py`, on {cores} cores: vLLM and the nano model play {episodes} episodes of FrozenLake,
{in_flight} at a time, whose actions take {low} to {high} ms each. In this package's rollout every episode continues as
soon as its own answer is there. The table compares its throughput with a lock-step rollout, which samples all answers
and then takes all steps, and, without that latency, with the engine alone on the same prompts and numbers of tokens.
Numbers are ratios of throughput, median of the rounds.

| tokens an answer | against lock-step | against the engine alone |
|---|---:|---:|"""


def figures(id: str, episodes: int) -> dict[str, Any]:
    env = make(id)
    env.reset(seed=0)
    count = LONG_EPISODES if env.max_actions > LONG else episodes
    calls, subject = Calls(60), Subject.of(id)
    profile = replace(FULL, episodes=count)
    scores = play_all(subject, profile, calls)
    # resets are timed over as many seeds everywhere
    measured = measure(subject, replace(profile, episodes=episodes, steps=20), calls)
    actions = len(env.actions) if env.actions else None
    return {"actions": actions, "budget": env.max_actions, **scores, **measured}


def rate(reset: Callable[[int], Any], step: Callable[[int], bool], seconds: float) -> tuple[float, float]:
    """Resets and steps per second of CPU time, `step` telling whether the episode is over."""
    spent, counts, seed = [0.0, 0.0], [0, 0], 0
    while sum(spent) < seconds:
        begun = time.process_time()
        reset(seed)
        middle = time.process_time()
        taken = 0
        while taken < 10:
            taken += 1
            if step(taken % 4):
                break
        spent[0] += middle - begun
        spent[1] += time.process_time() - middle
        counts[0] += 1
        counts[1] += taken
        seed += 1
    return counts[0] / spent[0], counts[1] / spent[1]


def of_ours(id: str, **kwargs: Any) -> tuple[Callable, Callable]:
    env = make(id, **kwargs)

    def step(k: int) -> bool:
        outcome = env.step(env.actions[k])
        return outcome.terminated or outcome.truncated

    return lambda seed: env.reset(seed=seed), step


def of_gymnasium() -> tuple[Callable, Callable]:
    """gymnasium's FrozenLake as RAGEN uses it: a board of its own for each seed, the observation as text."""
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    held: list[gymnasium.Env] = []

    def reset(seed: int) -> str:
        board = generate_random_map(size=4, p=0.8, seed=seed)
        held[:] = [gymnasium.make("FrozenLake-v1", desc=board, is_slippery=True, render_mode="ansi")]
        held[0].reset(seed=seed)
        return held[0].render()

    def step(k: int) -> bool:
        _, _, terminated, truncated, _ = held[0].step(k)
        held[0].render()
        return terminated or truncated

    return reset, step


def of_gym_sokoban() -> tuple[Callable, Callable]:
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    env = SokobanEnv(dim_room=(6, 6), num_boxes=1, max_steps=100)

    def reset(seed: int) -> None:
        import random

        random.seed(seed)
        np.random.seed(seed)
        env.reset()

    return reset, lambda k: bool(env.step(k + 1, observation_mode="tiny_rgb_array")[2])


def compare(seconds: float) -> list[dict[str, Any]]:
    """Measure our environments and those of others in turn; take the median of five measurements each."""
    cases = [("FrozenLake 4x4", "gymnasium", of_ours("FrozenLake-v0"), of_gymnasium())]
    if importlib.util.find_spec("gym_sokoban") and importlib.util.find_spec("gym"):
        cases.append(("Sokoban 6x6, 1 box", "gym-sokoban", of_ours("Sokoban-v0"), of_gym_sokoban()))
    rows = []
    for what, package, ours, theirs in cases:
        rates = [(rate(*ours, seconds / 10), rate(*theirs, seconds / 10)) for _ in range(5)]
        row: dict[str, Any] = {"what": what, "package": package, "version": version(package)}
        for place, name in enumerate(("resets", "steps")):
            row[name] = {
                "ours_per_second": statistics.median(one[place] for one, _ in rates),
                "theirs_per_second": statistics.median(other[place] for _, other in rates),
                "times_faster": statistics.median(one[place] / other[place] for one, other in rates),
            }
        rows.append(row)
    return rows


def cells(id: str, row: dict[str, Any]) -> list[str]:
    """A row of the table, as text."""

    def score(found: dict[str, Any] | None) -> list[str]:
        return (
            ["-", "-"]
            if found is None
            else [f"{found['success']:.0%}", f"{found['return']:.2f} ± {found['error']:.2f}"]
        )

    reset = row["milliseconds"]["reset"]
    return [
        id,
        str(row["actions"] or "text"),
        str(row["budget"]),
        *score(row["random"]),
        *score(row["oracle"]),
        f"{row['steps_per_second']:,.0f}",
        f"{reset['p50']:.2f}",
        f"{reset['p99']:.2f}",
        f"{row['tokens']['mean']:.0f}",
        str(row["tokens"]["max"]),
    ]


def page(result: dict[str, Any]) -> str:
    """The text of docs/environments.md."""
    lines = [HEAD, f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for id, row in result["environments"].items():
        first, *others = cells(id, row)
        lines.append(f"| {' | '.join([f'`{first}`', *others])} |")
    lines += [f"| `{id}` | {' | '.join(['-'] * (len(COLUMNS) - 1))} |" for id in result["missing"]]
    lines.append(NOTES.format(episodes=result["episodes"], long=LONG_EPISODES, above=LONG))
    lines += [
        "## Against other packages",
        "",
        "Resets and steps per second of CPU time in one thread, measured in turns. Observations are text;",
        "gym-sokoban's are its smallest images.",
        "",
    ]
    lines += ["| what | against | resets/s | theirs | ratio | steps/s | theirs | ratio |", "|---|---|" + "---:|" * 6]
    for row in result["beside"]:
        numbers = [
            text
            for name in ("resets", "steps")
            for text in (
                f"{row[name]['ours_per_second']:,.0f}",
                f"{row[name]['theirs_per_second']:,.0f}",
                f"{row[name]['times_faster']:.1f}",
            )
        ]
        lines.append(f"| {row['what']} | {row['package']} {row['version']} | {' | '.join(numbers)} |")
    lines += [
        "",
        "gymnasium draws one board per id, so it is built again for every level; its text is that of `render`.",
        "`benchmarks/sokoban_levels.py` compares the generation of Sokoban levels with gym-sokoban's.",
        "",
        *rollouts(),
    ]
    return "\n".join(lines)


def rollouts() -> list[str]:
    """The part of the page on whole rollouts, from the results of rollout_concurrency.py."""
    found = json.loads((OUT.parent / "rollout_concurrency.json").read_text())
    low, high = (f"{1000 * seconds:.0f}" for seconds in found["latency_seconds"])
    lines = [ROLLOUTS.format(low=low, high=high, **found)]
    for row in found["measured"]:
        asked = row["answer_tokens"]
        tokens = asked if isinstance(asked, int) else f"{row['tokens'] / row['turns']:.0f} ({asked})"
        engine = row["no_latency_to_engine_alone"]
        lines.append(f"| {tokens} | {row['asynchronous_to_lock_step']:.2f} | {engine:.2f} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU time of each comparison")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=160)
    found: dict[str, Any] = {}
    missing: list[str] = []
    for id in ids():
        with console.status(id):
            try:
                make(id)
            except RecipeError as error:  # its data or its package is not installed
                console.print(f"{id}: {error}", style="yellow", soft_wrap=True)
                missing.append(id)
                continue
            found[id] = figures(id, arguments.episodes)
    result = {
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "gymnasium": gymnasium.__version__},
        "episodes": arguments.episodes,
        "environments": found,
        "missing": missing,
        "beside": compare(arguments.seconds),
    }
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for id, row in found.items():
        table.add_row(*cells(id, row))
    console.print(table)
    for row in result["beside"]:
        resets, steps = row["resets"]["times_faster"], row["steps"]["times_faster"]
        console.print(f"{row['what']}: reset {resets:.1f} times and step {steps:.1f} times as fast as {row['package']}")
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    PAGE.write_text(page(json.loads(OUT.read_text())), "utf-8")


if __name__ == "__main__":
    main()
