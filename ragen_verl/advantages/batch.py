"""One batch as the estimators see it: rewards, the mask of sampled tokens, the trajectory and group of each row.

Three views of the same tokens are used. A *field* is (rows, T), as verl has it. A *stream* is (tokens,): the sampled
tokens alone, row after row, so that values on observation tokens cannot enter any formula, not even as NaN. A
*table* is (trajectories, turns), zero where a trajectory has ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ragen_verl.advantages._torch import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AdvantageBatch", "Rollouts", "Turns", "turn_numbers"]


@dataclass(frozen=True)
class AdvantageBatch:
    """The rows of one update and the data that their advantages are computed from. All tensors are on one device.

    Attributes:
        rewards: (rows, T) float32, in the environment's unit; a turn's reward on its last sampled token, or rewards on
            any sampled tokens (a KL penalty is on all of them). Rewards on other tokens are never read.
        mask: (rows, T) bool, integer or float, 1 exactly on the tokens that are trained on, called sampled ones here. A
            row without one is padding and is ignored.
        groups: (rows,) int64, the group (initial state) of the row's trajectory.
        trajectories: (rows,) int64, the row's trajectory; it can have several rows, one after the other.
        order: (rows,) int64, the row's position in its trajectory; different for each row of one trajectory.
        values: (rows, T) float32, the critic's value before each sampled token, or None.
        states: for each row, for each of its turns, the key of the state that the turn started in, or None.
        ends: for each row, the column of the last token of each of its turns, ascending; tokens between two of them
            belong to the later turn. None: every unbroken run of the mask is a turn.

    Raises:
        ValueError: shapes that do not belong together, or states that are not one per turn.
    """

    rewards: Tensor
    mask: Tensor
    groups: Tensor
    trajectories: Tensor
    order: Tensor
    values: Tensor | None = None
    states: Sequence[Sequence[Hashable]] | None = None
    ends: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        shape = self.rewards.shape
        fields = [self.mask] if self.values is None else [self.mask, self.values]
        if len(shape) != 2 or any(one.shape != shape for one in fields):
            shapes = [tuple(one.shape) for one in (self.rewards, *fields)]
            raise ValueError(f"rewards, mask and values have the shapes {shapes} but belong to one (rows, T)")
        if any(one.shape != shape[:1] for one in (self.groups, self.trajectories, self.order)):
            raise ValueError(f"groups, trajectories and order need one entry for each of {shape[0]} rows")
        if self.states is not None and len(self.states) != shape[0]:
            raise ValueError(f"{len(self.states)} rows of states for {shape[0]} rows")
        if self.ends is not None and len(self.ends) != shape[0]:
            raise ValueError(f"{len(self.ends)} rows of turn ends for {shape[0]} rows")

    @cached_property
    def sampled(self) -> Tensor:
        """(rows, T) bool: the mask."""
        return self.mask.bool()

    @cached_property
    def place(self) -> Tensor:
        """(tokens,) int64: index of each sampled token in a flattened (rows, T) field."""
        return self.sampled.reshape(-1).nonzero().squeeze(1)

    @cached_property
    def spans(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, number in its row and count of sampled tokens of every turn that has any; (turns,) int64 each."""
        rows, columns = self.sampled.nonzero().unbind(1)
        most = max(1, self.sampled.shape[1])
        numbers = turn_numbers(self.sampled, self.ends)[rows, columns]
        turns, lengths = torch.unique_consecutive(rows * most + numbers, return_counts=True)
        return turns // most, turns % most, lengths

    @cached_property
    def rollouts(self) -> Rollouts:
        """The trajectories that have a sampled token, and their groups."""
        rows = self.spans[0].unique_consecutive()
        labels, trajectory = torch.unique(self.trajectories[rows], return_inverse=True)
        group = torch.zeros(len(labels), dtype=torch.int64, device=rows.device)
        group[trajectory] = self.groups[rows]
        names, group = torch.unique(group, return_inverse=True)
        return Rollouts(rows, trajectory, group, len(names), self.sampled)

    @cached_property
    def turns(self) -> Turns:
        """The turns of all rows."""
        return Turns.of(self)

    def stream(self, field: Tensor) -> Tensor:
        """A (rows, T) field on the sampled tokens alone, (tokens,) float32."""
        return field.reshape(-1).index_select(0, self.place).float()

    def field(self, stream: Tensor) -> Tensor:
        """A (tokens,) stream at its place in (rows, T) float32, 0 elsewhere."""
        field = torch.zeros(self.mask.numel(), dtype=torch.float32, device=stream.device)
        return field.index_copy_(0, self.place, stream.float()).view(self.mask.shape)


