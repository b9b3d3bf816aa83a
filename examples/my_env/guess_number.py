from ragen_verl import Env


class GuessNumber(Env):
    """Find a secret number from "higher" and "lower"."""

    max_actions = 8

    def __init__(self, largest: int = 16):
        self.largest = largest
        self.instruction = f"Guess the secret number, 1 to {largest}. Each action is one guess."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.secret = int(self.np_random.integers(1, self.largest + 1))
        self.hint = "No guess yet."
        return self.render(), {}

    def step(self, action):
        if not (action.strip().isdecimal() and len(action) < 10):
            return self.outcome(valid=False, effective=False)
        guess = int(action)
        self.hint = "right" if guess == self.secret else "higher" if guess < self.secret else "lower"
        right = guess == self.secret
        return self.outcome(float(right), terminated=right, success=right)

    def render(self):
        return self.hint

    def oracle(self):
        return [str(self.secret)]
