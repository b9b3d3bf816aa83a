"""SearchQA: answer a question after searching a corpus."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from ragen_envs.common.bm25 import Bm25
from ragen_envs.common.http import check_url, post_json
from ragen_envs.common.lines import parse_call, sanitise
from ragen_envs.common.shared import share
from ragen_envs.search_qa.fictional_world import Passage, Question, world

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_choice, check_number, check_seconds, check_whole
from ragen_verl.env.text import FreeTextEnv
from ragen_verl.errors import RecipeError

__all__ = ["Library", "SearchQA", "exact_match", "f1"]

_MAX_STEPS = 10
_PASSAGE_CHARS, _RESULT_CHARS = 800, 4000
_VAL_EVERY = 5
_REWARDS = ("threshold", "released", "em", "f1")
_CALLS = {"search": "search", "finish": "finish", "answer": "finish"}


class SearchQA(FreeTextEnv):
    """## Description

    A question whose answer is in a corpus that can only be searched. The rules are those of RAGEN-2's search
    environment (arXiv 2604.06268); the tags are those of Search-R1 (arXiv 2503.09516). Local search is BM25 by bm25s:
    `make add PACKAGE="ragen-verl[search]"`, or outside a checkout `pip install "ragen-verl[search]"`.

    ## Action Space

    Text: `search[query]` or `<search>query</search>`; `finish[answer]` or `<answer>answer</answer>`; in any case.

    ## Observation Space

    Text: the question and, after a search, the passages found: at most 800 characters of each, and 4,000 in total.

    ## Starting State

    A question drawn uniformly from `split`. Depends on the seed alone.

    ## Rewards

    On finishing, with exact match and F1 over words as SQuAD defines them, the best over all accepted answers:
    `reward="threshold"` pays 1 for an exact match or an F1 of `f1_threshold` or more (RAGEN-2's text), "released" 1 for
    an exact match and the F1 from `f1_threshold` on (RAGEN-2's code), "em" 1 for an exact match, "f1" the F1. 0
    otherwise. A low threshold also pays for answers that list several guesses.

    ## Episode End

    Terminates on finishing; success is a reward of 1 under "threshold", or with "em" an exact match. Truncates after 10
    actions.

    ## Arguments

    - `corpus=None`: a JSONL file with `text`, `contents` or `content`, and perhaps `title`, per line; by default an
      invented country in 350 passages.
    - `questions=None`: a JSONL file with `question` and `answer`, `answers`, `golden_answers` or `ground_truth` (a text
      or a list); by default 1,050 questions about that country. `corpus` and `questions` go together.
    - `split="train"`: "val" is every fifth question, "train" the others, "all" both.
    - `results=5`: passages per search, 1 to 50.
    - `reward="threshold"`, `f1_threshold=0.3`: see Rewards; the threshold goes with all but "em".
    - `url=None`: a server to search instead of a corpus, which then may not be given. It gets a POST with `query` and
      `top_k`, as well as `queries` and `topk`, and answers `{"results": [{"content": ..}]}` (RAGEN-2) or
      `{"result": [[{"document": {"contents": ..}}]]}` (Search-R1). A server without an answer raises ConnectionError.
    - `timeout=30.0`, `retries=3`: seconds per attempt, attempts after the first; for `url`.

    ## Version History

    - v0: first version. Unlike in RAGEN-2, a text that is no action is not treated as an answer, and a server that is
      down ends the episode with an error, not with a passage that reports it.
    """

    max_actions = 5
    instruction = (
        "You are answering a question with the help of a search engine. search[words] shows passages that contain some "
        "of the words; a question may need several searches, one building on the other. finish[answer] ends the game: "
        "answer with the name, number or word asked for and nothing else. A right answer earns 1."
    )
    external_arguments = ("corpus", "questions", "url")

    def __init__(
        self,
        corpus: str | None = None,
        questions: str | None = None,
        split: Literal["train", "val", "all"] = "train",
        results: int = 5,
        reward: Literal["threshold", "released", "em", "f1"] = "threshold",
        f1_threshold: float = 0.3,
        url: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        if split not in ("train", "val", "all"):
            raise RecipeError(f"SearchQA's split must be 'train', 'val' or 'all', not {split!r}.")
        check_choice("SearchQA's reward", reward, _REWARDS)
        for name, value, low, high in (("results", results, 1, 50), ("retries", retries, 0, 100)):
            check_whole(f"SearchQA's {name}", value, low, high)
        check_number("SearchQA's f1_threshold", f1_threshold, 1e-9, 1, "above 0 and at most 1")
        check_seconds("SearchQA's timeout", timeout)
        if url is not None:
            check_url(url, "SearchQA's url")
            if corpus is not None:
                raise RecipeError("SearchQA searches either url or corpus: leave out one of them.")
        elif (corpus is None) != (questions is None):
            raise RecipeError("SearchQA needs corpus and questions together: give both or neither.")
        self.split, self.results, self.reward, self.f1_threshold = split, results, reward, float(f1_threshold)
        self.url, self.timeout, self.retries = url, timeout, retries
        self._shared = share(_library, corpus, questions, url is None)
        self._numbers = _numbers(len(self.library.questions), split)
        if not self._numbers:
            raise RecipeError(f"SearchQA has {len(self.library.questions)} questions, too few for the split {split!r}.")
        self._number: int | None = None
        self._clear()

    def _clear(self) -> None:
        self._said, self._actions_made = "", 0
        self._searched: tuple[str, ...] = ()
        self._answer: str | None = None

    @property
    def library(self) -> Library:
        """Corpus and questions, shared by all instances of this process and therefore not part of a copy."""
        return self._shared.value

    @property
    def question(self) -> Question | None:
        """The question of the episode; None before the first reset."""
        return None if self._number is None else self.library.questions[self._number]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a question."""
        super().reset(seed=seed)
        self._number = self._numbers[int(self.np_random.integers(len(self._numbers)))]
        self._clear()
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Search or answer; any other text changes nothing.

        Raises:
            ConnectionError: the server at `url` gives no usable answer.
        """
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        call = parse_call(action, _CALLS)
        if call is None or not call[1] or self._answer is not None:
            return self._result(0.0, valid=False, effective=False)
        before = self._said
        if _CALLS[call[0]] == "search":
            query = sanitise(call[1], 1000)
            self._searched = (*self._searched, query)
            self._said = f"Results for {sanitise(query, 200)!r}:\n{self._search(query)}"
        else:
            self._answer = call[1]
            self._said = f"You answered: {sanitise(self._answer, 200)}"
        self._actions_made += 1
        return self._result(self._earned(), valid=True, effective=self._said != before)

    def _search(self, query: str) -> str:
        if self.url is None:
            texts = self.library.search(query, self.results)
        else:
            texts = _ask_server(self.url, query, self.results, self.timeout, self.retries)
        passages = [f"[{number}] {sanitise(text, _PASSAGE_CHARS)}" for number, text in enumerate(texts, 1)]
        return "\n".join(passages)[:_RESULT_CHARS] or "Nothing was found."

    def _grade(self) -> tuple[bool, float]:
        """Return exact match and F1 of the answer."""
        if self._answer is None:
            return False, 0.0
        grades = [(exact_match(self._answer, true), f1(self._answer, true)) for true in self.question.answers]
        return any(exact for exact, _ in grades), max(score for _, score in grades)

    def _right(self) -> bool:
        exact, score = self._grade()
        return exact or (self.reward != "em" and score >= self.f1_threshold)

    def _earned(self) -> float:
        exact, score = self._grade()
        if self.reward == "f1" or (self.reward == "released" and not exact and self._right()):
            return score
        return float(self._right())

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        exact, score = self._grade()
        done = self._answer is not None
        return self.outcome(
            reward,
            terminated=done,
            truncated=not done and self._actions_made >= _MAX_STEPS,
            success=self._right(),
            valid=valid,
            effective=effective,
            exact_match=float(exact),
            f1=score,
        )

    def render(self) -> str:
        """Return the question and the result of the last action."""
        if self.question is None:
            return ""
        return f"Question: {self.question.question}" + (f"\n{self._said}" if self._said else "")

    def random_action(self, rng: np.random.Generator) -> str:
        """Search for a word of the question or, half of the time after a search, answer with a word of the results."""
        found = self._said.split("\n", 1)[-1].split()
        if found and rng.random() < 0.5:
            return f"finish[{found[int(rng.integers(len(found)))]}]"
        words = self.question.question.split()
        return f"search[{words[int(rng.integers(len(words)))]}]"

    def oracle(self) -> list[str]:
        """Return the searches that lead to the answer, then the answer; [] once answered.

        Questions of a file do not name their passages, so there the search is for the question itself.
        """
        question = self.question
        if question is None or self._answer is not None:
            return []
        wanted = question.hops or (question.question,)
        left = [title for title in wanted if title not in self._searched]
        return [*(f"search[{title}]" for title in left), f"finish[{question.answers[0]}]"]


# -- corpus and questions ---------------------------------------------------------------------------------------------


class Library(NamedTuple):
    """Questions and, where search is local, texts with their index; never changed after it is built."""

    questions: tuple[Question, ...]
    texts: tuple[str, ...] = ()
    index: Bm25 | None = None  # type: ignore[assignment]  # a tuple has a method of this name

    def search(self, query: str, k: int) -> list[str]:
        """Return up to `k` texts, the best first."""
        return [self.texts[place] for place in self.index.search(query, k)]


def _library(corpus: str | None, questions: str | None, local: bool) -> Library:
    """Build the library of these files."""
    passages, asked = world() if corpus is None or questions is None else ([], [])
    if corpus is not None:
        passages = [_passage(line) for line in _lines(corpus, "corpus")]
    if questions is not None:
        asked = [_question(line) for line in _lines(questions, "questions")]
    if not passages:
        raise RecipeError(f"SearchQA's corpus {corpus!r} has no passage.")
    texts = tuple(f"{title}: {text}" if title else text for title, text in passages) if local else ()
    return Library(tuple(asked), texts, Bm25(texts) if local else None)


def _lines(path: str, what: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a JSONL file; a RecipeError names a line that is no object."""
    file = Path(path)
    if not file.is_file():
        raise RecipeError(f"SearchQA's {what} {path!r} is no file: give the path of a JSONL file.")
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RecipeError(f"Line {number} of SearchQA's {what} {path!r} is no JSON ({error}).") from error


def _field(line: Mapping[str, Any], *names: str) -> Any:
    found = next((line[name] for name in names if isinstance(line, Mapping) and name in line), None)
    if not found:
        raise RecipeError(f"A line of SearchQA's files has none of {', '.join(names)}: {sanitise(line, 100)}.")
    return found


def _passage(line: Mapping[str, Any]) -> Passage:
    text = sanitise(_field(line, "text", "contents", "content"), 100_000)
    return Passage(sanitise(line.get("title") or "", 300), text)


def _question(line: Mapping[str, Any]) -> Question:
    answers = _field(line, "answers", "golden_answers", "answer", "ground_truth")
    answers = answers if isinstance(answers, list) else [answers]
    return Question(sanitise(_field(line, "question"), 2000), tuple(sanitise(answer, 1000) for answer in answers), ())


def _numbers(total: int, split: str) -> list[int]:
    return [n for n in range(total) if split == "all" or (n % _VAL_EVERY == _VAL_EVERY - 1) == (split == "val")]


def _ask_server(url: str, query: str, k: int, timeout: float, retries: int) -> list[str]:
    body = {"query": query, "top_k": k, "queries": [query], "topk": k, "return_scores": True}
    answer = post_json(url, body, timeout=timeout, retries=retries)
    try:
        if "results" in answer:
            return [str(found["content"]) for found in answer["results"][:k]]
        return [str(found.get("document", found)["contents"]) for found in answer["result"][0][:k]]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConnectionError(f"{url} does not answer in the format of a retrieval server ({error!r}).") from error


# -- grading ----------------------------------------------------------------------------------------------------------


def _normalised(text: str) -> list[str]:
    """Return the words of an answer as SQuAD compares them: lower case, no punctuation, no articles."""
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(?:an?|the)\b", " ", bare).split()


def exact_match(answer: str, true: str) -> bool:
    """Tell whether two answers are the same words."""
    return _normalised(answer) == _normalised(true)


def f1(answer: str, true: str) -> float:
    """Return the harmonic mean of precision and recall over words; yes and no count only as a whole."""
    given, wanted = _normalised(answer), _normalised(true)
    if given != wanted and any(words in (["yes"], ["no"], ["noanswer"]) for words in (given, wanted)):
        return 0.0
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted)) if common else 0.0
