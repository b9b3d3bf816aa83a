"""Every registered environment: the checker, small; its page in the docs; memory of many; what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import pytest
from benchmark_packages import BENCHMARKS
from paths import ROOT
from ragen_lab.checker import QUICK, Subject, check
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.other_process import fingerprints, prints

from ragen_verl.env.registry import ids

LIVE = 4096
SEEDS, STEPS = 2, 12
# what is built only where a package or its files are; tests/test_env_alfworld.py and others say what they do then
ABSENT = BENCHMARKS | {"ALFWorld-v0"} | ({"TextWorld-v0"} if find_spec("textworld") is None else set())
IDS = sorted(set(ids()) - ABSENT)
SMALL = replace(QUICK, limit=60)  # the tests of a whole suite share the machine
FEW = {"TextWorld-v0": replace(SMALL, neighbours=8, steps=6)}  # it compiles a game for every seed


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("id", IDS)
def test_it_keeps_every_rule(id):
    report = check(Subject.of(id), FEW.get(id, SMALL), skip=["processes"])  # all of them in one process below
    assert report.ok, str(report)
    unchecked = {name for name, verdict in report.rules.items() if verdict.word == "not checked"}
    assert unchecked <= {"processes", "oracle", "success"}
    assert set(report.facts) == {"starts", "rollouts", "scores", "milliseconds", "steps_per_second", "tokens"}


@cache
def in_another_process() -> dict[str, dict]:
    subjects = [Subject.of(id) for id in IDS]
    return dict(zip(IDS, fingerprints(subjects, SEEDS, STEPS, limit=30), strict=True))


@pytest.mark.parametrize("id", IDS)
def test_same_seed_same_episode_in_another_process(id):
    assert in_another_process()[id] == {"prints": prints(Subject.of(id), SEEDS, STEPS, Calls(30))}


def test_another_process_that_dies_is_no_agreement():
    good, bad = Subject.of("Bandit-v0"), Subject(label="gone", build=dict, target="no_such_module:Env")
    answers = fingerprints([good, bad], 1, 3, limit=30)
    assert len(answers[0]["prints"]) == 1 and "no_such_module" in answers[1]["error"]


@pytest.mark.parametrize("id", ["FrozenLake-v0", "Sokoban-v0", "LargerSokoban-v0"])
def test_thousands_of_live_instances_take_less_than_a_gibibyte(id):
    code = f"""
from pathlib import Path
from ragen_verl import make
envs = [make({id!r}) for _ in range({LIVE})]
for seed, env in enumerate(envs):
    env.reset(seed=seed)
    env.step(env.actions[0])
assert len(set(map(id, envs))) == {LIVE} and len({{env.render() for env in envs}}) > {LIVE} // 8
lines = Path("/proc/self/status").read_text().splitlines()  # a process of its own, unlike getrusage, forgets its parent
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""
    assert int(run(code)) < 1 << 20  # KiB


def test_every_id_is_on_the_page_with_its_figures():
    page = (ROOT / "docs" / "environments.md").read_text("utf-8")
    rows = {line.split("|")[1].strip().strip("`"): line for line in page.splitlines() if line.startswith("| `")}
    saved = json.loads((ROOT / "benchmarks" / "results" / "environments.json").read_text())
    assert set(ids()) - BENCHMARKS <= set(rows), "run benchmarks/environments.py"
    for id, figures in saved["environments"].items():
        assert f"{figures['oracle']['success']:.0%}" in rows[id] if figures["oracle"] else " - " in rows[id]


def test_the_page_is_what_the_benchmark_writes_from_its_results():
    code = """
import json, sys
sys.path.insert(0, "benchmarks")
from environments import OUT, PAGE, page
assert page(json.loads(OUT.read_text())) == PAGE.read_text("utf-8"), "run benchmarks/environments.py"
"""
    run(code)


def test_all_environments_together_import_neither_verl_nor_torch():
    code = """
import sys
from ragen_verl.env import make
for id in sys.argv[1:]:
    env = make(id)
    env.reset(seed=0)
    env.oracle()
print(sorted({"verl", "torch", "ray", "transformers", "vllm"} & set(sys.modules)))
"""
    assert run(code, *IDS) == "[]"
