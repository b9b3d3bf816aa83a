"""GuessNumber: find a secret number from "higher" and "lower"."""

from ragen_verl import Env
from ragen_verl.errors import RecipeError


class GuessNumber(Env):
    """A number between 1 and `largest` is drawn; each action is a guess, in digits. Reward 1 for the right one."""

    def __init__(self, largest: int = 16) -> None:
        if not isinstance(largest, int) or largest < 2:
            raise RecipeError(f"GuessNumber's largest must be an integer of 2 or more, not {largest!r}.")
        self.largest = largest
        self.instruction = f"Guess the secret number, a whole number from 1 to {largest}. Each action is one guess."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.secret = int(self.np_random.integers(1, self.largest + 1))
        self.hint = "No guess yet."
        return self.render(), {}

    def step(self, action):
        guess = int(action) if action.strip().isdecimal() and len(action) < 10 else None
        if guess is None:
            return self.outcome(valid=False, effective=False)
        solved = guess == self.secret
        self.hint = (
            f"{guess} is right." if solved else f"It is {'higher' if guess < self.secret else 'lower'} than {guess}."
        )
        return self.outcome(float(solved), terminated=solved, success=solved)

    def render(self):
        return self.hint

    def oracle(self):
        return [str(self.secret)]
