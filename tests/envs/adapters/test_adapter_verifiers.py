"""The verifiers adapter. The package contradicts verl's CPU stack, so it is played in a virtualenv of its own.

That virtualenv is built anew, or kept in the folder that RAGEN_VERL_VERIFIERS_VENV names.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import HELPERS
from ragen_envs.adapters import verifiers as adapter

from ragen_verl import make
from ragen_verl.errors import BadEnvKwargs, MissingExtra, RecipeError

ROOT, ENVS = HELPERS.parent, HELPERS / "verifiers_envs"
# what the environment side of ragen_verl needs, without verl: what the page installs
PAGE = (ROOT.parent / "docs" / "adapters.md").read_text("utf-8")
LIGHT = re.search(r'vf/bin/pip install "verifiers[^"]*" (.*)', PAGE)[1].split()
TOOLS = ["pytest", "pytest-timeout", "hypothesis"]
PLAYED = [("verifiers:vf-sums", 3), ("verifiers:vf-guess", 5)]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_actions": 0}, "max_actions"),
        ({"success_return": "much"}, "success_return"),
        ({"timeout_s": 0}, "timeout_s must be a number of seconds above 0"),
        ({"timeout_s": True}, "timeout_s"),
    ],
)
def test_bad_arguments_are_found_without_the_package(kwargs, message):
    with pytest.raises(BadEnvKwargs, match=message):
        adapter.VerifiersEnv("reverse-text", **kwargs)


@pytest.mark.parametrize("found", ["0.1.9.post3", "0.3.1"])
def test_an_older_version_is_refused(found, monkeypatch):
    monkeypatch.setattr(adapter, "version", lambda package: found)
    with pytest.raises(RecipeError, match=f"version {found} has another interface") as raised:
        adapter.VerifiersEnv("reverse-text")
    assert not isinstance(raised.value, MissingExtra)


def test_the_server_needs_no_more_than_the_page_installs():
    """Every distribution that the page's command would not install is hidden; what verifiers brings is hidden too."""
    code = """
    import importlib.metadata as metadata, sys
    from packaging.requirements import Requirement
    there, todo = {"ragen-verl"}, sys.argv[1:]
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name not in there:
            there.add(name)
            wishes = map(Requirement, metadata.requires(name) or [])
            todo += [one.name for one in wishes if one.marker is None or one.marker.evaluate({"extra": ""})]
    owners = metadata.packages_distributions()
    hidden = {top for top, names in owners.items() if not there & {name.lower().replace("_", "-") for name in names}}
    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in hidden:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hide())
    import uvicorn
    from ragen_envs.serving.server import Settings, create_app
    from ragen_verl.cli import app
    create_app(Settings(("FrozenLake-v0",)))
    app(["env", "serve", "--help"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *LIGHT], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def venv(tmp_path_factory) -> Path:
    """The folder of the programs of a virtualenv with verifiers and ragen_verl's environment side."""
    kept = os.environ.get("RAGEN_VERL_VERIFIERS_VENV")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("verifiers") / "venv"
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "verifiers>=0.4,<0.5", *LIGHT, *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    return folder / "bin"


def surroundings() -> dict[str, str]:
    """The environment variables of what runs in that virtualenv."""
    return {**os.environ, "PYTHONPATH": f"{HELPERS}{os.pathsep}{ENVS}", "PYTHONUNBUFFERED": "1"}


def run(*command: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=surroundings(), timeout=timeout, cwd=ROOT)


@pytest.fixture(scope="module")
def server(venv) -> Iterator[str]:
    """The address of `ragen-verl env serve` in that virtualenv."""
    command = [venv / "ragen-verl", "env", "serve", "--port", "0", *(id for id, _ in PLAYED)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings(), cwd=ROOT)
    try:
        yield re.search(r"http://[\w.:]+\d", process.stdout.readline()).group()
    finally:
        process.terminate()
        process.wait(20)


@slow
@pytest.mark.timeout(1500)
def test_the_contract_is_kept(venv):
    pytest_there = [venv / "python", "-m", "pytest", "-q", "--tb=native", "-c", os.devnull, "--noconftest"]
    done = run(*pytest_there, "-p", "no:cacheprovider", "--timeout", "300", ENVS / "contract.py", timeout=1400)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@slow
def test_the_command_line_checks_it(venv):
    done = run(venv / "ragen-verl", "env", "check", "verifiers:vf-guess", "--limit", "60")
    assert done.returncode == 0 and "No rule is broken" in done.stdout, done.stdout + done.stderr


@slow
@pytest.mark.parametrize(("id", "answer"), PLAYED)
def test_a_server_plays_what_is_played_beside_it(venv, server, id, answer):
    def play(make, id: str) -> list:
        env = make(id)
        seen = []
        for seed, rollout_index in ((0, 0), (1, 0), (1, 1)):
            seen += [*env.reset(seed=seed, options={"rollout_index": rollout_index}), env.instruction, env.max_actions]
            seen += [list(env.step(text)) for text in (str(answer), "no", "\ud800\0", "7", "3")]
        env.close()
        return json.loads(json.dumps(seen))

    source = textwrap.dedent(inspect.getsource(play))
    code = (
        f"import json\nfrom ragen_verl import make\nanswer = {answer}\n{source}\nprint(json.dumps(play(make, {id!r})))"
    )
    beside = run(venv / "python", "-W", "ignore", "-c", code)
    assert beside.returncode == 0, beside.stderr
    assert play(make, f"{server}/{id}") == json.loads(beside.stdout)


@slow
def test_a_server_says_what_went_wrong(venv, server):
    with pytest.raises(BadEnvKwargs, match=r"taskset\.colour"):
        make(f"{server}/verifiers:vf-sums", colour=1)
