"""The division of a step's rows into optimiser updates, data-parallel ranks and micro-batches.

verl requires equal parts and adds rows of padding to reach them. The number of rows differs between steps (a filter,
failed episodes), so the sizes are computed from the rows here, with the least padding. Rows are ordered so that every
update has its share of each environment and of the padding, and every micro-batch rows of like length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from ragen_verl.training.batch import TrajectoryBatch

__all__ = ["ModelPass", "StepPlan", "rows_per_rank", "spread_environments"]


@dataclass(frozen=True)
class ModelPass:
    """One pass of a model over the step's rows.

    Attributes:
        updates: optimiser updates per epoch; 1 for a pass without an update.
        micro: the highest number of rows per rank in one micro-batch; None where verl packs them by tokens.
    """

    updates: int = 1
    micro: int | None = None

    def fits(self, per_rank: int) -> bool:
        """Whether `per_rank` rows are whole updates of equal micro-batches, none below half the configured size."""
        if per_rank % self.updates:
            return False
        return self.micro is None or 2 * self.micro_batch(per_rank) >= min(self.micro, per_rank // self.updates)

    def micro_batch(self, per_rank: int) -> int | None:
        """Rows of one micro-batch: the largest divisor of an update's rows up to `micro`; None where verl packs."""
        if self.micro is None:
            return None
        rows = per_rank // self.updates
        return next(size for size in range(min(self.micro, rows), 0, -1) if rows % size == 0)


def rows_per_rank(rows: int, ranks: int, passes: Sequence[ModelPass]) -> int:
    """The least number of rows per rank, with padding, that every pass can divide equally."""
    return next(size for size in count(-(-rows // ranks)) if all(one.fits(size) for one in passes))


@dataclass(frozen=True)
class StepPlan:
    """The sizes of the present step, known when its trajectories are chosen.

    Attributes:
        trajectories: those that the update uses; each has at least one row.
        ranks: the number of data-parallel ranks of the actor.
        passes: name -> pass over the model. No pass has more updates than there are rows, since the loss of an update
            with only padding is not defined.
        per_rank: the rows of one rank, with padding.
        shares: whether rows that begin alike are computed together (`ragen_verl.patches.prefixes`).
    """

    trajectories: TrajectoryBatch
    ranks: int
    passes: Mapping[str, ModelPass]
    per_rank: int
    shares: bool = False

    @classmethod
    def of(
        cls, trajectories: TrajectoryBatch, ranks: int, wanted: Mapping[str, ModelPass], shares: bool = False
    ) -> StepPlan:
        """The plan for these trajectories.

        Args:
            trajectories: at least one.
            ranks: data-parallel ranks.
            wanted: the passes of a step as the recipe has them.
            shares: as the attribute.
        """
        rows = len(trajectories.row_keys)
        passes = {name: ModelPass(min(one.updates, rows), one.micro) for name, one in wanted.items()}
        return cls(trajectories, ranks, passes, rows_per_rank(rows, ranks, list(passes.values())), shares)

    @property
    def rows(self) -> int:
        """Rows to train on."""
        return len(self.trajectories.row_keys)

    @property
    def padded(self) -> int:
        """Rows of all ranks, with padding."""
        return self.per_rank * self.ranks

    def rows_per_update(self, name: str) -> float:
        """Rows to train on in an update of this pass, on average."""
        return self.rows / self.passes[name].updates

    def order(self, keys: Sequence[str], lengths: Sequence[int], seed: tuple[int, int]) -> list[int]:
        """The order of rows for verl: rank after rank, update after update, and in an update by length.

        A micro-batch is padded to its longest row. In the order of the groups the update of a nano run would spend more
        than a quarter of its time on padding. Rows that share prefixes have none, and stay in the order of the groups.

        Args:
            keys: the keys of all rows; rows of no trajectory in this plan are padding.
            lengths: tokens of each row; in every update the ranks get equal work.
            seed: the run's seed, and the step.

        Returns:
            The indices of the rows, in their new order.
        """
        place = {key: index for index, key in enumerate(keys)}
        chosen = zip(self.trajectories.groups, self.trajectories.keys, strict=True)
        group = {key: uid for uid, mine in chosen for key in mine}
        rows = [place[key] for key in spread_environments(self.trajectories)]
        padding = sorted(set(range(len(keys))) - set(rows))
        cells = math.lcm(*(one.updates for one in self.passes.values()))  # the common division of actor and critic
        ranks: list[list[int]] = [[] for _ in range(self.ranks)]
        size = len(keys) // cells
        # the first update is drawn, so that a rare environment is not always in the same one
        updates = max(one.updates for one in self.passes.values())
        first = int(np.random.default_rng(seed).integers(updates)) * (cells // updates)
        for cell in (*range(first, cells), *range(first)):
            mine = rows[cell * len(rows) // cells : (cell + 1) * len(rows) // cells]
            mine += [padding.pop() for _ in range(size - len(mine))]
            groups = Counter(group.get(keys[row]) for row in mine)
            one = math.gcd(size // self.ranks, *groups.values()) if self.shares else 1  # rows that stay together
            workload = calculate_workload(torch.tensor([lengths[row] for row in mine])).reshape(-1, one).sum(1).tolist()
            parts = get_seqlen_balanced_partitions(workload, k_partitions=self.ranks, equal_size=True)
            for rank, part in zip(ranks, parts, strict=True):
                taken = [row for index in sorted(part) for row in mine[index * one : (index + 1) * one]]
                rank += taken if self.shares else sorted(taken, key=lengths.__getitem__)
        return [row for rank in ranks for row in rank]


def spread_environments(trajectories: TrajectoryBatch) -> list[str]:
    """The keys of all rows, group by group; the rows of each environment are spread evenly over the order."""
    rows: dict[str, list[str]] = {}
    environment: dict[str, str] = {}
    for record, uid, keys in zip(trajectories.records, trajectories.groups, trajectories.keys, strict=True):
        environment[uid] = record["env"]
        rows.setdefault(uid, []).extend(keys)
    totals = Counter(environment[uid] for uid in rows for _ in rows[uid])
    before: Counter[str] = Counter()
    middle = {}
    for uid, mine in rows.items():
        env = environment[uid]
        middle[uid] = (before[env] + len(mine) / 2) / totals[env]
        before[env] += len(mine)
    # one order of environments in every round of them, so that no cut inside a round leaves one out
    return [key for uid in sorted(rows, key=lambda uid: (middle[uid], environment[uid])) for key in rows[uid]]
