"""Check the nodes of a Ray cluster: they need the same packages, and access to the run's folder.

verl sends episodes to every node, and each rank writes its shard of a checkpoint on its own node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ragen_verl.errors import RecipeError

__all__ = ["PACKAGES", "check_nodes"]

PACKAGES = ("ragen-verl", "verl", "torch", "transformers", "tensordict", "TransferQueue")
"""Packages whose objects and messages are sent between the nodes."""


def check_nodes(folder: Path) -> None:
    """Check each node of the running cluster, if there are several.

    Args:
        folder: the run's folder; it is made if missing.

    Raises:
        RecipeError: a node has another version of a package than this one, or none, or does not see the folder.
    """
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if len(nodes) < 2:
        return
    _check_versions(nodes)
    _check_folder(nodes, folder)


def _check_versions(nodes: Mapping[str, str]) -> None:
    # defined here, so that Ray sends its code: it would look up a function of this module in the node's own package
    def versions() -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for package in packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = None
        return found

    packages = PACKAGES
    own = versions()
    for node, answer in _ask(nodes, versions).items():
        for package, number in answer().items():
            if number is None:
                raise RecipeError(
                    f"The cluster's node {nodes[node]} has no {package}, so every episode sent to it would fail: "
                    "install the same environment on all nodes."
                )
            if (there := _public(number)) != (here := _public(own[package])):
                raise RecipeError(
                    f"The cluster's node {nodes[node]} has {package} {there}, and {here} is what the trainer has: "
                    "install the same environment on all nodes."
                )


def _check_folder(nodes: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(prefix=".seen-by-all-nodes-", dir=folder) as mark:
        for node, answer in _ask(nodes, os.path.isfile, mark.name).items():
            if not answer():
                raise RecipeError(
                    f"The cluster's node {nodes[node]} does not see the run's folder {folder}, so its part of every "
                    "checkpoint would be lost: set ragen.run.dir to a folder on a file system that all nodes share."
                )


def _ask(nodes: Mapping[str, str], function: Callable, *args: Any) -> dict[str, Callable[[], Any]]:
    """Call a function on all nodes at once. It may use only the standard library: this package may be missing there."""
    task = ray.remote(num_cpus=0)(function)
    return {
        node: partial(
            ray.get,
            task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(*args),
        )
        for node in nodes
    }


def _public(number: str) -> str:
    """A version without its build, which differs between nodes with and without GPUs (`2.11.0+cu130`, `2.11.0+cpu`)."""
    return number.partition("+")[0]
