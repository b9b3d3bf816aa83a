"""Check, before anything starts, that the machine has what a recipe needs: GPU, packages, folders, checkpoints."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from ragen_verl.cpu.accelerator import joins_a_cluster
from ragen_verl.cpu.small_model import fetch, small_path
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.machine import nvidia_smi
from ragen_verl.names import CHECKPOINT
from ragen_verl.runs.checkpoints import survey_of
from ragen_verl.validation.verl_source import loggers

__all__ = ["DEVICES", "check_folder", "check_machine", "make_paths_absolute"]

# verl's name of a tracker -> the package that it imports, if that has another name; None: verl needs no package for it
_PACKAGES = {"console": None, "file": None, "rl_insight": None, "vemlp_wandb": "volcengine_ml_platform"}
# files of GPU drivers in /dev: NVIDIA, NVIDIA under Windows, AMD, Ascend
DEVICES = ("nvidia[0-9]*", "dxg", "kfd", "davinci[0-9]*")
# bytes of a socket's path on Linux; of Ray's below its folder of temporary files; of those of vLLM and the fork server
_SOCKET, _OF_RAY, _OF_OTHERS = 107, len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"), 40
_RESUME = "trainer.resume_from_path"
# folders that a recipe may give relative to the current folder; Ray's workers run in another one
_PATHS = ("ragen.run.dir", "trainer.default_local_dir", _RESUME)


def check_machine(config: DictConfig) -> None:
    """Refuse a recipe that needs a GPU, a package, a folder or a checkpoint that this machine does not have.

    Raises:
        RecipeError: one sentence that names the key and what to do.
    """
    if str(OmegaConf.select(config, "actor_rollout_ref.model.path")) == str(small_path()):
        fetch()
    _check_temporary()
    _check_device(config)
    _check_megatron(config)
    _check_loggers(config.trainer.logger)
    _check_resume(config)
    check_folder(Path(config.ragen.run.dir))


def check_folder(path: Path, name: str = "ragen.run.dir") -> None:
    """Refuse the path of a folder if it is a file, or if the folder cannot be made or written.

    Raises:
        RecipeError: the path is refused.
    """
    there = path = path.expanduser().absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise RecipeError(f"{name} is {path} but {there} is a file: name another folder.")
    try:
        with TemporaryDirectory(dir=there):  # os.access says yes to root everywhere, also in /proc
            pass
    except OSError as error:
        raise RecipeError(f"{name} is {path} but nothing can be written in {there}: name another folder.") from error


def make_paths_absolute(config: DictConfig) -> None:
    """Make relative folders absolute, from the folder of this process: workers start in another one."""
    with read_write(config), open_dict(config):
        for key in _PATHS:
            if value := OmegaConf.select(config, key):
                OmegaConf.update(config, key, str(Path(str(value)).expanduser().absolute()))


def _check_temporary() -> None:
    """Refuse folders for temporary files in which Ray, vLLM and the fork server cannot make their sockets."""
    rays = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"  # as ray/_common/utils.py, which makes the folder
    try:
        others = gettempdir()  # of TMPDIR only if it is there
    except FileNotFoundError as error:
        raise RecipeError(f"{error}: set TMPDIR to a folder that can be written.") from error
    for name, folder, below in ((rays, os.environ.get(rays, "/tmp"), _OF_RAY), ("TMPDIR", others, _OF_OTHERS)):
        longest = _SOCKET - below
        if not os.path.isabs(folder):
            raise RecipeError(
                f"{name} is {folder!r}, and Ray's workers start elsewhere: set it to a folder's full path."
            )
        check_folder(Path(folder), name)
        if not folder.isascii() or len(folder) > longest:
            what = f"has {len(folder)} characters" if folder.isascii() else "has characters that Ray cannot read"
            raise RecipeError(
                f"{name} is {folder}, which {what}: set it to a folder of at most {longest} plain characters, such as "
                "/tmp, since the path of a socket below it has at most 107."
            )


def _check_device(config: DictConfig) -> None:
    """Refuse a recipe for GPUs on a machine without one, unless it joins a cluster, where other nodes may have GPUs."""
    cluster = joins_a_cluster() or OmegaConf.select(config, "ray_kwargs.ray_init.address") is not None
    if config.trainer.device != "cuda" or cluster:
        return
    change = "add hardware=cpu to the command, or start it on a machine with one"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        raise RecipeError(f"trainer.device is cuda and CUDA_VISIBLE_DEVICES hides every GPU: unset it, or {change}.")
    if not any(any(Path("/dev").glob(one)) for one in DEVICES) and not nvidia_smi():
        raise RecipeError(f"trainer.device is cuda and this machine has no GPU: {change}.")


def _check_megatron(config: DictConfig) -> None:
    if "megatron" not in config.get("actor_rollout_ref", {}).get("actor", {}):
        return
    found = find_spec("megatron")  # without which the names below would raise
    lacking = [name for name in ("megatron.core", "megatron.bridge") if not (found and find_spec(name))]
    if lacking and not joins_a_cluster():
        raise RecipeError(
            f"hardware=gpu_megatron needs {' and '.join(lacking)}, and no package index has the versions that verl "
            "0.9.1 asks for: start it in a container with them, such as verl's own images (verlai/verl, tags vllm*), "
            "or use hardware=gpu_offload."
        )


def _check_loggers(given: Any) -> None:
    known = loggers()
    for name in [given] if isinstance(given, str) else given or ():
        if name not in known:
            raise RecipeError(f"trainer.logger names {name!r}, which verl does not know: {nearest(name, known)}")
        package = _PACKAGES.get(name, name)
        if package and find_spec(package) is None:
            raise RecipeError(
                f"trainer.logger names {name} and the package {package} is not installed: `make add PACKAGE={package}` "
                "in a checkout, `pip install` elsewhere; or leave it out."
            )


def _check_resume(config: DictConfig) -> None:
    path, mode = OmegaConf.select(config, _RESUME), config.trainer.resume_mode
    if mode != "resume_path":
        if path:
            raise RecipeError(f"{_RESUME} is {path} but only trainer.resume_mode=resume_path reads it: set that too.")
    elif not path:
        raise RecipeError(f"trainer.resume_mode is resume_path but {_RESUME} names no folder: set it.")
    elif not Path(path).name.startswith(CHECKPOINT) or not Path(path).is_dir():
        raise RecipeError(f"{_RESUME} is {path} but has to be a folder {CHECKPOINT}N that is there.")
    survey_of(config)
