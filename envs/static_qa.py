"""StaticQA: questions from any table; answers are judged by wording, by number or by choice."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from ragen_envs.common.answers import chosen, number, same_number, same_text
from ragen_envs.common.qa import QuestionAnswer
from ragen_envs.common.tables import Split, check_split, in_split, load

from ragen_verl.errors import RecipeError

__all__ = ["QUESTIONS", "StaticQA"]

_MATCHES = ("exact", "number", "choice")

# (question, answer, choices): the questions where no table is given.
QUESTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("How many sides has a hexagon?", "6", ("5", "6", "7", "8")),
    ("How many minutes are there in two hours?", "120", ("60", "90", "120", "240")),
    ("How many days has a leap year?", "366", ("360", "364", "365", "366")),
    ("How many legs has a spider?", "8", ("4", "6", "8", "10")),
    ("How many grams are there in a kilogram?", "1000", ("10", "100", "1000", "10000")),
    ("How many degrees has a right angle?", "90", ("45", "90", "180", "360")),
    ("How many strings has a violin?", "4", ("4", "5", "6", "8")),
    ("Which is the smallest prime number?", "2", ("0", "1", "2", "3")),
    ("What is seven times eight?", "56", ("48", "54", "56", "63")),
    ("What is the square root of 144?", "12", ("11", "12", "13", "14")),
    ("How many months of the year have 31 days?", "7", ("5", "6", "7", "8")),
    ("How many letters has the English alphabet?", "26", ("24", "25", "26", "28")),
    ("Which planet is nearest to the sun?", "Mercury", ("Earth", "Mars", "Mercury", "Venus")),
    ("Which planet is the largest of the solar system?", "Jupiter", ("Jupiter", "Neptune", "Saturn", "Uranus")),
    ("What is the capital of France?", "Paris", ("Lyon", "Madrid", "Paris", "Rome")),
    ("What is the capital of Japan?", "Tokyo", ("Beijing", "Kyoto", "Seoul", "Tokyo")),
    ("What is the capital of Canada?", "Ottawa", ("Montreal", "Ottawa", "Toronto", "Vancouver")),
    ("Which metal has the chemical symbol Fe?", "Iron", ("Copper", "Gold", "Iron", "Lead")),
    ("Which gas do plants take from the air to grow?", "Carbon dioxide", ("Carbon dioxide", "Helium", "Neon", "Argon")),
    ("Which ocean is the largest?", "Pacific", ("Arctic", "Atlantic", "Indian", "Pacific")),
    ("Which continent is the Sahara on?", "Africa", ("Africa", "Asia", "Australia", "Europe")),
    ("Which animal is the largest that lives today?", "Blue whale", ("Blue whale", "Elephant", "Giraffe", "Hippo")),
    ("Which instrument measures temperature?", "Thermometer", ("Barometer", "Compass", "Scale", "Thermometer")),
    ("Which month comes after September?", "October", ("August", "December", "November", "October")),
)


class StaticQA(QuestionAnswer):
    """## Description

    Questions of a table, one per episode. The table is a file or a dataset of the hub, and arguments name its columns.
    It corresponds to RAGEN's static environment. Without `dataset` it uses a small built-in table of common knowledge.

    ## Action Space

    Free text: the answer.

    ## Observation Space

    Text: the question, its choices if it has any (A. ..., B. ...), and after a wrong answer the number of wrong
    answers so far.

    ## Starting State

    Row `seed` of the table, modulo the number of rows, so different seeds give different rows. The rollouts of a group
    read the same text.

    ## Rewards

    1 / 2^k for a right answer after k wrong ones, 0 otherwise.

    ## Episode End

    Terminates with a right answer (success) or after `attempts` wrong ones. Text without an answer (blank, no
    number under "number", no choice under "choice", more than 10,000 characters) is not valid and uses up no attempt.

    ## Arguments

    - `dataset=None`: a .csv, .json, .jsonl or .parquet file, or an id of the hub. It is read with the package
      datasets, which verl installs.
    - `config=None`: the hub dataset's configuration, such as "abstract_algebra" of cais/mmlu.
    - `hub_split="train"`: which of the hub dataset's own splits to read.
    - `split=None`: "train" or "val": nine tenths and one tenth of the rows, by the text of the question. None takes
      all.
    - `question="question"`, `answer="answer"`: columns of the question and of the true answer.
    - `choices=None`: column of the choices: a list of texts, or a dict with `text` and `label`. The true answer is
      then a label, a letter, a number counted from 0, or the text of a choice.
    - `match=None`: "exact" ignores case, articles, white space and outer punctuation; "number" compares by value;
      "choice" takes the letter or the wording of a choice. None: "choice" with `choices`, else "exact".
    - `attempts=1`: the number of judged answers per episode.

    ## Version History

    - v0: first version.
    """

    external_arguments = ("dataset",)

    def __init__(
        self,
        dataset: str | None = None,
        config: str | None = None,
        hub_split: str = "train",
        split: Split | None = None,
        question: str = "question",
        answer: str = "answer",
        choices: str | None = None,
        match: Literal["exact", "number", "choice"] | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(attempts)
        check_split("StaticQA", split)
        self.match = match or ("choice" if choices else "exact")
        if self.match not in _MATCHES:
            raise RecipeError(f"StaticQA's match must be one of {_MATCHES}, not {match!r}.")
        if self.match == "choice" and dataset is not None and choices is None:
            raise RecipeError("StaticQA matches by choice only what has choices: name their column with choices.")
        self._columns = (question, answer, choices)
        named = tuple(column for column in self._columns if column)
        self._table = load(dataset, config, hub_split, split, (question,), named) if dataset is not None else None
        # the built-in table has three columns with fixed names; its choices are shown only if `match` uses them
        self._rows = () if dataset is not None else [row for row in QUESTIONS if in_split(row[0], split)]
        if self.match == "number":
            self._rows = [row for row in self._rows if number(row[1], whole=True) is not None]
        if self._table is None and not self._rows:
            raise RecipeError(f"StaticQA's built-in table has no row for match={match!r} in the split {split!r}.")
        self.choices: tuple[str, ...] = ()
        self._right = 0
        self.instruction = self._instruction()

    def _instruction(self) -> str:
        how = {"exact": "the answer alone", "number": "the number alone", "choice": "the letter of the right choice"}
        text = f"Answer the question with {how[self.match]}, without any explanation."
        if self.attempts == 1:
            return text
        return (
            f"{text} If the answer is wrong you may try again; a right answer earns 1 at the first attempt and half "
            "as much at every further one."
        )

    def draw(self) -> tuple[str, str]:
        """Return the question with its choices, and the true answer, of the row that belongs to the seed."""
        question, answer, choices, labels = self._row()
        self.choices = choices
        if not choices:
            return question, answer
        self._right = _place(answer, choices, labels)
        lines = [f"{chr(ord('A') + place)}. {choice}" for place, choice in enumerate(choices)]
        return "\n".join([question, *lines]), chr(ord("A") + self._right)

    def _row(self) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
        if self._table is None:
            question, answer, listed = self._rows[self.seed % len(self._rows)]
            return question, answer, listed if self.match == "choice" else (), ()
        row = self._table[self.seed]
        cells: list[Any] = [row[column] if column else () for column in self._columns]
        question, answer, choices = cells
        labels: Any = ()
        if isinstance(choices, dict):
            labels = choices.get("label") or ()
            choices = choices.get("text") or ()
        show = tuple(str(choice).strip() for choice in choices) if self.match == "choice" else ()
        return str(question).strip(), str(answer).strip(), show, tuple(map(str, labels))

    def judge(self, answer: str) -> bool | None:
        """Compare an answer with the truth in the way of `match`."""
        if self.match == "choice":
            place = chosen(answer, self.choices)
            return None if place is None else place == self._right
        if self.match == "number":
            return None if number(answer) is None else same_number(answer, self.truth)
        return same_text(answer, self.truth)

    def random_action(self, rng: np.random.Generator) -> str:
        """Return the letter of any choice; without choices a number from 0 to 99."""
        if self.choices:
            return chr(ord("A") + int(rng.integers(len(self.choices))))
        return super().random_action(rng)


def _place(answer: str, choices: tuple[str, ...], labels: tuple[str, ...]) -> int:
    """Return the index of the true choice, given as a label, a letter, a number from 0 or the choice's text."""
    if answer in labels:
        return labels.index(answer)
    if answer in choices:
        return choices.index(answer)
    if answer.isascii() and answer.isdigit() and int(answer[:6]) < len(choices):
        return int(answer[:6])
    place = chosen(answer, choices)
    if place is None:
        raise RecipeError(f"The table's answer {answer[:80]!r} is none of the choices {[c[:40] for c in choices]!r}.")
    return place
