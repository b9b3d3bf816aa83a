"""A checkpoint of a run as a Hugging Face folder, in the dtype it was trained in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder, checkpoints_in

BEST, LAST = "best", "last"


def checkpoints(folder: RunFolder) -> dict[str, Path]:
    """The checkpoints that a run has: each by its step, `last`, and those that were kept (`best`, `before_warning`)."""
    saved = checkpoints_in(folder.path / "checkpoints")
    found = {str(step): path for step, path in saved.items() if (path / "actor").is_dir()}
    if found:
        found[LAST] = list(found.values())[-1]
    for path in sorted(folder.kept.glob("*")):
        if (path / "actor").is_dir():
            found[path.name] = path
    return found


def find(folder: RunFolder, which: str) -> Path:
    """The checkpoint of this name.

    Raises:
        RecipeError: the run has none of it.
    """
    known = checkpoints(folder)
    if which not in known:
        has = ", ".join(known) or "none: set trainer.save_freq"
        raise RecipeError(f"{folder.path} has no checkpoint {which!r}; it has {has}.")
    return known[which]


def export(folder: RunFolder, which: str, out: Path) -> Path:
    """Merge the shards of a checkpoint's actor with verl's own merger, and write a model card beside the weights.

    Args:
        folder: the run's.
        which: `best`, `last`, `before_warning` or a step.
        out: the Hugging Face folder to write.

    Raises:
        RecipeError: the run has no such checkpoint, or the merger failed; with the last line that it wrote.
    """
    checkpoint = find(folder, which)
    command = [sys.executable, "-m", "ragen_verl.training.merge", str(checkpoint / "actor"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not list(out.glob("*.safetensors")):
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RecipeError(f"The checkpoint could not be merged: {lines[-1] if lines else 'verl said nothing'}")
    (out / "README.md").write_text(card(folder, which))
    return out


def card(folder: RunFolder, which: str) -> str:
    """The model card: what was trained, on what, with which result."""
    summary: dict[str, Any] = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    versions = folder.path / "versions.json"
    packages = json.loads(versions.read_text()) if versions.exists() else {}
    lines = [
        "---",
        "library_name: transformers",
        "tags: [ragen-verl, reinforcement-learning, multi-turn-agent]",
        "---",
        f"# {summary.get('recipe', folder.path.name)}, checkpoint {which}",
        "",
        "Trained with ragen_verl (StarPO on verl). The recipe as it was resolved is in the run's config.yaml.",
        "",
    ]
    for when in ("before", "after"):
        if summary.get(when):
            shown = ", ".join(f"{name} {value:.3f}" for name, value in summary[when].items() if name != "step")
            lines.append(f"- held out {when} training (step {summary[when]['step']}): {shown}")
    lines += [
        "",
        "| package | version |",
        "|---|---|",
        *(f"| {name} | {number} |" for name, number in packages.items()),
    ]
    return "\n".join(lines) + "\n"
