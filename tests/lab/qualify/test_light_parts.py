"""The parts that need no training, run for real on the CPU; the whole command is a slow test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from ragen_lab.qualify.findings import Outcome, Status
from ragen_lab.qualify.kit import environment
from stacks import on_cpu_stack

PARTS = {
    "versions": {},
    "engine": {},
    "memory": {"recipes": ["paper/sokoban_starpo_ppo"], "seconds": 5.0},
    "throughput": {"shapes": ["tiny"], "seconds": 1.0},
}
SCRIPT = """
import json, sys
from pathlib import Path
from ragen_lab.qualify.part import run
for name, settings in json.loads(sys.argv[2]).items():
    run(name, Path(sys.argv[1]) / f"{name}.json", {"device": "cpu", "models": sys.argv[1], **settings})
print("all were run")
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What each light part found; in one forked process, since each would import torch and verl anew."""
    folder = tmp_path_factory.mktemp("parts")
    done = forked.run(SCRIPT, str(folder), json.dumps(PARTS), **environment("cpu"))
    assert "all were run" in done.stdout, done.stderr[-3000:]
    return {name: Outcome.read(folder / f"{name}.json") for name in PARTS}


@pytest.mark.parametrize("name", [pytest.param(one, marks=on_cpu_stack if one == "versions" else []) for one in PARTS])
def test_a_light_part_passes_on_the_cpu(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].status is Status.PASS, outcomes[name].sentence


def test_the_engine_is_compared_in_every_way(outcomes: dict[str, Outcome]) -> None:
    tables = outcomes["engine"].tables
    assert set(tables) == {"float32", "bf16", "adapters", "critic", "two ranks"}
    assert sum(map(len, tables.values())) >= 29
    said = [row["check"] for rows in tables.values() for row in rows if row["ok"]]
    for name in ("padded", "packed", "packed, dynamic"):
        assert {f"{name}: {what}" for what in ("log-probs", "gradient norm", "after an update")} <= set(said)
    for name in ("sdpa", "varlen", "shared prefixes"):
        assert {f"{name}: log-probs, largest distance", f"{name}: gradient norm"} <= set(said)


def test_throughput_measures_at_least_the_recipes_own(outcomes: dict[str, Outcome]) -> None:
    first = outcomes["throughput"].tables["update"][0]
    assert first["shape"] == "tiny" and first["tokens_per_second"] > 0


@pytest.mark.slow
@pytest.mark.train
def test_the_whole_command_passes_on_the_cpu(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("ragen-verl"), "qualify", "--device", "cpu", "--out", tmp_path]
    subprocess.run(command, env=os.environ, timeout=1500, check=True)
    report = json.loads((tmp_path / "qualify.json").read_text())
    assert {one["part"]: one["status"] for one in report["parts"]} == dict.fromkeys(
        ("versions", "engine", "memory", "throughput", "vllm", "learning", "steps"), "PASS"
    )
    assert "<table>" in (tmp_path / "qualify.html").read_text()
