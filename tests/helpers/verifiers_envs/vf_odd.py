"""Everything that the adapter has to refuse, to report, or to give up."""

import time
from typing import Literal

import verifiers.v1 as vf

__all__ = ["Odd"]


class Tools(vf.Toolset):
    @vf.tool
    def look(self) -> str:
        """Look."""
        return "nothing"


class OddConfig(vf.TasksetConfig):
    kind: Literal["tools", "image", "picture", "error", "setup", "silent", "nan", "hang", "program", "stop"]


class OddData(vf.TaskData):
    kind: str


class OddTask(vf.Task[OddData]):
    async def setup(self, runtime: vf.Runtime) -> None:
        if self.data.kind == "setup":
            raise KeyError("no such world")
        if self.data.kind == "program":
            done = await runtime.run(["echo", "a program ran"], {})
            assert done.stdout == "a program ran\n"

    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        return self.data.kind == "stop"


class ScoredTask(OddTask):
    @vf.reward
    async def said(self, trace: vf.Trace) -> float:
        if self.data.kind == "error":
            raise ZeroDivisionError("no score")
        if self.data.kind == "hang":
            time.sleep(8)
        return float("nan") if self.data.kind == "nan" else 1.0


class Odd(vf.Taskset[OddTask, OddConfig]):
    def load(self):
        kind = self.config.kind
        url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
        prompt = [vf.UserMessage(content=[url])] if kind == "picture" else "Say something."
        task = OddTask if kind == "silent" else ScoredTask
        image = "python:3" if kind == "image" else None
        return [task(OddData(prompt=prompt, kind=kind, image=image), self.config.task)]

    @classmethod
    def toolsets(cls, config: OddConfig) -> list[vf.Toolset]:
        return [Tools(vf.ToolsetConfig())] if config.kind == "tools" else []
