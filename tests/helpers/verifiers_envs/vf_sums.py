"""One question, one answer: the sum of two numbers, scored by a program."""

import verifiers.v1 as vf

__all__ = ["Sums"]


class SumData(vf.TaskData):
    right: int


class Sum(vf.Task[SumData]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.right))

    @vf.reward(weight=0.5)
    async def negative(self, trace: vf.Trace) -> float:
        return -float(trace.last_reply == "nonsense")


class SumsConfig(vf.TasksetConfig):
    size: int = 10


class Sums(vf.Taskset[Sum, SumsConfig]):
    def load(self) -> list[Sum]:
        return [
            Sum(SumData(prompt=f"{n} + {n + 1} =", system_prompt="Say the sum.", right=2 * n + 1), self.config.task)
            for n in range(self.config.size)
        ]
