"""Several turns: the environment plays the user, draws from the global generator, and scores the episode itself."""

import itertools
import random

import verifiers.v1 as vf

__all__ = ["GuessEnv", "Guesses"]


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=8)


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        secret, reward = random.randint(1, 9), 0.0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn(f"Guess a number from 1 to 9. A hint: {secret}.")
            while not segment.terminated and not reward:
                if segment.last_reply == str(secret):
                    reward = 1.0
                elif segment.last_reply == "give up":
                    break
                else:
                    luck = random.randint(0, 999)
                    segment = await interaction.turn(f"{segment.last_reply[:20]!r} is wrong. Your luck: {luck}.")
        interaction.trace.record_reward("guessed", reward)


class Guesses(vf.Taskset[vf.Task, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            yield vf.Task(vf.TaskData(name=f"guess {number}", prompt=None))
