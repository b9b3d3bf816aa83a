"""Train/eval overlap: held-out initial states that also occur in training, with another seed but an equal observation.

The splits have different seeds, but a small environment has fewer initial states than a run has seeds. So held-out
results are reported with those states and without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from ragen_verl.names import RECURRING, RETURN, SUCCESS, UNSEEN
from ragen_verl.rollout.trajectory import Record

__all__ = ["InitialStates"]


class InitialStates:
    """The first observations that have occurred in training so far.

    States are compared by the first text that the model saw. Where something is hidden at the start (a secret number,
    the arms' rewards) all states look equal and count as met.
    """

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, records: Iterable[Record]) -> None:
        """Add a step's trajectories (`Trajectory.record()`) that have a turn."""
        self._met.update(_digest(record) for record in records if record["turns"])

    def read(self, folder: Path, step: int) -> None:
        """Add the trajectories of all steps up to `step` in a run's folder; for a resumed run."""
        for file in folder.glob("*.jsonl"):
            if file.stem.isdigit() and int(file.stem) <= step:
                for line in file.read_text("utf-8", errors="replace").split("\n"):
                    with suppress(ValueError, RecursionError, TypeError, KeyError):  # a kill may cut one
                        self.add([json.loads(line)])

    def metrics(self, records: Sequence[Record], prefix: str) -> dict[str, float]:
        """Compare held-out trajectories with training.

        Args:
            records: the trajectories of one split.
            prefix: `val-env` or `generalisation`.

        Returns:
            `{prefix}/recurring`: the number of trajectories whose initial state occurred in training;
            `{prefix}/unseen_success` and `unseen_return`: means over the others, absent if there are none. Excluded
            trajectories are left out.
        """
        counted = [record for record in records if record["turns"] and not record["excluded"]]
        unseen = [record["metrics"] for record in counted if _digest(record) not in self._met]
        found = {f"{prefix}/{RECURRING}": float(len(counted) - len(unseen))}
        if unseen:
            for name in (SUCCESS, RETURN):
                found[f"{prefix}/{UNSEEN}{name}"] = sum(one[name] for one in unseen) / len(unseen)
        return found


def _digest(record: Record) -> bytes:
    return blake2b(record["turns"][0]["state"].encode("utf-8", "surrogatepass"), digest_size=16).digest()
