"""Countdown: reach a target by arithmetic with the given numbers, each used once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import isqrt
from typing import Any

import numpy as np
from ragen_envs.common.tables import Split, check_split, in_split, load

from ragen_verl.env import Env, Step
from ragen_verl.env.arguments import check_whole
from ragen_verl.errors import RecipeError

__all__ = ["Countdown"]

_LONGEST = 500
"""Characters an expression may have; a longer one is not read."""

_RANK = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "negative": 3}
_TOKEN = re.compile(r"\s*([0-9]{1,9}(?![0-9])|[-+*/()])")
_SIGNS = str.maketrans("×÷−·⋅∕", "*/-**/")
_MOST = 6
_TRIES = 2_000
_WRONG_VALUE, _SOLVED = 0.1, 1.0


class Countdown(Env):
    """## Description

    Combine all the given numbers with +, -, * and / so that the result is the target. One answer per episode, as in
    RAGEN-2 (arXiv 2604.06268), which takes the task from TinyZero's dataset.

    ## Action Space

    Free text: an arithmetic expression of whole numbers, + - * / (also × ÷ −), a minus sign in front, and brackets.
    It is parsed and computed exactly with fractions, never evaluated as Python.

    ## Observation Space

    Text: "Target: 24, numbers: [3, 5, 8, 1]".

    ## Starting State

    A target is drawn from `targets` and split at random, by one of + - * / at a time, into 3 or 4 numbers
    (`numbers`) from 1 to `largest`, so every instance can be solved. Of a million pairs of seeds about one draws the
    same instance; `split` separates training and validation strictly. With `dataset` the instance is row `seed` modulo
    the number of rows, so different seeds give different rows. It depends on the seed alone.

    ## Rewards

    1 if the expression uses every given number exactly once and gives the target; 0.1 if it uses them and gives
    something else; 0 otherwise.

    ## Episode End

    Terminates with the first expression; success means a reward of 1, and effective a reward above 0. A text that is no
    expression is not valid and changes nothing.

    ## Arguments

    - `numbers=(3, 4)`: how many numbers there are, from the first to the second, each 2 to 6.
    - `largest=99`: the largest possible number, 5 to 999,999.
    - `targets=(10, 100)`: the smallest and the largest target, at most twice `largest`.
    - `dataset=None`: "Jiayi-Pan/Countdown-Tasks-3to4", or a local table with its columns target and nums. Read
      with the package datasets, which verl installs. The arguments above then have no effect and must be left out.
    - `rows=None`, `plus_minus=False`: take only the first `rows` rows of a dataset, and of these only the rows that +
      and - solve (each number added or subtracted). RAGEN-2 has 20,000 and true.
    - `split=None`: "train" or "val": nine tenths and one tenth of all instances, by their numbers and target, so that
      no instance is in both. None takes all.

    ## Version History

    - v0: first version. Unlike the original, training and validation rows can be kept apart, and without `rows` and
      `plus_minus` every row of a dataset is used.
    """

    instruction = (
        "Write an arithmetic expression that gives the target. Use every given number exactly once, with +, -, *, / "
        "and brackets, and no other number. Answer with the expression alone, for example (1 + 2) * 3. A right "
        "expression earns 1; one that uses the numbers as asked but gives another value earns 0.1."
    )
    max_actions = 1
    charset = Env.charset + "×÷−·⋅∕"
    external_arguments = ("dataset",)

    def __init__(
        self,
        numbers: tuple[int, int] | None = None,
        largest: int | None = None,
        targets: tuple[int, int] | None = None,
        dataset: str | None = None,
        split: Split | None = None,
        rows: int | None = None,
        plus_minus: bool = False,
    ) -> None:
        check_split("Countdown", split)
        if dataset is None and (rows is not None or plus_minus):
            raise RecipeError("Countdown's rows and plus_minus choose rows of a dataset: give one, or leave them out.")
        if rows is not None:
            check_whole("Countdown's rows", rows, 1)
        if dataset is not None and (numbers, largest, targets) != (None, None, None):
            raise RecipeError("Countdown takes its numbers from the dataset: leave out numbers, largest and targets.")
        self.counts = _pair("numbers", (3, 4) if numbers is None else numbers, 2, _MOST)
        self.largest = _pair("largest", (5, 99 if largest is None else largest), 5, 999_999)[1]
        usual = (10, min(100, 2 * self.largest))
        self.targets = _pair("targets", usual if targets is None else targets, 1, 2 * self.largest)
        self.split = split
        self._table = None
        if dataset is not None:
            keep = _plus_minus_solves if plus_minus else None
            columns = ("target", "nums")
            self._table = load(dataset, split=split, key=columns, columns=columns, first=rows, keep=keep)
        self.target = 0
        self.numbers: tuple[int, ...] = ()
        self._splits: list[tuple[Any, ...]] = []  # (whole, sign, part, part)
        self._answered = False
        self._reward = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw numbers and a target that can be reached with them."""
        super().reset(seed=seed)
        if self._table is not None:
            row = self._table[self.seed]
            self.target, self.numbers = int(row["target"]), tuple(int(number) for number in row["nums"])
        else:
            self._draw()
        self._answered, self._reward = False, 0.0
        return self.render(), {}

    def _draw(self) -> None:
        """Draw a target and split it into numbers, so that combining them again gives the target."""
        for _ in range(_TRIES):
            count = int(self.np_random.integers(self.counts[0], self.counts[1] + 1))
            self.target = int(self.np_random.integers(self.targets[0], self.targets[1] + 1))
            pool, self._splits = [self.target], []
            while len(pool) < count:
                value = pool.pop(int(self.np_random.integers(len(pool))))
                sign, *parts = _split(value, self.largest, self.np_random)
                pool += parts
                self._splits.append((value, sign, *parts))
            self.numbers = tuple(self.np_random.permutation(pool).tolist())
            if in_split(f"{self.target} {sorted(self.numbers)}", self.split):
                return
        raise RecipeError(f"Countdown finds no instance in the split {self.split!r}: widen numbers or targets.")

    def step(self, action: str) -> Step:
        """Compute an expression and end; a text that is no expression changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        tokens = _tokens(action) if isinstance(action, str) else None
        postfix = _postfix(tokens) if tokens else None
        if postfix is None or self._answered:
            return self._result(0.0, valid=postfix is not None)
        used = sorted(int(token) for token in tokens if token.isdigit())
        as_asked = used == sorted(self.numbers)
        # the expression uses only the given numbers, so no intermediate result can be large
        value = _compute(postfix) if as_asked else None
        self._answered = True
        self._reward = 0.0 if not as_asked else _SOLVED if value == self.target else _WRONG_VALUE
        return self._result(self._reward, valid=True)

    def _result(self, reward: float, *, valid: bool) -> Step:
        return self.outcome(
            reward, terminated=self._answered, success=self._reward == _SOLVED, valid=valid, effective=reward > 0
        )

    def render(self) -> str:
        """Return target and numbers, and after the answer the judgement."""
        task = f"Target: {self.target}, numbers: [{', '.join(map(str, self.numbers))}]"
        if not self._answered:
            return task
        said = {_SOLVED: "Correct.", _WRONG_VALUE: "Wrong value.", 0.0: "Not the given numbers, each exactly once."}
        return f"{task}\n{said[self._reward]}"

    def oracle(self) -> list[str]:
        """Return an expression that gives the target; [] after the answer, or if there is none."""
        if self._answered:
            return []
        if self._splits:
            return [_joined(self.numbers, self._splits)]
        found = _solve(tuple((Fraction(number), str(number)) for number in self.numbers), Fraction(self.target))
        return [found] if found else []

    def random_action(self, rng: np.random.Generator) -> str:
        """Return the numbers in any order, with any signs between them."""
        order = [str(self.numbers[int(place)]) for place in rng.permutation(len(self.numbers))]
        signs = ["+-*/"[int(place)] for place in rng.integers(4, size=len(order) - 1)]
        return " ".join(part for pair in zip(order, [*signs, ""], strict=True) for part in pair).strip()


def _plus_minus_solves(target: int, numbers: Sequence[int]) -> bool:
    """Tell whether adding or subtracting each of the numbers can give the target."""
    reached = {0}
    for number in numbers:
        reached = {before + signed for before in reached for signed in (number, -number)}
    return target in reached


def _pair(name: str, value: Any, lowest: int, highest: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else ()
    whole = len(pair) == 2 and all(isinstance(number, int) and not isinstance(number, bool) for number in pair)
    if not whole or not lowest <= pair[0] <= pair[1] <= highest:
        shown = pair[1] if name == "largest" and pair else value
        wanted = "an integer" if name == "largest" else "two integers in order"
        raise RecipeError(f"Countdown's {name} must be {wanted} from {lowest} to {highest}, not {shown!r}.")
    return pair


def _split(value: int, largest: int, rng: np.random.Generator) -> tuple[str, int, int]:
    """Return (sign, a, b) with `value` = a sign b; value from 1 to 2 * `largest`, a and b from 1 to `largest`."""
    parts = {
        "+": range(max(1, value - largest), min(largest, value - 1) + 1),
        "-": range(1, largest - value + 1),
        "*": [b for b in range(2, isqrt(value) + 1) if value % b == 0 and value // b <= largest],
        "/": range(2, largest // value + 1),
    }
    # weights are the roots of the numbers of choices: more variety than with equal weights, and still some * and /
    weights = np.cumsum([len(choices) ** 0.5 for choices in parts.values()])
    sign = list(parts)[int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))]
    b = parts[sign][int(rng.integers(len(parts[sign])))]
    return sign, {"+": value - b, "-": value + b, "*": value // b, "/": value * b}[sign], b


def _joined(numbers: tuple[int, ...], splits: list[tuple[int, str, int, int]]) -> str:
    """Return the expression that undoes `splits`."""
    texts: dict[int, list[str]] = {}
    for number in numbers:
        texts.setdefault(number, []).append(str(number))
    for value, sign, a, b in reversed(splits):
        text = f"({texts[a].pop()} {sign} {texts[b].pop()})"
        texts.setdefault(value, []).append(text)
    return text[1:-1]


def _combinations(a: Fraction, b: Fraction) -> list[tuple[Fraction, str]]:
    """Return the results of + - * / on two numbers in either order, each with a template of the expression."""
    results = [(a + b, "({a} + {b})"), (a - b, "({a} - {b})"), (b - a, "({b} - {a})"), (a * b, "({a} * {b})")]
    if b:
        results.append((a / b, "({a} / {b})"))
    if a:
        results.append((b / a, "({b} / {a})"))
    return results


def _solve(pool: tuple[tuple[Fraction, str], ...], target: Fraction) -> str | None:
    """Return an expression of all numbers in `pool`, (value, text) each, that gives `target`, or None."""
    if len(pool) == 1:
        return pool[0][1][1:-1] if pool[0][0] == target else None
    for one, other in combinations(range(len(pool)), 2):
        rest = tuple(pair for place, pair in enumerate(pool) if place not in (one, other))
        for value, template in _combinations(pool[one][0], pool[other][0]):
            text = template.format(a=pool[one][1], b=pool[other][1])
            found = _solve(((value, text), *rest), target)
            if found:
                return found
    return None


def _tokens(text: str) -> list[str] | None:
    """Split an expression into whole numbers, signs and brackets; None if it holds anything else."""
    if len(text) > _LONGEST:
        return None
    text, tokens, place = text.translate(_SIGNS).strip(), [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return None
        tokens.append(match[1])
        place = match.end()
    return tokens or None


def _postfix(tokens: list[str]) -> list[str] | None:
    """Return `tokens` in postfix order (Dijkstra's shunting yard, without recursion); None if they form none."""
    output: list[str] = []
    waiting: list[str] = []
    operand_next = True
    for token in tokens:
        if token.isdigit() or token == "(":
            if not operand_next:
                return None
            (waiting if token == "(" else output).append(token)
            operand_next = token == "("
        elif operand_next:
            if token != "-":
                return None
            waiting.append("negative")
        elif token == ")":
            while waiting and waiting[-1] != "(":
                output.append(waiting.pop())
            if not waiting:
                return None
            waiting.pop()
        else:
            while waiting and _RANK[waiting[-1]] >= _RANK[token]:
                output.append(waiting.pop())
            waiting.append(token)
            operand_next = True
    if operand_next or "(" in waiting:
        return None
    return output + waiting[::-1]


def _compute(postfix: list[str]) -> Fraction | None:
    """Return the exact value, or None for a division by 0."""
    stack: list[Fraction] = []
    for token in postfix:
        if token.isdigit():
            stack.append(Fraction(int(token)))
        elif token == "negative":
            stack.append(-stack.pop())
        else:
            second, first = stack.pop(), stack.pop()
            if token == "/" and not second:
                return None
            stack.append(
                {"+": first.__add__, "-": first.__sub__, "*": first.__mul__}.get(token, first.__truediv__)(second)
            )
    return stack[0]
