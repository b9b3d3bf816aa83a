"""Whether every node of a Ray cluster has this package: verl sends episodes to all of them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ragen_verl.errors import RecipeError


def check_nodes() -> None:
    """Ask each node of the running cluster for its version, if there are several.

    Raises:
        RecipeError: naming the first node that has none.
    """
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if len(nodes) < 2:
        return
    ask = ray.remote(num_cpus=0)(version)  # by its name in the standard library: nothing of ours has to be there
    answers = {
        node: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote("ragen-verl")
        for node in nodes
    }
    for node, answer in answers.items():
        try:
            ray.get(answer)
        except (PackageNotFoundError, RayTaskError) as error:
            raise RecipeError(
                f"The cluster's node {nodes[node]} has no ragen-verl, so every episode sent to it would fail: install "
                "the same environment on all nodes."
            ) from error
