"""Install the lock files into the environment whose Python runs this script (standard library only).

    python requirements/install.py stack     torch, vLLM, verl, Ray: cpu.lock
    python requirements/install.py project   this repository, editable, then a smoke import of everything
    python requirements/install.py dev       tests and checks: dev.lock
    python requirements/install.py slow      what slow tests need besides: slow.lock

Run again after an interruption, it repairs: a package whose files are not all there is installed again.

pip and not uv, which is faster: side by side on two busy cores it took 185 s for cpu.lock where pip took 464 s, and 9 s
where pip took 475 s once everything was in their caches. But uv reads no configuration of pip, so that an index, a
certificate or a folder of wheels that is set there would have to be translated for it.
"""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
LOG = Path(sys.prefix) / "install.log"
# No byte code here: Python writes it at the first import, only for what is imported, and that saves a minute.
PIP = [sys.executable, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check", "--no-compile"]
SMOKE = """
import torch, ray
from transformers import Qwen2ForCausalLM
from vllm import LLM, SamplingParams
import verl, verl.protocol
import ragen_verl
"""


def pins(name: str) -> dict[str, str]:
    """The lock file `name` as {package: version}."""
    lines = (line.partition("#")[0].strip() for line in (HERE / name).read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def complete(info: Path) -> bool:
    """Whether every file that the RECORD of a `.dist-info` folder lists is there in full size (byte code aside)."""
    try:
        rows = list(csv.reader((info / "RECORD").read_text().splitlines()))
    except OSError:
        return False
    for path, _, size in rows:
        file = info.parent / path
        if size and not (file.is_file() and file.stat().st_size == int(size)):
            return False
    return bool(rows)


def repair() -> None:
    """Make pip forget the packages that an interrupted or damaged install left incomplete; pip itself included."""
    if importlib.util.find_spec("pip") is None:
        subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
    for info in SITE.glob("*.dist-info"):
        if not complete(info):
            shutil.rmtree(info)


def pip(*args: str) -> bool:
    """Run `pip install` with these arguments, output to `LOG`, seconds counted on a terminal; whether it succeeded."""
    start = time.monotonic()
    with LOG.open("ab") as log:
        process = subprocess.Popen([*PIP, *args], stdout=log, stderr=log)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if sys.stdout.isatty():
                    print(f"\r  {time.monotonic() - start:.0f} s", end="\r", flush=True)
        except BaseException:
            process.kill()
            raise
    return process.returncode == 0


def fail(sentence: str) -> None:
    """Print the last error of the log and one sentence, and exit."""
    errors = [line for line in LOG.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
    sys.exit("\n".join([*errors[-1:], f"{sentence} (the whole output: {LOG})"]))


def have(package: str, version: str) -> bool:
    """Whether exactly this version is installed."""
    try:
        return importlib.metadata.version(package) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def install_torch(wanted: str, others: list[str]) -> None:
    """Install torch's CPU build, or where no configured index has it the default build with its dependencies."""
    version = wanted.partition("+")[0]
    if have("torch", wanted) or have("torch", version) or pip("--no-deps", f"torch=={wanted}"):
        return
    print(f"No configured index has torch {wanted}: installing the default build, which is 3 GB larger.")
    limits = Path(sys.prefix) / "constraints.txt"
    limits.write_text("\n".join(others))
    if not pip("-c", str(limits), f"torch=={version}"):
        fail(f"torch {version} could not be installed: check the network and pip's index settings, and run make again.")


def install_stack() -> None:
    """Install cpu.lock without dependency resolution."""
    start = time.monotonic()
    locked = pins("cpu.lock")
    print(f"Installing the CPU stack: {len(locked)} packages, about 4 GB on disk, about 3 minutes.", flush=True)
    repair()
    torch = locked.pop("torch")
    # setuptools and triton belong to torch: its default build pins versions of its own.
    install_torch(torch, [f"{p}=={v}" for p, v in locked.items() if p not in ("setuptools", "triton")])
    if not have("torch", torch):
        locked.pop("triton", None)
    if not pip("--no-deps", *(f"{package}=={version}" for package, version in locked.items())):
        fail("The CPU stack could not be installed: check the network and the free disk, and run make again.")
    print(f"Installed in {time.monotonic() - start:.0f} s.", flush=True)


def install_project() -> None:
    """Install this repository editable, and import the whole stack once."""
    if not pip("--no-deps", "--no-build-isolation", "-e", str(HERE.parent)):
        fail("This project could not be installed.")
    start = time.monotonic()
    print("Importing everything once (the first import also compiles it) ...", flush=True)
    smoke = subprocess.run([sys.executable, "-W", "ignore", "-c", SMOKE], capture_output=True, text=True)
    if smoke.returncode:
        reason = (smoke.stderr.strip().splitlines() or [f"exit code {smoke.returncode}"])[-1]
        sys.exit(f"Installed, but the stack does not import: {reason} (`make clean` and then make install it anew).")
    print(f"Imported in {time.monotonic() - start:.0f} s.", flush=True)


def install_tools(name: str) -> None:
    """Install a lock file of tools for tests: dev.lock or slow.lock."""
    print("Installing the tools for tests and checks.", flush=True)
    repair()
    # gem-llm 0.1.0 says Python <=3.12, which pip takes for 3.12.0
    if not pip("--no-deps", "--ignore-requires-python", "-r", str(HERE / name)):
        fail("The tools for tests could not be installed: check the network and run make again.")


if __name__ == "__main__":
    STEPS = {"stack": install_stack, "project": install_project, "dev": partial(install_tools, "dev.lock")}
    STEPS["slow"] = partial(install_tools, "slow.lock")
    if sys.argv[1:] not in [[step] for step in STEPS] or sys.prefix == sys.base_prefix:
        sys.exit(__doc__)
    try:
        STEPS[sys.argv[1]]()
    except KeyboardInterrupt:
        sys.exit("Interrupted: run make again to go on.")
