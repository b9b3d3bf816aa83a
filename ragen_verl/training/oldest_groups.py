"""verl's buffer of the asynchronous trainers, handing over the groups that were submitted first among those that ended.

A group is handed over whole: when the last of its trajectories has ended. `ragen_verl.training.sampler` tops a step up
from the same buffer, so extra groups are bounded, measured and written down as in the synchronous trainer; verl's own
filter (`algorithm.filter_groups`) would delete them unseen, and without a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from ragen_verl.training.batch import RowKey
from ragen_verl.training.data_plane import Batch

__all__ = ["OldestGroups", "oldest"]

_Reasons = tuple[set[str], set[str], set[str], Counter]
"""verl's uids of groups to throw away: stale, of equal returns, failed; and counts of the second."""


def oldest(submitted: Mapping[str, int], finished: Collection[str], count: int) -> list[str]:
    """The first `count` finished groups, by the step that submitted them and their place in it.

    Args:
        submitted: uid -> step, of all groups, in the order of submission.
        finished: uids of groups whose trajectories have all ended.
        count: groups wanted.
    """
    waiting = [uid for uid in submitted if uid in finished]
    return sorted(waiting, key=submitted.__getitem__)[:count]


class OldestGroups(ReplayBufferAsync):
    """verl's asynchronous buffer; the arguments are verl's, which builds it from `trainer.v1.sampler.custom_sampler`.

    A group with a failed trajectory is handed over as far as it is there, as the synchronous trainer has it; one
    without any row is replaced, and too many of those end the run, where verl would replace them forever.
    """

    lost: int = 0  # groups without a row since the last sample

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Batch, dict]:
        """verl's sample of the oldest finished groups.

        Raises:
            RuntimeError: more than `batch_size` groups failed without leaving a row.
        """
        self.lost, self.allowed = 0, batch_size
        return super().sample(global_steps, partition_id, batch_size)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> _Reasons:
        """verl's, without failed groups that left a row."""
        stale, equal, failed, counts = super()._terminal_eviction_reasons(global_steps, partition_id)
        return stale, equal, failed - {RowKey.parse(key).uid for key in self.partitions[partition_id]}, counts

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: _Reasons
    ) -> tuple[set[str], int, int, dict]:
        """verl's, up to a bound."""
        self.lost += len(eviction_reasons[2])
        if self.lost > self.allowed:
            raise RuntimeError(
                f"{self.lost} groups of step {global_steps} failed without a trajectory: the log of the agent-loop "
                "workers has the reason."
            )
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[list[str], dict[str, Any], dict[str, int]]:
        """verl's, in the order of submission within a step."""
        _, rows, submitted = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        return oldest(submitted, sampleable_keys, batch_size), rows, submitted
