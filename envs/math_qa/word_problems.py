"""Word problems with whole-number answers, generated: several stories at three levels, exact by construction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["FAMILIES", "LEVELS", "Problem", "generate"]

LEVELS = (1, 2, 3)
_NAMES = ("Ada", "Ben", "Chloe", "Dana", "Emil", "Farid", "Grace", "Hana", "Ivan", "Jun", "Kofi", "Lena", "Mara")
_THINGS = ("apples", "books", "candles", "cards", "coins", "marbles", "pencils", "plants", "shells", "stamps")
_SHOPS = ("notebook", "ticket", "mug", "lamp", "puzzle", "scarf", "plant", "ball")


class Problem(NamedTuple):
    """A question, its answer and the name of its story."""

    question: str
    answer: int
    family: str


class _Draw:
    """Numbers and words for one story; numbers grow with the level."""

    def __init__(self, rng: np.random.Generator, level: int) -> None:
        self.rng = rng
        self.level = level

    def number(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included; each further level triples the range."""
        return int(self.rng.integers(low, low + (high - low) * 3 ** (self.level - 1) + 1))

    def pick(self, words: tuple[str, ...], n: int = 1) -> list[str]:
        """Return `n` different words."""
        return [words[int(place)] for place in self.rng.choice(len(words), n, replace=False)]


def generate(rng: np.random.Generator, level: int | None = None) -> Problem:
    """Return a problem of `level` (None: any), drawn with `rng`.

    Level 1 needs one or two operations on small numbers; levels 2 and 3 add one step each and use larger numbers.
    """
    level = int(rng.integers(1, 4)) if level is None else level
    family = FAMILIES[int(rng.integers(len(FAMILIES)))]
    question, answer = family(_Draw(rng, level))
    return Problem(question, answer, family.__name__.lstrip("_"))


def _collection(draw: _Draw) -> tuple[str, int]:
    (name, friend), (thing,) = draw.pick(_NAMES, 2), draw.pick(_THINGS)
    have, got = draw.number(5, 30), draw.number(2, 20)
    text, answer = f"{name} has {have} {thing} and gets {got} more from {friend}.", have + got
    if draw.level > 1:
        lost = min(draw.number(1, 6), answer)
        text, answer = f"{text} Then {name} gives away {lost} of them.", answer - lost
    if draw.level > 2:
        times = int(draw.rng.integers(2, 6))
        return f"{text} {friend} has {times} times as many as {name} has now. How many {thing} has {friend}?", (
            answer * times
        )
    return f"{text} How many {thing} does {name} have now?", answer


def _shopping(draw: _Draw) -> tuple[str, int]:
    (name,), (first, second) = draw.pick(_NAMES), draw.pick(_SHOPS, 2)
    price, count = draw.number(2, 9), draw.number(2, 8)
    text, cost = f"One {first} costs {price} dollars. {name} buys {count} of them", price * count
    if draw.level > 1:
        other = draw.number(3, 15)
        text, cost = f"{text} and one {second} for {other} dollars", cost + other
    if draw.level > 2:
        coupon = min(draw.number(2, 4), cost)
        text, cost = f"{text}, and a coupon takes {coupon} dollars off the total", cost - coupon
    paid = cost + draw.number(1, 20)
    return f"{text}. {name} pays with {paid} dollars. How many dollars does {name} get back?", paid - cost


def _sharing(draw: _Draw) -> tuple[str, int]:
    (name,), (thing,) = draw.pick(_NAMES), draw.pick(_THINGS)
    people, each = draw.number(2, 7), draw.number(3, 12)
    total = people * each
    if draw.level == 1:
        return f"{name} shares {total} {thing} equally among {people} children. How many does each child get?", each
    kept = draw.number(1, 10)
    text = f"{name} has {total + kept} {thing}, keeps {kept} and shares the rest equally among {people} children."
    if draw.level == 2:
        return f"{text} How many does each child get?", each
    eaten = min(draw.number(1, 3), each)
    return f"{text} One of the children then loses {eaten} {thing}. How many does that child have left?", each - eaten


