"""The doctor's facts: installed versions and the machine's resources."""

from __future__ import annotations

import platform
from typing import Any

from ragen_lab.qualify.findings import Outcome, Status

from ragen_verl.doctor import seams
from ragen_verl.doctor.facts import PACKAGES, TIMEOUTS, Facts, machine, run_probe, unmet_requirements
from ragen_verl.doctor.problems import find
from ragen_verl.machine import version

__all__ = ["run"]


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`.
    """
    # whether the plugin loads in verl's processes is shown by the parts that train
    facts = Facts(
        python=platform.python_version(),
        versions={name: version(name) for name in PACKAGES},
        unmet=unmet_requirements(),
        machine=machine(),
        environment={},
        torch=run_probe("torch_build", TIMEOUTS["torch_build"]),
        plugin={},
        seams=tuple(seams.differences()) if version("verl") else (),
    )
    outcome.row("versions", package="python", version=facts.python)
    for name, found in facts.versions.items():
        if found:
            outcome.row("versions", package=name, version=found)
    build = facts.torch.answer
    outcome.row("versions", package="CUDA of torch", version=build.get("cuda") or build.get("hip") or "none: CPU build")
    for name, value in facts.machine.items():
        outcome.row("machine", what=name, value=(", ".join(value) or "-") if isinstance(value, list) else value)
    for number, gpu in enumerate(build.get("gpus") or []):
        outcome.row("machine", what=f"GPU {number}", value=f"{gpu['name']}, {gpu['memory_gb']:g} GB")
    problems = find(facts)
    for problem in problems:
        outcome.row("problems", check=problem.what, fix=problem.fix, ok=None if problem.note else False)
    gpus = build.get("gpus") or []
    where = f"{len(gpus)} x {gpus[0]['name']}" if gpus else f"{facts.machine['cores']} cores, no GPU"
    outcome.judge(f"verl {facts.versions['verl']}, torch {facts.versions['torch']}, {where}.")
    if facts.versions["verl"] is None or facts.versions["torch"] is None:
        outcome.status, outcome.sentence = Status.FAIL, "verl or torch is not installed: everything else needs both."
