"""Small made-up databases that are read by calling tools: each seed draws tables, tools and a goal."""

from __future__ import annotations

from typing import Any

from ragen_verl.env.calls import called, said
from ragen_verl.env.core import Step
from ragen_verl.env.tools import AsksHuman, Schema, ToolError
from ragen_verl.errors import RecipeError

__all__ = ["KINDS", "OTHERS", "SYLLABLES", "ToolWorld"]

KINDS = ("person", "team", "office", "city", "region", "country")
OTHERS = ("badge", "car", "desk", "hobby", "phone", "pet", "song", "tree")
SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "xa", "zu")
_ASKED = "Whom do you mean?"


class ToolWorld(AsksHuman):
    """A chain of tables is followed by calling functions.

    ## Description
    Tables link persons to teams, teams to offices, offices to cities and so on; a function reads one link. The goal is
    the name at the end of the chain of one person. With a missing parameter the goal does not say who is meant, and a
    scripted user says it when asked, in a reply or, with `human`, with the tool `ask_human`. With no fitting tool a
    link of the chain cannot be read, and the right answer is `unknown`.

    ## Action Space
    Calls of `team_of(person)`, `office_of(team)` and so on, of functions that lead nowhere, and of `answer(name)`; or a
    reply without a call.

    ## Observation Space
    The result of the last call: a name, or what is wrong with the call.

    ## Starting State
    Names, links, goal and the order of the functions are drawn with the seed.

    ## Rewards
    1 for the right answer.

    ## Episode End
    At an answer, and at a reply without a call unless the goal leaves the person out.

    ## Arguments
    `depth`, `rows`, `distractors`, `missing`, `unfitting`, `human`, `max_actions`.

    ## Version History
    - v0: the first version.

    Args:
        depth: links between the person and the answer, 1 to 5.
        rows: entries of each table, 2 to 50.
        distractors: tools that lead nowhere, 0 to 8.
        missing: the probability that the goal leaves the person out.
        unfitting: the probability that a tool of the chain is not there.
        human: whether the user is asked with the tool `ask_human`; a reply without a call then ends the episode.
        max_actions: calls and replies of an episode.

    Raises:
        RecipeError: a value is outside its range.
    """

    def __init__(
        self,
        depth: int = 2,
        rows: int = 6,
        distractors: int = 2,
        missing: float = 0.0,
        unfitting: float = 0.0,
        human: bool = False,
        max_actions: int = 10,
    ) -> None:
        ranges = {
            "depth": (depth, 1, len(KINDS) - 1),
            "rows": (rows, 2, 50),
            "distractors": (distractors, 0, len(OTHERS)),
            "missing": (missing, 0, 1),
            "unfitting": (unfitting, 0, 1),
            "max_actions": (max_actions, 1, 1000),
        }
        for name, (value, least, most) in ranges.items():
            if not least <= value <= most:
                raise RecipeError(f"{name} is {value}: it goes from {least} to {most}.")
        self.depth, self.rows, self.distractors = depth, rows, distractors
        self.missing, self.unfitting, self.human, self.max_actions = missing, unfitting, human, max_actions
        self.links: dict[str, tuple[str, dict[str, str]]] = {}  # none before `reset`
        self.order: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw the tables, the tools and the goal."""
        super().reset(seed=seed, options=options)
        rng, kinds = self.np_random, KINDS[: self.depth + 1]
        others = [OTHERS[k] for k in rng.permutation(len(OTHERS))[: self.distractors]]
        names = {kind: self._names() for kind in (*kinds, *others)}
        froms = {
            **dict(zip(kinds[1:], kinds, strict=False)),
            **{kind: kinds[int(rng.integers(self.depth))] for kind in others},
        }
        self.links = {
            f"{kind}_of": (
                start,
                dict(
                    zip(
                        names[start],
                        (names[kind][int(k)] for k in rng.integers(self.rows, size=self.rows)),
                        strict=True,
                    )
                ),
            )
            for kind, start in froms.items()
        }
        self.subject, self.chain = names["person"][int(rng.integers(self.rows))], [f"{kind}_of" for kind in kinds[1:]]
        self.right = self.subject
        for link in self.chain:
            self.right = self.links[link][1][self.right]
        self.asks, unfit = bool(rng.random() < self.missing), bool(rng.random() < self.unfitting)
        if unfit:
            del self.links[self.chain[int(rng.integers(self.depth))]]
            self.right = "unknown"
        self.order = [list(self.links)[k] for k in rng.permutation(len(self.links))]
        self.known: list[str] = [] if self.asks else [self.subject]
        whose = "of a person whom only the user knows" if self.asks else f"of {self.subject}"
        self.instruction = (
            f"Find out the {' of the '.join(reversed(kinds[1:]))} {whose}, and answer with its name. "
            "Answer unknown if no function leads there."
        )
        return f"There are {self.rows} persons.", {}

    def _names(self) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < self.rows:
            found["".join(SYLLABLES[k] for k in self.np_random.integers(len(SYLLABLES), size=3)).capitalize()] = None
        return list(found)

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """A function for each table that can be read, in an order of the seed's, `answer`, perhaps `ask_human`."""
        own = [_schema(name, self.links[name][0]) for name in self.order] + [_schema("answer", "name")]
        return own + (super().tools if self.human else [])

    def step(self, action: str) -> Step:
        """Make a call or pass on a reply; raises ResetNeeded before the first reset."""
        _ = self.dynamics
        return super().step(action)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Look something up, ask, or answer."""
        if name == "ask_human":
            return super().call(name, arguments)
        wanted = "name" if name == "answer" else self.links[name][0]
        if set(arguments) != {wanted} or not isinstance(arguments[wanted], str):
            raise ToolError(f"{name} was not called: it takes {wanted}, a text, and nothing else.", "arguments")
        if name == "answer":
            right = arguments[wanted].strip().casefold() == self.right.casefold()
            return self.end("Right." if right else "Wrong.", float(right), success=right)
        found = self.links[name][1].get(arguments[wanted])
        if found is None:
            raise ToolError(f"There is no {wanted} called {arguments[wanted][:50]}.")
        self.known.append(found)
        return found

    def message(self, text: str) -> Any:
        """The scripted user names the person if the goal left it out; otherwise the episode ends."""
        return self.answer(text) if self.asks and not self.human else self.end("")

    def answer(self, question: str) -> str:
        """The scripted user names the person if the goal left it out."""
        if not self.asks:
            return super().answer(question)
        if self.subject not in self.known:
            self.known.append(self.subject)
        return f"I mean {self.subject}."

    def oracle(self) -> list[str]:
        """Ask if the person is missing, follow the chain as far as it goes, and answer."""
        asked = called("ask_human", question=_ASKED) if self.human else said(_ASKED)
        at, actions = self.subject, [asked] * (self.subject not in self.known)
        for link in self.chain:
            if link not in self.links:
                break
            actions.append(called(link, **{self.links[link][0]: at}))
            at = self.links[link][1][at]
        done = [action for action in actions if self._new(action)]
        return [*done, called("answer", name=self.right)]

    def _new(self, action: str) -> bool:
        """Whether an action of the plan is still needed: its result is not known yet."""
        at = self.subject
        for link in self.chain:
            if link not in self.links:
                break
            start, at = at, self.links[link][1][at]
            if action == called(link, **{self.links[link][0]: start}):
                return at not in self.known
        return True


def _schema(name: str, argument: str) -> Schema:
    told = "Give the final answer." if name == "answer" else f"The {name.removesuffix('_of')} of a {argument}."
    what = "The answer, or unknown." if name == "answer" else f"The name of the {argument}."
    properties = {argument: {"type": "string", "description": what}}
    parameters = {"type": "object", "properties": properties, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": told, "parameters": parameters}}
