"""Nodes that do not fit together are named; in a real Ray cluster of three nodes on one machine (slow)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import ray

from ragen_verl.errors import RecipeError
from ragen_verl.runs.launch import STARTS
from ragen_verl.training import nodes

NAMES = {"a": "host-a", "b": "host-b"}
SECONDS = 3 * STARTS * 60 + 120
"""Three nodes, each of which Ray gives up after a minute at most; and two minutes for imports and the checks."""


def answers(monkeypatch: pytest.MonkeyPatch, **of_b: str | bool | None) -> list[Callable]:
    """In the place of Ray: node a answers as this one, node b may differ. Returns what the nodes are asked."""

    def ask(_: object, function: Callable, *args: str) -> dict:
        rounds.append(function)
        own = function(*args)
        of_the_other = {**own, **of_b} if isinstance(own, dict) else of_b.get("folder", own)
        return {"a": lambda: own, "b": lambda: of_the_other}

    rounds: list[Callable] = []
    monkeypatch.setattr(nodes, "_ask", ask)
    return rounds


def test_equal_nodes_pass_whatever_their_build_of_torch(monkeypatch, tmp_path: Path) -> None:
    rounds = answers(monkeypatch, torch=f"{version('torch').partition('+')[0]}+cu130")
    nodes._check_versions(NAMES)
    assert len(rounds) == 1
    nodes._check_folder(NAMES, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("package", nodes.PACKAGES)
def test_a_node_of_another_version_is_named(monkeypatch, package: str) -> None:
    answers(monkeypatch, **{package: "0.0.1"})
    with pytest.raises(RecipeError, match=f"node host-b has {package} 0.0.1"):
        nodes._check_versions(NAMES)


def test_a_node_without_the_plugin_is_named(monkeypatch) -> None:
    answers(monkeypatch, **{"ragen-verl": None})
    with pytest.raises(RecipeError, match="node host-b has no ragen-verl"):
        nodes._check_versions(NAMES)


def test_a_node_without_the_plugin_can_answer(monkeypatch, tmp_path: Path) -> None:
    rounds = answers(monkeypatch)
    nodes._check_versions(NAMES)
    sent = tmp_path / "sent"
    sent.write_bytes(ray.cloudpickle.dumps(rounds[0]))
    code = "import pickle, sys; sys.modules['ragen_verl'] = None; print(pickle.load(open(sys.argv[1], 'rb'))())"
    done = subprocess.run([sys.executable, "-c", code, str(sent)], capture_output=True, text=True)
    assert f"'verl': '{version('verl')}'" in done.stdout, done.stderr


def test_a_node_that_does_not_see_the_folder_is_named(monkeypatch, tmp_path: Path) -> None:
    answers(monkeypatch, folder=False)
    with pytest.raises(RecipeError, match="node host-b does not see the run's folder"):
        nodes._check_folder(NAMES, tmp_path)


CHECK = """
import ctypes, json, subprocess, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from ragen_verl.errors import RecipeError
from ragen_verl.runs.launch import LATE, STARTS
from ragen_verl.training import nodes

packages, shared, private = sys.argv[1:]


def in_time(start, **args):
    for left in reversed(range(STARTS)):
        try:
            return start(**args)
        except Exception as error:
            if LATE not in str(error) or not left:
                raise


cluster = in_time(Cluster, initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
in_time(cluster.add_node, num_cpus=1)
in_time(cluster.add_node, num_cpus=1, env_vars={"PYTHONPATH": packages})
ray.init(address=cluster.address, logging_level="error")
# from here on the folder is this process's alone
assert ctypes.CDLL(None, use_errno=True).unshare(0x00020000) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", private], check=True)
names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
found = {"nodes": len(names)}
for name, check in (
    ("versions", lambda: nodes._check_versions(names)),
    ("shared", lambda: nodes._check_folder(names, Path(shared))),
    ("private", lambda: nodes._check_folder(names, Path(private))),
):
    try:
        check()
        found[name] = "passed"
    except RecipeError as error:
        found[name] = str(error)
ray.shutdown()
cluster.shutdown()
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
def test_a_real_cluster_is_checked_node_by_node(tmp_path: Path) -> None:
    """Three nodes, one of them with another verl, and a folder that lies in a file system of the driver alone."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("a private mount needs root")
    fake = tmp_path / "packages" / "verl-0.0.1.dist-info"
    shared, private = tmp_path / "shared", tmp_path / "private"
    for one in (fake, shared, private):
        one.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.0.1\n")
    command = [sys.executable, "-c", CHECK, *map(str, (fake.parent, shared, private))]
    with TemporaryDirectory(dir="/tmp") as own:  # a short path, for sockets; another driver must not join this cluster
        environment = {**os.environ, "RAY_TMPDIR": own}
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["nodes"], found["shared"]) == (3, "passed")
    assert "has verl 0.0.1" in found["versions"]
    assert f"does not see the run's folder {private}" in found["private"]
