"""The seconds of each part of a step on a card, computed: its roofline, and an estimate of what is installed.

The roofline of a part is the time that the card needs at the rates of its data sheet: the larger of arithmetic and
memory traffic, and what goes over the links. The estimate divides these by shares that are usual, and adds what does
not shrink with the card. Shares and constants are assumptions: none was measured here, and `ragen-verl qualify` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragen_lab.qualify import memory
from ragen_lab.qualify.cards import Card
from ragen_lab.qualify.shapes import Shape, shape_of

from ragen_verl.config import RagenConfig

__all__ = ["ASSUMED", "Estimate", "Part", "Work", "estimate"]

_FIRST, _STATE, _ANSWER, _LONGEST = 300, 80, 100, 1.3
"""Tokens of the first prompt, of a later turn's observation, of an answer; a turn's longest answer over its mean."""
_ARITHMETIC, _TRAFFIC, _LINK, _HOST = 0.35, 0.7, 0.7, 0.2
"""Shares of the data sheet that are reached; host: copies between GPU and memory that is not pinned."""
_PASS, _TURN, _DECODE, _PUSH, _SLEEP, _OWN = 0.2, 0.08, 0.0027, 0.5, 0.6, 0.3
"""Seconds: of a model pass before it computes, of a turn's environments, of a decoded token besides its arithmetic, of
a push, of sleep and wake, of filter, advantages and metrics."""
_LOGITS = {"forward": 20, "update": 60}
"""Bytes that are read and written for an element of the logits: log-probs in chunks, and a compiled entropy."""
_CHUNKED = 100
"""More of them where the entropy is in chunks instead."""
ASSUMED = (
    f"every episode plays all its turns; a first prompt has {_FIRST} tokens, an observation {_STATE}, an answer "
    f"{_ANSWER} (the longest of a turn {_LONGEST:g} times that). A filter for a share of the mass keeps that share of "
    f"groups. Reached are {_ARITHMETIC:.0%} of the arithmetic, {_TRAFFIC:.0%} of bandwidth and links, {_HOST:.0%} of "
    f"the way to main memory. A model pass takes {_PASS:g} s in addition to its arithmetic, a decoded token "
    f"{_DECODE * 1000:g} ms, a push {_PUSH:g} s, sleep and wake {_SLEEP:g} s, a turn's environments {_TURN:g} s, "
    f"everything else {_OWN:g} s."
)


@dataclass(frozen=True)
class Work:
    """What a step has to do, all GPUs together.

    Attributes:
        groups: P.
        rows: trajectories that are played.
        kept: trajectories that are trained on.
        turns: of an episode.
        length: tokens of a trajectory.
        updates: optimiser steps.
    """

    groups: int
    rows: int
    kept: int
    turns: int
    length: int
    updates: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Work:
        """That of a composed and resolved recipe."""
        ragen, part = RagenConfig.from_omegaconf(config), config["actor_rollout_ref"]
        groups, members, actor = ragen.train.groups, part["rollout"]["n"], part["actor"]
        kept = ragen.kept_groups
        if ragen.filter.strategy == "top_p":
            kept = max(kept, round(ragen.filter.all_options()["value"] * groups))
        turns = min(ragen.rollout.max_turns, ragen.rollout.max_actions or ragen.rollout.max_turns)
        answer = min(_ANSWER, ragen.rollout.response_length)
        updates = ragen.updates(actor["ppo_mini_batch_size"], kept) * actor["ppo_epochs"]
        return cls(
            groups, groups * members, kept * members, turns, _FIRST + turns * answer + (turns - 1) * _STATE, updates
        )


@dataclass(frozen=True)
class Part:
    """A part of a step, seconds.

    Attributes:
        name: of the part.
        roofline: at the rates of the data sheet.
        bound: which of them it is: arithmetic, bandwidth, link, host; "-" where nothing bounds it.
        estimate: with what is installed.
    """

    name: str
    roofline: float
    bound: str
    estimate: float


@dataclass(frozen=True)
class Estimate:
    """A recipe on a card.

    Attributes:
        work: what a step has to do.
        gpus: of the trainer.
        parts: in order.
        need: memory.
    """

    work: Work
    gpus: int
    parts: list[Part]
    need: memory.Need

    @property
    def roofline(self) -> float:
        """Seconds of a step at the rates of the data sheet."""
        return sum(part.roofline for part in self.parts)

    @property
    def seconds(self) -> float:
        """Seconds of a step as estimated."""
        return sum(part.estimate for part in self.parts)


def estimate(config: Mapping[str, Any], card: Card) -> Estimate:
    """The parts of a step of a composed and resolved recipe, one after the other as in `mode=sync`."""
    part = config["actor_rollout_ref"]
    work, shape = Work.of(config), shape_of(str(part["model"]["path"]))
    gpus = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    parts = [_prefill(work, shape, gpus, card), _decode(config, work, shape, gpus, card)]
    parts.append(Part("turns, environments", 0.0, "-", _TURN * work.turns))
    found = memory.roles(config)
    for name, (role, kind, budget, model, block) in memory.passes(config).items():
        parts.append(_pass(name, found[role], kind, budget, model, block, work, shape, gpus, card))
    parts.append(_push(config, found["actor"], shape, card))
    parts.append(Part("filter, advantages, metrics", 0.0, "-", _OWN))
    return Estimate(work, gpus, parts, memory.need(config, card.gb))


def _part(
    name: str, card: Card, flops: float, traffic: float, *, more: float = 0.0, again: float = 1.0, unseen: float = 0.0,
    link: float = 0.0, host: float = 0.0,
) -> Part:  # fmt: skip
    """A part of bytes and operations on one GPU.

    Args:
        name: of the part.
        card: the card.
        flops: operations.
        traffic: bytes of its own memory that have to be read and written.
        more: seconds that do not depend on the card.
        again: arithmetic that is done, over that which has to be.
        unseen: bytes of its own memory on top, which other kernels would not need.
        link: bytes over the links between GPUs.
        host: bytes between GPU and main memory.
    """
    terms = {
        "arithmetic": flops / card.tflops / 1e12,
        "bandwidth": traffic / card.bandwidth / 1e9,
        "link": link / card.link / 1e9,
        "host": host / card.host / 1e9,
    }
    work = max(terms["arithmetic"] * again / _ARITHMETIC, terms["bandwidth"] / _TRAFFIC)
    extra = unseen / card.bandwidth / 1e9 / _TRAFFIC + terms["link"] / _LINK + terms["host"] / _HOST
    floor = max(terms["arithmetic"], terms["bandwidth"]) + terms["link"] + terms["host"]
    return Part(name, floor, max(terms, key=terms.__getitem__), work + extra + more)


def _prefill(work: Work, shape: Shape, gpus: int, card: Card) -> Part:
    """The prompts: a group shares its first one, and a turn what came before it."""
    tokens = (work.groups * _FIRST + work.rows * (work.turns - 1) * _STATE) / gpus
    return _part("prefill", card, tokens * 2 * shape.layers * shape.block, 2 * shape.parameters * work.turns)


def _decode(config: Mapping[str, Any], work: Work, shape: Shape, gpus: int, card: Card) -> Part:
    """The answers: each step reads the weights and the cache of all running rows."""
    rollout = config["actor_rollout_ref"]["rollout"]
    shared = rollout["tensor_model_parallel_size"]
    if not config["actor_rollout_ref"].get("hybrid_engine", True):
        gpus = rollout["nnodes"] * rollout["n_gpus_per_node"]
    rows = work.rows * shared / gpus
    answer = (work.length - _FIRST - (work.turns - 1) * _STATE) / work.turns
    steps = work.turns * answer * _LONGEST
    cache = 2 * 2 * shape.layers * shape.kv_heads * shape.head * (_FIRST + work.length) / 2
    traffic = (steps * 2 * shape.parameters + rows * work.turns * answer * cache) / shared
    flops = rows * work.turns * answer * 2 * shape.parameters / shared
    return _part("decode", card, flops, traffic, more=steps * _DECODE)


def _pass(
    name: str,
    role: memory.Role,
    kind: str,
    budget: int,
    model: Mapping[str, Any],
    block: Mapping[str, Any],
    work: Work,
    shape: Shape,
    gpus: int,
    card: Card,
) -> Part:
    """A pass of a model over the trajectories that are trained on; see `memory.passes`."""
    tokens = work.kept * work.length / gpus
    update, head = kind in memory.UPDATES, kind in ("forward", "update")
    passes = max(math.ceil(tokens / budget), work.updates if update else 1)  # micro-batches
    sdpa = (model.get("override_config") or {}).get("attn_implementation") == "sdpa"
    seen = min(budget, tokens) if sdpa and model.get("use_remove_padding") else work.length / 2
    matrices = shape.layers * shape.block + head * shape.embedding
    attention = 4 * shape.layers * shape.heads * shape.head
    flops = tokens * (2 * matrices + attention * work.length / 2) * (3 if update else 1)
    done = tokens * (2 * matrices + attention * seen) * (3 if update else 1)
    done *= 4 / 3 if update and model.get("enable_gradient_checkpointing") else 1
    trained = role.moments / 8 * memory.GB  # parameters of a GPU's share
    engine = block.get("fsdp_config") or block.get("fsdp") or {}
    per_logit = _LOGITS["update" if update else "forward"] + _CHUNKED * bool(
        engine.get("entropy_from_logits_with_chunking")
    )
    gathered = 2.0 * shape.parameters * (1 + (update and engine.get("reshard_after_forward", True)))
    gathered += 4 * trained * gpus * update
    moved = 2 * (role.weights * role.params_wait + update * role.moments * role.moments_wait) * memory.GB
    if role.streamed:
        moved = role.weights * memory.GB * passes
    return _part(
        name, card, flops, 28 * trained * work.updates * update, more=_PASS, again=done / flops,
        unseen=head * tokens * shape.vocabulary * per_logit, link=passes * gathered * (gpus - 1) / gpus, host=moved,
    )  # fmt: skip


def _push(config: Mapping[str, Any], role: memory.Role, shape: Shape, card: Card) -> Part:
    """The weights in bf16 into the engine: within a card, or through main memory to devices of its own."""
    rollout, together = config["actor_rollout_ref"]["rollout"], config["actor_rollout_ref"].get("hybrid_engine", True)
    host = 2 * role.weights * role.params_wait * memory.GB
    backend = rollout["checkpoint_engine"].get("backend")
    weights = 2 * shape.parameters
    host += 0 if together or backend == "nccl" else 2 * weights
    sleeps = _SLEEP if together and rollout["free_cache_engine"] else 0.0
    return _part("sleep, push, wake", card, 0.0, 3 * weights, more=_PUSH + sleeps, host=host)
