"""The estimators once more, slowly: plain loops over lists in double precision, one definition after the other.

The tests and benchmarks/advantages.py compare with these. A batch is unpacked into trajectories, a trajectory is a list
of turns, a turn a list of (row, column, reward, value).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from ragen_verl.advantages.batch import AdvantageBatch


@dataclass
class Episode:
    group: int
    turns: list[list[tuple[int, int, float, float]]] = field(default_factory=list)
    states: list = field(default_factory=list)

    @property
    def tokens(self) -> list[tuple[int, int, float, float]]:
        return [token for turn in self.turns for token in turn]

    @property
    def ret(self) -> float:
        return math.fsum(reward for _, _, reward, _ in self.tokens)

    def turn_returns(self, gamma: float) -> list[float]:
        total, returns = 0.0, []
        for turn in reversed(self.turns):
            total = math.fsum(reward for _, _, reward, _ in turn) + gamma * total
            returns.insert(0, total)
        return returns


def elements(field: Tensor) -> list:
    """(rows, T) read element by element when asked for it, as a loop over a tensor does."""
    return [_Row(row) for row in field]


class _Row:
    def __init__(self, row: Tensor) -> None:
        self.row = row

    def __getitem__(self, column: int) -> float:
        return self.row[column].item()

    def __len__(self) -> int:
        return len(self.row)


READ = Tensor.tolist  # how a tensor is read; lists are much the faster


def unpack(batch: AdvantageBatch) -> list[Episode]:
    rewards, mask = READ(batch.rewards), READ(batch.mask)
    values = None if batch.values is None else READ(batch.values)
    groups, owners, order = batch.groups.tolist(), batch.trajectories.tolist(), batch.order.tolist()
    episodes: dict[int, Episode] = {}
    for row in sorted(range(len(mask)), key=lambda row: order[row]):
        turns, before = [], 0
        for column in range(len(mask[row])):
            flag = mask[row][column]
            if flag and not before:
                turns.append([])
            if flag:
                value = 0.0 if values is None else values[row][column]
                turns[-1].append((row, column, rewards[row][column], value))
            before = flag
        if turns:
            episode = episodes.setdefault(owners[row], Episode(groups[row]))
            episode.turns += turns
            episode.states += batch.states[row] if batch.states else []
    return list(episodes.values())


class Result:
    """Advantages and returns by (row, column), and the whitening of the first."""

    def __init__(self, batch: AdvantageBatch) -> None:
        rows, columns = batch.mask.shape
        self.advantages = [[0.0] * columns for _ in range(rows)]
        self.returns = [[0.0] * columns for _ in range(rows)]
        self.filled: list[tuple[int, int]] = []

    def put(self, token: tuple, advantage: float, ret: float | None = None) -> None:
        row, column = token[:2]
        self.advantages[row][column] = advantage
        self.returns[row][column] = advantage if ret is None else ret
        self.filled.append((row, column))

    def whiten(self, returns_too: bool = False) -> Result:
        all_of_them = [self.advantages[row][column] for row, column in self.filled]
        if not all_of_them:
            return self
        mean = math.fsum(all_of_them) / len(all_of_them)
        variance = math.fsum((one - mean) ** 2 for one in all_of_them) / max(1, len(all_of_them) - 1)
        for row, column in self.filled:
            self.advantages[row][column] = (self.advantages[row][column] - mean) / math.sqrt(variance + 1e-8)
            if returns_too:
                self.returns[row][column] = self.advantages[row][column]
        return self


def normalised(one: float, others: list[float], by_std: bool) -> float:
    """`one` among `others`, which it is one of."""
    if len(others) < 2:
        return 0.0
    mean = math.fsum(others) / len(others)
    if not by_std:
        return one - mean
    std = math.sqrt(math.fsum((other - mean) ** 2 for other in others) / (len(others) - 1))
    return (one - mean) / (std + 1e-6) if std > 1e-6 else 0.0


def by_group(episodes: list[Episode]) -> dict[int, list[Episode]]:
    groups: dict[int, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    return groups


def gae(batch, gamma=1.0, lam=1.0):
    result = Result(batch)
    for episode in unpack(batch):
        advantage = next_value = 0.0
        for token in reversed(episode.tokens):
            reward, value = token[2:]
            advantage = reward + gamma * next_value - value + gamma * lam * advantage
            next_value = value
            result.put(token, advantage, advantage + value)
    return result.whiten()


def turn_gae(batch, turn_gamma=1.0, turn_lam=1.0):
    result = Result(batch)
    for episode in unpack(batch):
        advantage = next_value = 0.0
        for turn in reversed(episode.turns):
            reward, value = math.fsum(token[2] for token in turn), turn[0][3]
            advantage = reward + turn_gamma * next_value - value + turn_gamma * turn_lam * advantage
            next_value = value
            for token in turn:
                result.put(token, advantage, advantage + value)
    return result.whiten()


def bi_level_gae(batch, gamma=1.0, lam=1.0, turn_gamma=0.95, turn_lam=1.0, value_at_start=False):
    result = Result(batch)
    for episode in unpack(batch):
        high = next_value = next_inner = 0.0
        for turn in reversed(episode.turns):
            *inner, last = turn
            collected = math.fsum(token[2] for token in inner)
            if value_at_start:
                start = turn[0][3]
                high = collected + last[2] + turn_gamma * next_value - start + turn_gamma * turn_lam * high
                next_value, low = start, high + start - collected - last[3]
            else:
                high = last[2] + turn_gamma * (next_inner + next_value) - last[3] + turn_gamma * turn_lam * high
                next_value, next_inner, low = last[3], collected, high
            after = last[3]
            result.put(last, low, low + last[3])
            for token in reversed(inner):
                low = token[2] + gamma * after - token[3] + gamma * lam * low
                after = token[3]
                result.put(token, low, low + token[3])
    return result.whiten()


def grpo(batch, norm_adv_by_std_in_grpo=True):
    result = Result(batch)
    for members in by_group(unpack(batch)).values():
        returns = [episode.ret for episode in members]
        for episode, ret in zip(members, returns, strict=True):
            advantage = normalised(ret, returns, norm_adv_by_std_in_grpo)
            for token in episode.tokens:
                result.put(token, advantage)
    return result


def dr_grpo(batch):
    return grpo(batch, norm_adv_by_std_in_grpo=False)


def rloo(batch):
    result = Result(batch)
    for members in by_group(unpack(batch)).values():
        for one in members:
            others = [other.ret for other in members if other is not one]
            advantage = one.ret - math.fsum(others) / len(others) if others else 0.0
            for token in one.tokens:
                result.put(token, advantage)
    return result


def reinforce_plus_plus(batch, gamma=1.0):
    result = Result(batch)
    for episode in unpack(batch):
        ret = 0.0
        for token in reversed(episode.tokens):
            ret = token[2] + gamma * ret
            result.put(token, ret)
    return result.whiten()


def reinforce_plus_plus_baseline(batch):
    return grpo(batch, norm_adv_by_std_in_grpo=False).whiten(returns_too=True)


def gigpo(batch, norm_adv_by_std_in_grpo=True, step_weight=1.0, step_gamma=0.95):
    result = Result(batch)
    for members in by_group(unpack(batch)).values():
        returns = [episode.ret for episode in members]
        steps = [episode.turn_returns(step_gamma) for episode in members]
        anchored: dict = {}
        for episode, step in zip(members, steps, strict=True):
            for state, ret in zip(episode.states, step, strict=True):
                anchored.setdefault(state, []).append(ret)
        for episode, ret, step in zip(members, returns, steps, strict=True):
            whole = normalised(ret, returns, norm_adv_by_std_in_grpo)
            for turn, state, one in zip(episode.turns, episode.states, step, strict=True):
                part = normalised(one, anchored[state], norm_adv_by_std_in_grpo)
                for token in turn:
                    result.put(token, whole + step_weight * part)
    return result


def turn_grpo(batch, norm_adv_by_std_in_grpo=True, turn_gamma=1.0):
    result = Result(batch)
    for members in by_group(unpack(batch)).values():
        returns = [episode.turn_returns(turn_gamma) for episode in members]
        for episode, own in zip(members, returns, strict=True):
            for k, turn in enumerate(episode.turns):
                column = [one[k] if k < len(one) else 0.0 for one in returns]
                advantage = normalised(own[k], column, norm_adv_by_std_in_grpo)
                for token in turn:
                    result.put(token, advantage)
    return result


def weighted(batch: AdvantageBatch, result: Result, weight: str) -> Result:
    episodes = unpack(batch)
    sizes = [len(episode.tokens if weight == "length" else episode.turns) for episode in episodes]
    mean = sum(sizes) / max(1, len(sizes))
    for episode, size in zip(episodes, sizes, strict=True):
        for row, column, *_ in episode.tokens:
            result.advantages[row][column] *= mean / size
    return result
