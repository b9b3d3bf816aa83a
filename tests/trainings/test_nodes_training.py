"""A training on a Ray cluster of three nodes, of which one dies: the run names it, ends, and is resumed without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from driver import START, begun, until
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
from ray.cluster_utils import Cluster

from ragen_verl.cpu import fork_server
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import LATE, STARTS, stop
from ragen_verl.runs.trajectories import read

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(3 * START)]

MEMBERS, GROUPS = 4, 3
SECONDS = 120
SETTINGS = [
    "trainer.total_training_steps=200",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
    f"ragen.train.envs.0.groups={GROUPS}",
    "ragen.val.envs.0.groups=1",
    f"actor_rollout_ref.rollout.n={MEMBERS}",
    "actor_rollout_ref.rollout.agent.num_workers=3",  # verl puts one on each node
    f"actor_rollout_ref.actor.ppo_mini_batch_size={GROUPS}",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    # the cluster has its own numbers of cores and devices
    "ray_kwargs.ray_init.num_cpus=null",
    "ray_kwargs.ray_init.num_gpus=null",
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that verl's driver joins; the first one has the trainer's device."""
    with TemporaryDirectory(dir="/tmp") as own:  # a short path, for sockets; other drivers must not join this cluster
        monkeypatch.setenv("RAY_TMPDIR", own)
        fork_server.start()  # all nodes fork their workers from one process
        made = Cluster()
        try:
            add(made, num_cpus=16, num_gpus=1, include_dashboard=False)
            for _ in range(2):
                add(made, num_cpus=4, num_gpus=0)
            monkeypatch.setenv("RAY_ADDRESS", made.address)
            monkeypatch.setenv("VERL_PLATFORM", "cpu")  # a driver that joins a cluster takes it for one with GPUs
            yield made
        finally:
            made.shutdown()


def add(cluster: Cluster, **arguments: object) -> None:
    for left in reversed(range(STARTS)):
        try:
            cluster.add_node(object_store_memory=150 * 2**20, **arguments)
            return
        except Exception as error:
            if LATE not in str(error) or not left:
                raise


def test_a_training_names_a_dead_node_and_is_resumed(cluster: Cluster, tmp_path: Path) -> None:
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    settings = [*SETTINGS, f"ragen.run.dir={run.path}"]
    driver = begun("nano/frozen_lake", log, *settings, far=lambda: steps(run) >= 2)
    try:
        assert driver.poll() is None, log.read_text()[-3000:]
        nodes = {name: nodes_of(cluster, name) for name in ("TaskRunnerV1", "AgentLoopWorkerTQ")}
        assert len(nodes["AgentLoopWorkerTQ"]) == 3
        lost = next(one for one in cluster.worker_nodes if one.node_id not in nodes["TaskRunnerV1"])
        cluster.remove_node(lost, allow_graceful=False)
        until(lambda: driver.poll() is not None, SECONDS)
    finally:
        stop(driver)
    said, made = run.error.read_text(), steps(run)
    assert said.startswith("WorkerDiedError: Actor(") and f"its node has died. Node Id: {lost.node_id}" in said

    driver = begun("nano/frozen_lake", log, *settings, far=lambda: steps(run) >= made + 2)  # on the nodes that are left
    stop(driver)
    assert steps(run) >= made + 2, log.read_text()[-3000:]
    assert [row["step"] for row in run.rows()] == list(range(1, steps(run) + 1))
    played = list(read(run.path, split="train", steps=range(1, made + 3)))
    assert len(played) == (made + 2) * GROUPS * MEMBERS and not any(one["excluded"] for one in played)


def nodes_of(cluster: Cluster, kind: str) -> set[str]:
    """The nodes of the living actors of a class, asked without joining the cluster as a driver."""
    state = GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(cluster.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    actors = state.actor_table(None).values()
    return {one["Address"]["NodeID"] for one in actors if one["ActorClassName"] == kind and one["State"] == "ALIVE"}


def steps(run: RunFolder) -> int:
    return len(run.rows())
