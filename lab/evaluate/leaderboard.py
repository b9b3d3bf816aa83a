"""A fixed set of environments and instances on which any policies are ranked.

Mean@8 is defined as on RAGEN's leaderboard page: the share of an instance's 8 episodes that succeeded, averaged over
the instances of an environment. The board's score is the mean of the environments' Mean@8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ragen_lab.evaluate.plan import Episode, episodes
from ragen_lab.evaluate.summary import by_state, interval
from ragen_lab.markdown import table as markdown_table
from ragen_lab.statistics import Estimate, bounded, rate, stratified
from rich.table import Table

from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.runs.folder import mapping

__all__ = ["GAMES", "SEED", "Board", "Game", "earlier", "markdown", "ranked", "remarks", "table"]

_VERSION = 1
"""The version of the set below; results of different versions are not ranked together."""
SEED = 2_000_000
"""The seed of the first instance of every environment; recipes train and evaluate on lower seeds."""
_SAMPLES, _INSTANCES, _RESPONSE_LENGTH = 8, 128, 512
_OVERALL = "overall"
_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Game:
    """One environment of the board.

    Attributes:
        id, kwargs: the environment.
        max_turns, max_actions_per_turn, max_actions: budgets of an episode; None for `max_actions` means that of the
            environment.
    """

    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    max_turns: int = 5
    max_actions_per_turn: int = 5
    max_actions: int | None = None


GAMES = {
    "FrozenLake": Game("FrozenLake-v0"),
    "Sokoban": Game("Sokoban-v0"),
    "WebShop": Game("WebShop-v0", {"split": "test"}, max_turns=9, max_actions_per_turn=1),
    "TwentyQuestions": Game("TwentyQuestions-v0", max_turns=20, max_actions_per_turn=1),
    "Countdown": Game("Countdown-v0", max_turns=1, max_actions_per_turn=1),
    "Blocksworld": Game("Blocksworld-v0"),
}


@dataclass(frozen=True)
class Board:
    """The settings of the leaderboard.

    Attributes:
        games: names of environments in `GAMES`.
        instances: the number of initial states of each environment.
        samples: the number of episodes of each initial state.
        response_length: the highest number of tokens of one response.
    """

    games: tuple[str, ...] = tuple(GAMES)
    instances: int = _INSTANCES
    samples: int = _SAMPLES
    response_length: int = _RESPONSE_LENGTH

    def __post_init__(self) -> None:
        for name in self.games:
            if name not in GAMES:
                raise RecipeError(f"The leaderboard has no environment {name!r}: {nearest(name, GAMES.keys())}")
        if self.instances < 2 or self.samples < 1:
            raise RecipeError(
                f"{self.instances} instances of {self.samples} samples cannot be ranked: play 2 instances or more."
            )

    def settings(self) -> dict[str, Any]:
        """The settings that results must have in common to be ranked together."""
        own = {"version": _VERSION, "instances": self.instances, "samples": self.samples}
        return {"board": {**own, "response_length": self.response_length}}

    def recipe(self, game: str) -> RagenConfig:
        """A recipe whose held-out split has the episodes of one environment."""
        one = GAMES[game]
        split = {"envs": [{"id": one.id, "name": game, "groups": self.instances, "kwargs": one.kwargs}]}
        rollout = {name: getattr(one, name) for name in ("max_turns", "max_actions_per_turn", "max_actions")}
        return RagenConfig.from_omegaconf(
            {
                "train": {**split, "seed": 0},
                "val": {**split, "seed": SEED},
                "run": {"dir": "none"},
                "rollout": {**rollout, "response_length": self.response_length},
            }
        )

    def plan(self, game: str) -> list[Episode]:
        """The episodes of one environment."""
        return episodes(self.recipe(game), self.samples)


def earlier(folder: Path, board: Board) -> Iterable[tuple[str, dict[str, Path]]]:
    """The policies with results in a folder, played with these settings: name, and environment -> its folder."""
    wanted = board.settings()["board"]
    for one in sorted(folder.glob("*/")):
        places = {game: one / game for game in board.games if (one / game / _SETTINGS).is_file()}
        settings = [mapping(place / _SETTINGS) or {} for place in places.values()]
        if settings and all(each.get("board") == wanted for each in settings):
            yield settings[0]["policy"], places


def ranked(records: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], board: Board) -> dict[str, Any]:
    """The ranking of the policies.

    Args:
        records: policy -> environment -> its records; a policy that lacks episodes of an environment is not ranked.
        board: the settings.

    Returns:
        Data for JSON: `board`, `ranking` (a list, best first, of `policy`, `rank`, `overall` and one `Estimate` as a
        dict for each environment) and `incomplete` (policy -> environment -> episodes that are missing or failed). A
        rank is 1 plus the number of policies that are better by more than the interval of the paired difference over
        the initial states, with equal weights for the environments.
    """
    full = board.instances * board.samples
    counted: dict[str, dict[str, dict[int, list[bool]]]] = {
        policy: {
            game: {seed: [bool(one["success"]) for one in rows] for seed, rows in by_state(games.get(game, ())).items()}
            for game in board.games
        }
        for policy, games in records.items()
    }
    incomplete = {
        policy: {game: short for game, states in games.items() if (short := full - sum(map(len, states.values())))}
        for policy, games in counted.items()
    }
    means = {
        policy: [[float(np.mean(states[seed])) for seed in sorted(states)] for states in games.values()]
        for policy, games in counted.items()
        if not incomplete[policy]
    }
    overall = {policy: bounded(stratified(strata, (0.0, 1.0))) for policy, strata in means.items()}
    ranking = []
    for policy in sorted(means, key=lambda one: -overall[one].value):
        better = sum(
            (stratified([np.subtract(*pair) for pair in zip(strata, means[policy], strict=True)]).low or 0) > 0
            for other, strata in means.items()
            if other != policy
        )
        rates = {game: vars(rate(list(states.values()))) for game, states in counted[policy].items()}
        ranking.append({"policy": policy, "rank": 1 + better, _OVERALL: vars(overall[policy]), **rates})
    missing = {policy: games for policy, games in incomplete.items() if games}
    about = {**board.settings()["board"], "environments": list(board.games), "seed": SEED}
    return {"board": about, "ranking": ranking, "incomplete": missing}


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    columns = [_OVERALL, *found["board"]["environments"]]
    return [[str(one["rank"]), one["policy"], *(_cell(one[name]) for name in columns)] for one in found["ranking"]]


def _cell(found: Mapping[str, Any]) -> str:
    one = Estimate(**found)
    return f"{one.value:.3f} ({interval(one)})"


def _title(found: Mapping[str, Any]) -> str:
    """The title of the table, which describes the numbers."""
    board = found["board"]
    return f"Mean@{board['samples']} over {board['instances']} instances, with 95 % intervals"


def table(found: Mapping[str, Any]) -> Table:
    """The ranking as a table for the terminal."""
    out = Table(title=_title(found), box=None, header_style="bold", title_justify="left")
    for column in ("rank", "policy", _OVERALL, *found["board"]["environments"]):
        out.add_column(column, justify="left" if column == "policy" else "right")
    for row in _rows(found):
        out.add_row(*(cell.replace(" (", "\n(") for cell in row))
    return out


def remarks(found: Mapping[str, Any]) -> list[str]:
    """The policies that are not ranked, each in a sentence."""
    out = []
    for policy, games in found["incomplete"].items():
        short = ", ".join(f"{count} of {game}" for game, count in games.items())
        out.append(f"{policy} is not ranked, episodes are missing or failed: {short}. Give it as --policy again.")
    return out


def markdown(found: Mapping[str, Any]) -> str:
    """The ranking as a Markdown page."""
    columns = ["rank", "policy", _OVERALL, *found["board"]["environments"]]
    lines = [
        "# Leaderboard",
        "",
        f"{_title(found)}. Policies that do not differ over the same instances share a rank.",
        "",
    ]
    lines += markdown_table(columns, _rows(found))
    said = remarks(found)
    return "\n".join([*lines, *([""] if said else []), *(f"- {one}" for one in said)]) + "\n"
