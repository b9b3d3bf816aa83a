"""A small invented country: passages, and questions about them; the corpus of SearchQA without any download.

One fixed seed determines everything: rivers, towns, people, companies and books that refer to each other. Every
question has one answer. It is in one passage, or needs two passages of which the first leads to the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Passage", "Question", "world"]

_SEED = 2025
_TOWNS, _PEOPLE, _COMPANIES, _BOOKS = 60, 150, 60, 80
_words = str.split
_START = _words(
    "Ald Bren Cass Dor Elm Fal Gren Hol Ister Jor Kest Lin Mar Nor Osk Per Quil Rav Sel Tor Ulv Ves Wex Yar"
)
_TOWN_END = _words("bury combe dale fold gate ham mere minster mouth port stead thorpe wick worth")
_FIRST = _words(
    "Ada Anselm Berit Bruno Celia Corin Della Edgar Elspet Felix Greta Hanno Ilse Jasper Katya Leopold Mirel"
)
_FIRST += _words("Nils Odette Piet Rosa Silvan Thea Ulrich Vera Wanda")
_LAST_END = _words("ander by eck feld grim holt ian kov low man ner olin quist row sen tal vik wood")
_RIVERS = _words("Aller Brisk Corve Dunmere Estel Fenna Garrow Hesk Ivel Jarrow")
_REGIONS = _words("Northmark Eastfold Southlea Westreach Midvale Highfells")
_JOBS = _words("astronomer botanist carpenter composer engineer geologist historian painter physician surveyor")
_GOODS = _words("bicycles candles carpets clocks glassware lanterns paper pianos porcelain rope sails telescopes")
_GENRES = _words("ballad chronicle comedy essay fable memoir novel tragedy")
_TITLES = _words("Amber Broken Distant Frozen Golden Hidden Last Quiet Silver Wandering")
_THINGS = _words("Anchor Bridge Compass Garden Harbour Lantern Mirror Orchard Tower Winter")


class Passage(NamedTuple):
    """A page of the corpus."""

    title: str
    text: str


class Question(NamedTuple):
    """A question, its accepted answers, and the titles of the passages that lead to it, in order."""

    question: str
    answers: tuple[str, ...]
    hops: tuple[str, ...]


def world() -> tuple[list[Passage], list[Question]]:
    """Return the passages and the questions; every call returns the same."""
    rng = np.random.default_rng(_SEED)
    passages: list[Passage] = []
    questions: list[Question] = []

    def pick(things: list) -> int:
        return int(rng.integers(len(things)))

    def ask(text: str, answer: str | int, *hops: str) -> None:
        questions.append(Question(text, (str(answer),), hops))

    names = _names(rng, _START, _TOWN_END, _TOWNS)
    towns = [(name, _RIVERS[pick(_RIVERS)], _REGIONS[pick(_REGIONS)], int(rng.integers(902, 1790))) for name in names]
    surnames = _names(rng, _START, _LAST_END, _PEOPLE)
    people = [f"{_FIRST[pick(_FIRST)]} {surname}" for surname in surnames]
    mayors = rng.permutation(_PEOPLE)[:_TOWNS].tolist()
    for (name, river, region, year), mayor in zip(towns, mayors, strict=True):
        text = f"{name} is a town in {region} on the river {river}. It was founded in {year}."
        passages.append(Passage(name, f"{text} Its mayor is {people[mayor]}."))
        ask(f"On which river does {name} lie?", river, name)
        ask(f"In which year was {name} founded?", year, name)
        ask(f"Who is the mayor of {name}?", people[mayor], name)
    births = []
    for person in people:
        town, job, year = towns[pick(towns)], _JOBS[pick(_JOBS)], int(rng.integers(1820, 1990))
        births.append((town, job))
        passages.append(Passage(person, f"{person} is {_article(job)} {job}, born in {town[0]} in {year}."))
        ask(f"In which town was {person} born?", town[0], person)
        ask(f"In which region is the birthplace of {person}?", town[2], person, town[0])
        ask(f"Which river runs through the birthplace of {person}?", town[1], person, town[0])
    for name in _names(rng, _START, ["son", "ley", "ton", "mark"], _COMPANIES):
        company, town, founder, goods = f"{name} Works", towns[pick(towns)], pick(people), _GOODS[pick(_GOODS)]
        text = f"{company} makes {goods}. The company was founded by {people[founder]} and is based in {town[0]}."
        passages.append(Passage(company, text))
        ask(f"What does {company} make?", goods, company)
        ask(f"In which region is {company} based?", town[2], company, town[0])
        ask(f"What is the profession of the founder of {company}?", births[founder][1], company, people[founder])
    titles = [f"The {first} {second}" for first in _TITLES for second in _THINGS]
    for place in rng.permutation(len(titles))[:_BOOKS].tolist():
        title, author, genre = titles[place], pick(people), _GENRES[pick(_GENRES)]
        year = int(rng.integers(1850, 2010))
        passages.append(
            Passage(title, f"{title} is {_article(genre)} {genre} by {people[author]}, first printed in {year}.")
        )
        ask(f"Who wrote {title}?", people[author], title)
        ask(f"In which year was {title} first printed?", year, title)
        ask(f"In which town was the author of {title} born?", births[author][0][0], title, people[author])
    return passages, questions


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _names(rng: np.random.Generator, starts: list[str], ends: list[str], number: int) -> list[str]:
    """Draw different names made of a start and an end."""
    every = [start + end for start in starts for end in ends]
    return [every[place] for place in rng.permutation(len(every))[:number].tolist()]
