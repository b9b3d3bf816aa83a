"""Bandit: one pull of one of two named arms, a steady one and a risky one."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from ragen_verl.env import Env, Step
from ragen_verl.env.arguments import check_number
from ragen_verl.errors import RecipeError

__all__ = ["PAIRS", "Bandit", "BanditGen", "BanditGenTest", "BanditRev", "BanditRevTest", "BanditTest"]

# (steady job, risky job): RAGEN-2's pairs, the low arm first.
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "train": (
        ("Teacher", "Trader"),
        ("Nurse", "StartupFounder"),
        ("Librarian", "Investor"),
        ("Accountant", "StockBroker"),
        ("Engineer", "RealEstateAgent"),
        ("Pharmacist", "Musician"),
        ("Clerk", "Freelancer"),
        ("Technician", "Youtuber"),
        ("Planner", "Artist"),
        ("Postman", "Pilot"),
        ("Banker", "VentureCapitalist"),
        ("Gardener", "Cryptominer"),
    ),
    "test": (
        ("Receptionist", "Explorer"),
        ("Archivist", "Filmmaker"),
        ("Bookkeeper", "Consultant"),
        ("SocialWorker", "Photographer"),
        ("Mechanic", "GameDesigner"),
        ("Secretary", "Entrepreneur"),
        ("Cashier", "DataScientist"),
        ("CivilServant", "StartupAccelerator"),
    ),
}
_HIGH_PROBABILITY = 0.25


class Bandit(Env):
    """## Description

    Two arms with meaningful names, and one pull. The low arm pays the same every time; the high arm pays rarely but
    more on average. Only their names distinguish them. From RAGEN (arXiv 2504.20073, Bi-Arm Bandit); the job pairs of
    `split` are RAGEN-2's (arXiv 2604.06268).

    ## Action Space

    The names of the two arms of this episode, in the order shown. Read `actions` after `reset`.

    ## Observation Space

    Text: the whole task (`instruction` is empty); after the pull, "<name>: <reward> points".

    ## Starting State

    With `split`, a pair is drawn uniformly. Which arm is named first is drawn with probability 1/2. Both depend on
    the seed alone, so the rollouts of a group read one text; the payout depends on (seed, rollout index).

    ## Rewards

    Low arm: `low_reward`. High arm: 1 with probability 0.25, else 0.

    ## Episode End

    Terminates with the pull; success means that the high arm was pulled, whatever it paid.

    ## Arguments

    - `low="Phoenix"`, `high="Dragon"`: names of the arms.
    - `low_reward=0.15`: the reward of the low arm; 0.15 in the paper, 0.1 in the code released with it.
    - `split=None`: "train" or "test" draws the arms from RAGEN-2's 12 or 8 pairs instead of `low` and `high`.

    Registered variants: `BanditTest-v0` (Trader, Librarian); the generalisation pairs `BanditGen-v0` (Engineer,
    Teacher) and `BanditGenTest-v0` (Trader, Librarian); with the roles swapped `BanditRev-v0` (Teacher, Engineer)
    and `BanditRevTest-v0` (Librarian, Trader). Each pair gives the low arm first.

    The paper's text and its scripts contradict each other on which of each pair is the high arm; these variants
    follow the scripts.

    ## Version History

    - v0: first version. Unlike the originals, the rollouts of a group share the text but not the payout.
    """

    max_actions = 1

    def __init__(
        self,
        low: str | None = None,
        high: str | None = None,
        low_reward: float = 0.15,
        split: Literal["train", "test"] | None = None,
    ) -> None:
        if split is not None:
            if split not in PAIRS:
                raise RecipeError(f"Bandit's split must be 'train' or 'test', not {split!r}.")
            if low is not None or high is not None:
                raise RecipeError("Bandit draws its arms from split: leave out low and high, or split.")
        self.pairs = PAIRS[split] if split else ((low or "Phoenix", high or "Dragon"),)
        for pair in self.pairs:
            clean = all(isinstance(name, str) and name and name == name.strip() for name in pair)
            if not clean or pair[0].casefold() == pair[1].casefold():
                raise RecipeError(f"Bandit's arms need two different names without blanks around them, not {pair!r}.")
        check_number("Bandit's low_reward", low_reward)
        self.low_reward = float(low_reward)
        self.low, self.high = self.pairs[0]
        self.actions = (self.low, self.high)
        self._pulled: str | None = None
        self._paid = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw the arms and the order in which they are named."""
        super().reset(seed=seed)
        self.low, self.high = self.pairs[int(self.np_random.integers(len(self.pairs)))]
        swapped = self.np_random.random() < 0.5
        self.actions = (self.high, self.low) if swapped else (self.low, self.high)
        self.action_space.names = self.actions
        self._pulled, self._paid = None, 0.0
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Pull an arm; an unknown name pulls none."""
        name = self.name_of(action)
        transitions = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        if name is None or self._pulled is not None:
            return self._result(0.0, valid=name is not None, effective=False)
        self._pulled = name
        self._paid = self.low_reward if name == self.low else float(transitions.random() < _HIGH_PROBABILITY)
        return self._result(self._paid, valid=True, effective=True)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        return self.outcome(
            reward,
            terminated=self._pulled is not None,
            success=self._pulled == self.high,
            valid=valid,
            effective=effective,
        )

    def render(self) -> str:
        """Return the task, or the reward of the pull."""
        if self._pulled is not None:
            return f"{self._pulled}: {self._paid} points"
        first, second = self.actions
        return (
            f"You face two slot machine arms, named {first} and {second}. Each pays points from a distribution of its "
            "own, and its name hints at what that distribution is like. You may pull one arm, once. Think about what "
            "each name stands for, decide which arm pays more on average, and answer with its name: "
            f"<answer> {first} </answer> or <answer> {second} </answer>."
        )

    def oracle(self) -> list[str]:
        """Return the high arm; [] after the pull."""
        return [] if self._pulled is not None else [self.high]


BanditTest = partial(Bandit, low="Trader", high="Librarian")
BanditGen = partial(Bandit, low="Engineer", high="Teacher")
BanditGenTest = partial(Bandit, low="Trader", high="Librarian")
BanditRev = partial(Bandit, low="Teacher", high="Engineer")
BanditRevTest = partial(Bandit, low="Librarian", high="Trader")
