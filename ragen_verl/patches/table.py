"""The table of all patches, table.yaml: what they change in verl and vLLM, why, and when each one is dead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

__all__ = ["PATCHES", "Patch"]


@dataclass(frozen=True)
class Patch:
    """One change of verl, vLLM or their process.

    Attributes:
        name: `RAGEN_VERL_WITHOUT=NAME` leaves it out.
        function: `module:name`; called with the imported module, or without arguments.
        why: what fails or is lost without it.
        upstream: issues and pull requests on it, or the day on which none was found.
        dead: from when it is not needed.
        test: `file::test` of what it does.
        module: what it changes, once a process has imported it; "" for what is done at once.
        line: (file, text in it) of the tested versions that makes it necessary; none where nothing upstream does.
        cpu: whether it is only for processes without an accelerator.
        loader: which of the two loads it in its processes: verl or vllm.
    """

    name: str
    function: str
    why: str
    upstream: str
    dead: str
    test: str
    module: str = ""
    line: tuple[str, ...] = ()
    cpu: bool = False
    loader: str = "verl"


_TABLE = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), yaml.CSafeLoader)

PATCHES = tuple(Patch(name, **fields) for name, fields in _TABLE.items())
"""In the order in which they are applied."""
