"""The parts of the kit, and the time and settings of each for a number of `--minutes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DEVICES", "MINUTES", "PARTS", "Part", "limit", "settings"]

MINUTES = (5, 20, 60)
DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class Part:
    """A part of the kit.

    Attributes:
        title: its title in tables.
        module: its module in this package, with `run`.
        share: its share of the minutes; a part stops adding settings when its share is over.
        start: additional seconds before it is ended: for imports, a cluster, a first compilation.
    """

    title: str
    module: str
    share: float
    start: float


PARTS = {
    "versions": Part("versions, devices, memory", "versions", 0.02, 150),
    "engine": Part("verl's FSDP2 engine against references", "engine", 0.12, 240),
    "memory": Part("memory of each recipe on each card", "memory_map", 0.14, 180),
    "throughput": Part("tokens a second of updates and log-probs", "throughput", 0.14, 240),
    "vllm": Part("vLLM: generation, sleep and wake, weight push", "generation", 0.12, 240),
    "learning": Part("a training of the nano model", "learning", 0.26, 300),
    "steps": Part("seconds a step at the paper's size", "steps", 0.2, 500),
}


def limit(name: str, minutes: int) -> float:
    """Seconds after which a part is ended: twice its share, and its start."""
    return 2 * _seconds(name, minutes) + PARTS[name].start


def _seconds(name: str, minutes: int) -> float:
    """A part's share of the minutes."""
    return PARTS[name].share * minutes * 60


def settings(name: str, minutes: int, device: str, memory_gb: float) -> dict[str, Any]:
    """The settings of a part.

    Args:
        name: the name of the part.
        minutes: the minutes of the whole kit.
        device: "cuda" or "cpu".
        memory_gb: the memory of the smallest GPU; larger shapes need larger GPUs.
    """
    shapes = ["tiny"]
    if device != "cpu":
        shapes = ["Qwen2.5-0.5B"]
        if minutes >= 20 and memory_gb > 40:
            shapes.append("Qwen2.5-1.5B")
        if minutes >= 60 and memory_gb > 70:
            shapes.append("Qwen2.5-3B")
    return {
        "device": device,
        "minutes": minutes,
        "seconds": _seconds(name, minutes),
        "shapes": shapes,
        "recipe": "nano/bandit" if minutes < 20 else "nano/frozen_lake",
        "steps": {5: 8, 20: 16, 60: 30}[minutes],
    }
