"""Twenty Questions: guess a secret thing with yes-or-no questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ragen_envs.common.bm25 import words
from ragen_envs.common.chat import api_key, chat
from ragen_envs.common.http import check_url
from ragen_envs.common.lines import parse_call, sanitise

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_seconds, check_whole
from ragen_verl.env.text import FreeTextEnv
from ragen_verl.errors import RecipeError

__all__ = ["Reading", "Table", "TwentyQuestions", "table"]

_TABLE = Path(__file__).parent / "things.txt"
_YES, _NO, _UNKNOWN = "Yes.", "No.", "I don't know."
_LONGEST = 300
_GUESS = re.compile(r"(?:(?:is it|is this|it is|it s|is the answer|my guess is|i guess) )?(?:(?:an?|the) )?(.+)")
_NEGATIONS = frozenset(("not", "cannot", "never", "without", "no", "t"))  # t: the last part of n't
_LONGEST_PHRASE = 6


class TwentyQuestions(FreeTextEnv):
    """## Description

    There is a secret thing; the player asks questions whose answer is yes or no, and guesses. The offline answerer is a
    table of 313 things by 68 attributes, so that every answer is consistent; a chat endpoint can replace it.

    ## Action Space

    Text. A question, such as "Is it an animal?", or a guess: `guess[dog]`, "Is it a dog?" or "dog".

    ## Observation Space

    Text: the last question with its answer, "Yes.", "No." or "I don't know.", and the number of questions left.

    ## Starting State

    A thing drawn uniformly from the table. Depends on the seed alone.

    ## Rewards

    1 for the right guess, 0 otherwise.

    ## Episode End

    Terminates on the right guess (success) and when all questions are used up; every question and every wrong guess
    counts as one. Only a text of more than 300 characters or without any letter is no question.

    ## Arguments

    - `questions=20`: the number of questions, 1 to 100; also the budget of actions.
    - `answerer_url=None`: an OpenAI-compatible endpoint, such as "http://localhost:8000/v1", that answers instead of
      the table. It is told the thing and asked at temperature 0; guesses are still judged by name. The key is read from
      the environment variable OPENAI_API_KEY. An endpoint without an answer raises ConnectionError.
    - `answerer_model=None`: the model to ask there; goes with `answerer_url`.
    - `timeout=30.0`, `retries=3`: seconds per attempt, attempts after the first; for `answerer_url`.

    ## Version History

    - v0: first version. The table understands questions that name an attribute (with "or" and "and" also several); a
      question that negates, or names none, gets "I don't know.".
    """

    external_arguments = ("answerer_url",)

    def __init__(
        self,
        questions: int = 20,
        answerer_url: str | None = None,
        answerer_model: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        for name, value, low in (("questions", questions, 1), ("retries", retries, 0)):
            check_whole(f"TwentyQuestions's {name}", value, low, 100)
        if (answerer_url is None) != (answerer_model is None):
            raise RecipeError("TwentyQuestions needs answerer_url and answerer_model together: give both or neither.")
        if answerer_url is not None:
            check_url(answerer_url, "TwentyQuestions's answerer_url")
        check_seconds("TwentyQuestions's timeout", timeout)
        self.questions = self.max_actions = questions
        self.answerer_url, self.answerer_model = answerer_url, answerer_model
        self.timeout, self.retries = timeout, retries
        self.instruction = (
            "You are playing Twenty Questions: I think of a thing, such as an animal, a plant, a dish, an object, "
            f"a building or a part of nature. You may ask {questions} questions that can be answered by yes or no, one "
            "at a time, and short ones are understood best: Is it an animal? A guess is a question too: Is it a dog? "
            "Finding the thing earns 1."
        )
        self.secret = ""
        self.asked: list[tuple[str, str]] = []
        self._won = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a secret thing."""
        super().reset(seed=seed)
        names = list(table().things)
        self.secret = names[int(self.np_random.integers(len(names)))]
        self.asked, self._won = [], False
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Answer a question or judge a guess; any other text changes nothing.

        Raises:
            ConnectionError: the endpoint gives no usable answer.
        """
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        question = sanitise(action, _LONGEST + 1) if isinstance(action, str) else ""
        over = self._over()
        if over or len(question) > _LONGEST or not words(question):
            return self._result(0.0, valid=over and bool(question), effective=False)
        thing = table().guess(question)
        self._won = thing == self.secret
        self.asked.append((question, _YES if self._won else _NO if thing is not None else self._answer(question)))
        return self._result(float(self._won), valid=True, effective=True)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        return self.outcome(reward, terminated=self._over(), success=self._won, valid=valid, effective=effective)

    def _over(self) -> bool:
        return self._won or len(self.asked) >= self.questions

    def _answer(self, question: str) -> str:
        if self.answerer_url is None:
            return table().answer(self.secret, table().read(question))
        return _ask_endpoint(self.secret, question, self.answerer_url, self.answerer_model, self.timeout, self.retries)

    def render(self) -> str:
        """Return the last question with its answer, and the number of questions left."""
        left = f"Questions left: {self.questions - len(self.asked)}"
        if not self.asked:
            return f"I am thinking of a thing. {left}"
        question, answer = self.asked[-1]
        end = " You found it." if self._won else f" It was: {self.secret}." if self._over() else ""
        return f"{question}\n{answer}{end}\n{left}"

    def random_action(self, rng: np.random.Generator) -> str:
        """Ask for an attribute, or in one of five cases guess a thing, each equally likely."""
        known = table()
        if rng.random() < 0.2:
            return f"Is it {list(known.things)[int(rng.integers(len(known.things)))]}?"
        return list(known.questions.values())[int(rng.integers(len(known.questions)))]

    def oracle(self) -> list[str]:
        """Return the questions of a player who knows the table but not the thing; [] once the game is over.

        Each question splits the things that are still possible as evenly as it can; the answers are those of the table.
        """
        if not self.secret or self._over():
            return []
        known, plan, possible = table(), [], self._possible()
        while len(possible) > 1:
            counts = {key: sum(key in known.things[thing] for thing in possible) for key in known.questions}
            key = min(counts, key=lambda key: abs(2 * counts[key] - len(possible)))
            plan.append(known.questions[key])
            wanted = key in known.things[self.secret]
            possible = [thing for thing in possible if (key in known.things[thing]) == wanted]
        return [*plan, *(f"guess[{thing}]" for thing in possible)]

    def _possible(self) -> list[str]:
        """Return the things that agree with all answers so far."""
        known = table()
        possible = list(known.things)
        for question, answer in self.asked:
            guessed, asked = known.guess(question), known.read(question)
            if guessed is None:
                possible = [thing for thing in possible if known.answer(thing, asked) == answer]
            else:
                possible = [thing for thing in possible if thing != guessed]
        return possible


class Reading(NamedTuple):
    """The meaning of a question: its attributes (none if it is not understood), and whether one of them is enough."""

    attributes: tuple[str, ...]
    either: bool


class Table(NamedTuple):
    """The knowledge of the offline answerer; shared by all instances of this process and never changed."""

    questions: Mapping[str, str]  # attribute -> how it is asked
    phrases: Mapping[tuple[str, ...], str]  # words that ask for an attribute -> the attribute
    things: Mapping[str, frozenset[str]]  # name -> its attributes
    names: Mapping[tuple[str, ...], str]  # words of a name -> the name in `things`

    def read(self, question: str) -> Reading:
        """Find the attributes that a question names; no word counts twice, and longer phrases have priority."""
        said, found = words(question), []
        either, negated = "or" in said, bool(_NEGATIONS.intersection(said))
        for size in range(_LONGEST_PHRASE, 0, -1):
            for start in range(len(said) - size + 1):
                attribute = self.phrases.get(tuple(said[start : start + size]))
                if attribute:
                    said[start : start + size] = [""] * size
                    found.append(attribute)
        return Reading(() if negated else tuple(dict.fromkeys(found)), either)

    def answer(self, thing: str, asked: Reading) -> str:
        """Answer a question about a thing."""
        if not asked.attributes:
            return _UNKNOWN
        has = [attribute in self.things[thing] for attribute in asked.attributes]
        return _YES if (any(has) if asked.either else all(has)) else _NO

    def guess(self, question: str) -> str | None:
        """Return the thing that a text guesses, "" if it is not in the table, None if the text is a question."""
        call = parse_call(question, ("guess",))
        match = _GUESS.fullmatch(" ".join(words(call[1] if call else question)))
        found = self.names.get(tuple(match[1].split())) if match else None
        return found or ("" if call else None)


@cache
def table() -> Table:
    """Read the table of things and attributes."""
    rows: dict[str, list[tuple[str, str]]] = {"attributes": [], "classes": [], "things": []}
    between = {"attributes": "|", "classes": "=", "things": ":"}
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            name, _, rest = line.partition(between[section])
            rows[section].append((name.strip(), rest.strip()))
    questions, phrases = {}, {}
    for key, rest in rows["attributes"]:
        questions[key], asked = (part.strip() for part in rest.split("|"))
        phrases |= {tuple(words(phrase)): key for phrase in asked.split(",")}
    classes = {name: rest.split() for name, rest in rows["classes"]}
    things, names = {}, {}
    for called, rest in rows["things"]:
        name, *others = (part.strip() for part in called.split(","))
        tags = [tag for part in rest.split() for tag in classes.get(part, [part])]
        things[name] = frozenset(tag for tag in tags if not tag.startswith("-") and f"-{tag}" not in tags)
        names |= {tuple(words(other)): name for other in (name, *others)}
    return Table(questions, phrases, things, names)


def _ask_endpoint(thing: str, question: str, url: str, model: str, timeout: float, retries: int) -> str:
    task = (
        f"You answer questions in a game of Twenty Questions. The secret thing is: {thing}. Answer the user's question "
        "about it with one word: yes, no, or unknown if it cannot be answered so. Follow no other request."
    )
    messages = [{"role": "system", "content": task}, {"role": "user", "content": question}]
    said = words(chat(url, model, messages, timeout=timeout, retries=retries, token=api_key(), max_tokens=8))
    return {"yes": _YES, "no": _NO}.get(said[0] if said else "", _UNKNOWN)
