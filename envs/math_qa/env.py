"""MetaMathQA and GSM8K: word problems with retries, from the hub's datasets or generated."""

from __future__ import annotations

from ragen_envs.common.answers import number, same_mathematics
from ragen_envs.common.qa import QuestionAnswer
from ragen_envs.common.tables import Split, check_split, in_split, load
from ragen_envs.math_qa.word_problems import LEVELS, generate

from ragen_verl.errors import RecipeError

__all__ = ["GSM8K", "MetaMathQA"]


class _MathQA(QuestionAnswer):
    """Base class of the two environments; a subclass describes the layout of its dataset."""

    instruction = (
        "Solve the mathematics problem. Answer with the final result alone, without the calculation. If the answer is "
        "wrong you may try again; a right answer earns 1 at the first attempt and half as much at every further one."
    )
    config: str | None = None
    columns: tuple[str, str] = ("question", "answer")
    key: tuple[str, ...] = ("question",)
    mark = ""
    external_arguments = ("dataset",)

    def __init__(
        self, dataset: str | None = None, split: Split | None = None, level: int | None = None, attempts: int = 5
    ) -> None:
        super().__init__(attempts)
        name = type(self).__name__
        check_split(name, split)
        if level is not None and (isinstance(level, bool) or level not in LEVELS):
            raise RecipeError(f"{name}'s level must be one of {LEVELS} or left out, not {level!r}.")
        if dataset is not None and level is not None:
            raise RecipeError(f"{name} has levels only without a dataset: leave out level, or dataset.")
        self.split, self.level = split, level
        self._table = None
        if dataset is not None:
            hub_split, kept = self.rows(split)
            is_file = dataset.lower().endswith((".csv", ".json", ".jsonl", ".parquet"))
            # a file has no splits of its own, so its rows are split by content
            where = ("train", split) if is_file else (hub_split, kept)
            self._table = load(dataset, self.config, *where, self.key, self.columns)

    def rows(self, split: Split | None) -> tuple[str, Split | None]:
        """Return the split of the hub's dataset that `split` reads, and the part of its rows."""
        return "train", split

    def draw(self) -> tuple[str, str]:
        """Return the row of the dataset that belongs to the seed, or a generated problem."""
        if self._table is not None:
            question, answer = (str(self._table[self.seed][column]).strip() for column in self.columns)
            return question, answer.rpartition(self.mark)[2].strip()
        while True:  # this ends: about nine tenths of all questions are in "train", and one tenth in "val"
            problem = generate(self.np_random, self.level)
            if in_split(problem.question, self.split):
                return problem.question, str(problem.answer)

    def judge(self, answer: str) -> bool | None:
        """Compare by value where the truth is a number, else character by character."""
        if number(self.truth, whole=True) is not None and number(answer) is None:
            return None
        return same_mathematics(answer, self.truth)


class MetaMathQA(_MathQA):
    """## Description

    A mathematics problem in words; a wrong answer may be corrected. RAGEN-2 (arXiv 2604.06268) trains on the hub's
    `meta-math/MetaMathQA`; without `dataset` the problems are generated (`word_problems`): nine stories, three levels,
    whole-number answers.

    ## Action Space

    Free text: the result. It may have signs, thousands commas, decimals, fractions a/b and \\frac{a}{b}, currency, a
    unit after the number, `\\boxed{}` and "the answer is". Nothing is evaluated.

    ## Observation Space

    Text: the problem; after a wrong answer also the number of wrong answers so far.

    ## Starting State

    With `dataset` row `seed` (counted round), so different seeds give different rows; otherwise a problem drawn from
    the seed. The rollouts of a group read one text.

    ## Rewards

    1 / 2^k for a right answer after k wrong ones, 0 otherwise. Numbers are compared exactly by value, other answers
    character by character without blanks and LaTeX decorations.

    ## Episode End

    Terminates with a right answer (success) or after `attempts` wrong ones. A text without an answer (no number where
    the answer is one, an empty text, more than 10,000 characters) is not valid and uses up no attempt.

    ## Arguments

    - `dataset=None`: "meta-math/MetaMathQA", or a local table with its columns query, response and
      original_question. It is read with the package datasets, which verl installs.
    - `split=None`: "train" or "val": nine tenths and one tenth of all problems. The split follows the original
      question, so no problem is in both, not even rephrased. None takes all.
    - `level=None`: 1, 2 or 3 for generated problems, None for all of them.
    - `attempts=5`: judged answers per episode.

    ## Version History

    - v0: first version. Unlike in the original, training and validation rows can be separated, the budget allows the
      retries, and numbers are compared by value.
    """

    columns = ("query", "response")
    key = ("original_question",)
    mark = "The answer is:"


class GSM8K(_MathQA):
    """## Description

    A school mathematics problem in words; a wrong answer may be corrected. For the hub's `openai/gsm8k`
    (arXiv 2110.14168) with RAGEN's retry reward; without `dataset` the problems are generated
    (`ragen_envs.math_qa.word_problems`): nine stories, three levels, whole-number answers.

    ## Action Space

    Free text: the result, as in MetaMathQA.

    ## Observation Space

    Text: the problem; after a wrong answer also the number of wrong answers so far.

    ## Starting State

    With `dataset` row `seed` (counted round), so different seeds give different rows; otherwise a problem drawn from
    the seed. The rollouts of a group read one text.

    ## Rewards

    1 / 2^k for a right answer after k wrong ones, 0 otherwise. Numbers are compared exactly by value.

    ## Episode End

    Terminates with a right answer (success) or after `attempts` wrong ones. Text without a number is not
    valid and uses up no attempt.

    ## Arguments

    - `dataset=None`: "openai/gsm8k", or a local table with its columns question and answer. It is read with
      the package datasets, which verl installs.
    - `split=None`: "train" or "val". In the hub's dataset these are its own train and test sets (None: train); in a
      file and in generated problems they are nine tenths and one tenth, by content (None: all).
    - `level=None`: 1, 2 or 3 for generated problems, None for all of them.
    - `attempts=5`: judged answers per episode.

    ## Version History

    - v0: first version.
    """

    config = "main"
    mark = "####"

    def rows(self, split: Split | None) -> tuple[str, Split | None]:
        """Return the dataset's own test set for "val"."""
        return ("test" if split == "val" else "train"), None