@dataclass(frozen=True)
class Rollouts:
    """Rows, their trajectories, and the trajectories' groups, renumbered without gaps.

    Attributes:
        rows: (used,) int64, indices of the rows that have a sampled token.
        trajectory: (used,) int64, the trajectory of each of them, below `len(group)`.
        group: (trajectories,) int64, the group of each trajectory, below `groups`.
        groups: how many groups there are.
        sampled: (rows, T) bool.
    """

    rows: Tensor
    trajectory: Tensor
    group: Tensor
    groups: int
    sampled: Tensor

    def __len__(self) -> int:
        return len(self.group)

    def total(self, field: Tensor) -> Tensor:
        """Sum of a (rows, T) field over the sampled tokens of each trajectory, (trajectories,) float64."""
        sums = torch.where(self.sampled, field, 0).sum(dim=1, dtype=torch.float64)
        return _zeros(len(self), sums).index_add_(0, self.trajectory, sums[self.rows])

    def per_row(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """One number per trajectory as one per row, (rows, 1) float32."""
        out = torch.full((len(self.sampled), 1), otherwise, dtype=torch.float32, device=values.device)
        out[self.rows, 0] = values.float()[self.trajectory]
        return out

    def to_tokens(self, values: Tensor) -> Tensor:
        """One number per trajectory on each of its sampled tokens, (rows, T) float32, 0 elsewhere."""
        return self.per_row(values) * self.sampled


@dataclass(frozen=True)
class Turns:
    """All turns of a batch, row after row, with their place in the stream and in their trajectory. int64 tensors.

    Attributes:
        row: (turns,), the row it is in.
        trajectory: (turns,), its trajectory, numbered as in `Rollouts`.
        number: (turns,), 0 for its trajectory's first turn, whatever row that is in.
        place: (turns,), its number among the turns of its row.
        length: (turns,), sampled tokens.
        start: (turns,), index of its first token in the stream.
        after: (turns,), tokens of its trajectory that come after it.
        following: (turns,), the turn that comes next in its trajectory, -1 for the last.
        shape: the shape of a table, (trajectories, most turns of a trajectory).
    """

    row: Tensor
    trajectory: Tensor
    number: Tensor
    place: Tensor
    length: Tensor
    start: Tensor
    after: Tensor
    following: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, batch: AdvantageBatch) -> Turns:
        """Find the turns of a batch and put them in the order of their trajectories."""
        row, place, length = batch.spans
        rollouts = batch.rollouts
        of_row = torch.zeros(len(batch.mask), dtype=torch.int64, device=row.device)
        of_row[rollouts.rows] = rollouts.trajectory
        trajectory = of_row[row]
        chronological = torch.argsort(batch.order[row], stable=True)
        chronological = chronological[torch.argsort(trajectory[chronological], stable=True)]
        counts = torch.bincount(trajectory, minlength=len(rollouts))
        ends = length[chronological].cumsum(0)  # tokens up to and with this turn, all trajectories in a line
        owner = trajectory[chronological]
        last = (counts.cumsum(0) - 1)[owner]
        ranks = torch.arange(len(row), device=row.device)
        following = torch.where(ranks < last, chronological.roll(-1), -1)
        return cls(
            row=row,
            trajectory=trajectory,
            number=_placed(chronological, ranks - (counts.cumsum(0) - counts)[owner]),
            place=place,
            length=length,
            start=length.cumsum(0) - length,
            after=_placed(chronological, ends[last] - ends),
            following=_placed(chronological, following),
            shape=(len(rollouts), int(counts.max()) if len(counts) else 0),
        )

    def __len__(self) -> int:
        return len(self.row)

    @property
    def last(self) -> Tensor:
        """(turns,) int64: index of each turn's last token in the stream."""
        return self.start + self.length - 1

    def total(self, stream: Tensor) -> Tensor:
        """Sum of a (tokens,) stream over each turn, (turns,) float64."""
        sums = torch.nn.functional.pad(stream.cumsum(0, dtype=torch.float64), (1, 0))
        return sums[self.start + self.length] - sums[self.start]

    def to_tokens(self, values: Tensor) -> Tensor:
        """One number per turn on each of its tokens, (tokens,)."""
        return values.repeat_interleave(self.length)

    def table(self, values: Tensor) -> Tensor:
        """One number per turn at (trajectory, number), 0 where a trajectory has ended, (trajectories, turns)."""
        table = torch.zeros(self.shape, dtype=values.dtype, device=values.device)
        table[self.trajectory, self.number] = values
        return table

    def entries(self, table: Tensor) -> Tensor:
        """One number per turn from a table, (turns,)."""
        return table[self.trajectory, self.number]


def turn_numbers(mask: Tensor, ends: Sequence[Sequence[int]] | None) -> Tensor:
    """The number, from 0, of the turn of its row that each token belongs to.

    Args:
        mask: (rows, T) bool.
        ends: see `AdvantageBatch`.

    Returns:
        (rows, T) int64; the numbers of tokens outside the mask have no meaning.

    Raises:
        ValueError: a token of the mask comes after its row's last turn.
    """
    if ends is None:
        starts = mask.clone()
        starts[:, 1:] &= ~mask[:, :-1]
        return (starts.cumsum(dim=1) - 1).clamp(min=0)
    begun = torch.zeros(mask.shape[0], mask.shape[1] + 1, dtype=torch.int64, device=mask.device)
    for row, columns in enumerate(ends):
        begun[row, [column + 1 for column in columns]] = 1
    numbers = begun[:, :-1].cumsum(dim=1)
    turns = torch.tensor([len(columns) for columns in ends], dtype=torch.int64, device=mask.device)
    if (mask & (numbers >= turns[:, None])).any():
        raise ValueError("a row has sampled tokens after the end of its last turn")
    return numbers.clamp(max=mask.shape[1] - 1)


def _placed(index: Tensor, values: Tensor) -> Tensor:
    """`values` at `index`: the inverse of values[index] for a permutation."""
    return torch.empty_like(values).scatter_(0, index, values)


def _zeros(count: int, like: Tensor) -> Tensor:
    return torch.zeros(count, dtype=like.dtype, device=like.device)