def _journey(draw: _Draw) -> tuple[str, int]:
    (name,) = draw.pick(_NAMES)
    speed, hours = draw.number(4, 25), draw.number(2, 5)
    text, way = f"{name} rides at {speed} kilometres per hour for {hours} hours", speed * hours
    if draw.level > 1:
        slow, longer = draw.number(2, 10), draw.number(2, 4)
        text, way = f"{text} and then at {slow} kilometres per hour for {longer} hours", way + slow * longer
    if draw.level > 2:
        left = draw.number(5, 40)
        return f"{text}. The whole way is {way + left} kilometres. How many kilometres are left?", left
    return f"{text}. How many kilometres does {name} ride in all?", way


def _saving(draw: _Draw) -> tuple[str, int]:
    (name,) = draw.pick(_NAMES)
    weekly, weeks, had = draw.number(3, 12), draw.number(3, 9), draw.number(4, 30)
    goal = had + weekly * weeks
    if draw.level == 1:
        return f"{name} saves {weekly} dollars a week. How many dollars is that after {weeks} weeks?", weekly * weeks
    text = f"{name} has {had} dollars and saves {weekly} dollars a week."
    if draw.level == 2:
        return f"{text} After how many weeks does {name} have {goal} dollars?", weeks
    spent = draw.number(2, 9)
    return (
        f"{text} A present costs {goal - spent} dollars and its wrapping {spent} dollars. After how many weeks can "
        f"{name} pay for both?"
    ), weeks


def _ages(draw: _Draw) -> tuple[str, int]:
    young, old, third = draw.pick(_NAMES, 3)
    age, gap = int(draw.rng.integers(4, 21)), int(draw.rng.integers(2, 16))
    years = int(draw.rng.integers(2, 11))
    text = f"{young} is {age} years old. {old} is {gap} years older than {young}."
    if draw.level == 1:
        return f"{text} How old is {old}?", age + gap
    if draw.level == 2:
        return f"{text} How old will {old} be in {years} years?", age + gap + years
    text = f"{text} {third} is twice as old as {old}."
    return f"{text} How old will the three be together in {years} years?", age + 3 * (age + gap) + 3 * years


def _rectangle(draw: _Draw) -> tuple[str, int]:
    width, length = sorted((draw.number(2, 20), draw.number(3, 30)))
    text = f"A garden is {length} metres long and {width} metres wide."
    if draw.level == 1:
        return f"{text} What is its area in square metres?", width * length
    price = draw.number(2, 6)
    fence = 2 * (width + length)
    if draw.level == 2:
        return f"{text} A fence around it costs {price} dollars per metre. How many dollars is that?", fence * price
    gate = int(draw.rng.integers(2, 4))
    text = f"{text} A fence goes around it, except for a gate of {gate} metres, and costs {price} dollars per metre."
    return f"{text} How many dollars is that?", (fence - gate) * price


def _discount(draw: _Draw) -> tuple[str, int]:
    (name,), (thing,) = draw.pick(_NAMES), draw.pick(_SHOPS)
    percent = 5 * int(draw.rng.integers(1, 19))
    price = 20 * draw.number(1, 10)
    off = price * percent // 100  # exact: 20 times a multiple of 5 is a multiple of 100
    text = f"The price of one {thing} is {price} dollars. Today it is {percent} percent lower."
    if draw.level == 1:
        return f"{text} By how many dollars is it lower?", off
    if draw.level == 2:
        return f"{text} What does one {thing} cost today, in dollars?", price - off
    count = draw.number(2, 6)
    return f"{text} {name} buys {count} of them. How many dollars does {name} pay today?", (price - off) * count


def _work(draw: _Draw) -> tuple[str, int]:
    (first, second), (thing,) = draw.pick(_NAMES, 2), draw.pick(_THINGS)
    one, other, hours = draw.number(2, 12), draw.number(2, 12), draw.number(2, 8)
    text = f"{first} packs {one} {thing} an hour"
    if draw.level == 1:
        return f"{text}. How many does {first} pack in {hours} hours?", one * hours
    total = (one + other) * hours
    text = f"{text} and {second} packs {other} an hour. Working together they"
    if draw.level == 2:
        return f"{text} work for {hours} hours. How many {thing} do they pack?", total
    done = draw.number(1, 30)
    return (
        f"{text} must pack {total + done} {thing}, of which {done} are packed already. How many hours do they need?"
    ), hours


FAMILIES = (_collection, _shopping, _sharing, _journey, _saving, _ages, _rectangle, _discount, _work)
