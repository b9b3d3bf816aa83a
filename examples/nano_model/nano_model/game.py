"""One episode played in step, without an engine: the real protocol around a real environment, text in and text out.

The scripted players and the plain-PyTorch evaluation use it. It follows the rules of `rollout.episode`, which does the
same asynchronously around a real engine (a test plays both).
"""

from __future__ import annotations

from ragen_verl.env import Env
from ragen_verl.rollout.protocol import Protocol


class Game:
    """An episode of `env` from its reset to its end.

    Attributes:
        user: the user message the player sees now (the first one includes the task).
        done: no further answer is expected.
        success: the last action ended the episode and solved it.
        ret: sum of the environment's rewards and of the format penalties.
        turns, valid_turns: answers given, and those of known actions only.
    """

    def __init__(self, env: Env, protocol: Protocol, seed: int, rollout_index: int = 0) -> None:
        self.env, self.protocol = env, protocol
        self.state, _ = env.reset(seed=seed, options={"rollout_index": rollout_index})
        self.actions_left = protocol.budget(env)
        self.user = protocol.first_user(env, self.state)
        self.turns = self.valid_turns = 0
        self.ret = 0.0
        self.success = self.done = False

    def answer(self, text: str) -> None:
        """Act on one response, given as generated (without the forced tag)."""
        names = self.protocol.parse(text).actions
        known = [name for name in names if not self.env.actions or self.env.name_of(name)]
        valid, over, reward = bool(names) and len(known) == len(names), False, 0.0
        for name in known[: self.actions_left]:
            step = self.env.step(name)
            self.actions_left -= 1
            self.state = step.observation
            reward += step.reward
            self.success = bool(step.info["success"])
            over = self.success or step.terminated or step.truncated
            if over:
                break
        self.turns += 1
        self.valid_turns += valid
        self.ret += reward + (0.0 if valid else self.protocol.format_penalty)
        self.done = over or self.actions_left == 0 or self.turns == self.protocol.max_turns
        if not self.done:
            self.user = self.protocol.next_user(self.turns + 1, self.state, self.actions_left, reward, valid)
