"""verl's agent loop: it plays one episode per session with `play` and hands exactly its tokens to the replay buffer.

An episode is one row or, where the context says so, a row per turn: keys `{uid}_{session_id}_{index}`.

verl creates one loop per session (experimental/agent_loop/agent_loop.py:661-695) and calls `run` with the row of
`ragen_verl.training.dataset.EnvDataset`; what differs between engines and versions of verl stays in this file.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ragen_verl.config import RagenConfig
from ragen_verl.env import make, registry
from ragen_verl.env.hosting.process import EnvProcesses
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.rows import Row, rows_of
from ragen_verl.rollout.trajectory import RECORD, Offsets, Trajectory

__all__ = ["Engine", "RagenAgentLoop", "RagenOutput", "to_outputs"]


class RagenOutput(AgentLoopOutput):
    """verl's output with a reward per token: each turn's on its last sampled token."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """verl's fields with `rm_scores` (float32, one per response token) taken from `token_rewards`."""
        output = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_rewards"), dtype=torch.float32)
        return output


class RagenAgentLoop(AgentLoopBase):
    """Plays one episode with verl's engine. Registered as `ragen`; the arguments are verl's."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # not verl's own constructor: it builds a tokenization of its own (Continuous Token), and a loop is built
        # for every session
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[RagenOutput]:
        """Plays the row's environment and seed as number `session_id` of its group."""
        ragen = _ragen_config(self.config)
        info, rollout_index = row["extra_info"], int(row["session_id"])
        protocol, context = ragen.rollout.protocol(), ragen.rollout.chat_context()
        rollout = self.config.actor_rollout_ref.rollout
        entropy = (info["seed"], rollout_index) if ragen.rollout.seeded_sampling else None
        if rollout.name == "vllm":
            sampling_params = {**sampling_params, "detokenize": False}  # ids are all that is used
        engine = Engine(self.server_manager, sampling_params, entropy)
        build, workers = make, _workers(ragen.rollout.env_threads)
        if registry.isolation(info["env_id"]) == "process":
            process = _processes(ragen.rollout.env_processes, ragen.rollout.step_timeout).worker()
            build, workers = process.make, process.threads
        chat = _chat(self.tokenizer, protocol, tuple(self.config.data.apply_chat_template_kwargs.items()))
        trajectory = await play(
            partial(build, info["env_id"], **info["kwargs"]),
            seed=info["seed"],
            rollout_index=rollout_index,
            protocol=protocol,
            chat=chat,
            generate=engine,
            limits=Limits(
                response_length=ragen.rollout.response_length,
                context_length=min(rollout.max_model_len, rollout.prompt_length + rollout.response_length),
                step_timeout=ragen.rollout.step_timeout,
                prompt_length=rollout.prompt_length if context.row_per_turn else None,
            ),
            workers=workers,
            env_id=info["env_id"],
            env_name=info["name"],
            context=context,
            shared_rng=ragen.rollout.shared_group_rng,
        )
        return to_outputs(
            trajectory,
            engine,
            filler=self.tokenizer.eos_token_id,
            log_probs=rollout.calculate_log_probs,
            loss_on_env_tokens=ragen.rollout.loss_on_env_tokens,
            held_out=info["split"] != "train",
            offsets=chat.offsets if ragen.run.tokens else None,
        )


class Engine:
    """verl's LLM client in the form that `play` calls: ids in, ids out, one request at a time.

    Args:
        client: verl's `LLMServerClient`.
        sampling_params: temperature and so on, shared by all sessions and therefore copied.
        entropy: the group's seed and the rollout index; every turn's sampling is seeded by them and the turn, so that a
            rerun or a resumed run samples the same tokens from the same weights. None leaves it to the engine.
    """

    def __init__(self, client: Any, sampling_params: dict[str, Any], entropy: tuple[int, int] | None) -> None:
        self.client = client
        self.sampling_params = sampling_params
        self.seeds = None if entropy is None else np.random.default_rng(entropy)
        self.request_id = uuid4().hex  # sticky: all turns go to the server that has the prefix cached
        self.steps: dict[str, int] = {}

    async def __call__(self, ids: list[int], max_tokens: int) -> Generation:
        """Samples at most `max_tokens` ids after `ids`."""
        params = {**self.sampling_params, "max_tokens": max_tokens}
        if self.seeds is not None:
            params["seed"] = int(self.seeds.integers(2**31))
        try:
            output = await self.client.generate(request_id=self.request_id, prompt_ids=ids, sampling_params=params)
        except Exception as error:  # Ray's text is the whole remote traceback; its last line is the cause
            raise RuntimeError(str(error).strip().splitlines()[-1]) from error
        first, last = output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]
        self.steps = {"min_global_steps": self.steps.get("min_global_steps", first), "max_global_steps": last}
        return Generation(list(output.token_ids), output.log_probs)


def to_outputs(
    trajectory: Trajectory,
    engine: Engine,
    *,
    filler: int,
    log_probs: bool = True,
    loss_on_env_tokens: bool = False,
    held_out: bool = False,
    offsets: Offsets | None = None,
) -> list[RagenOutput]:
    """A trajectory as verl's rows, each with the turns it trains on and where they end.

    The record travels on the first row. verl's validation hands on what is in `reward_extra_info` and nothing else, so
    there it is in that.

    Args:
        trajectory: what was played.
        engine: knows which weights played it.
        filler: the id of a trajectory without a sampled one, which still is a row: masked out.
        log_probs: hand on the engine's log-probabilities; all rows of a batch or none have them.
        loss_on_env_tokens: see `rows_of`.
        held_out: the trajectory is one of validation.
        offsets: see `Trajectory.record`.
    """
    blank = Row([], [filler], [filler], [0], [0.0], [0.0], [])
    record = json.dumps(trajectory.record(offsets), ensure_ascii=False)
    steps = engine.steps or {"min_global_steps": 0, "max_global_steps": 0}
    return [
        RagenOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.response_ids,
            response_mask=row.response_mask,
            response_logprobs=(row.log_probs or [0.0] * len(row.response_ids)) if log_probs else None,
            token_rewards=row.rewards,
            reward_score=trajectory.ret,  # tells verl that nothing is left to score; `token_rewards` are what counts
            num_turns=len(trajectory.turns),
            metrics=AgentLoopMetrics(),
            extra_fields={
                **steps,
                "turns": row.turns,
                "turn_ends": row.ends,
                "reward_extra_info": {RECORD: record} if held_out else {},
                RECORD: "" if held_out or index else record,
            },
        )
        for index, row in enumerate(rows_of(trajectory, loss_on_env_tokens) or [blank])
    ]


@lru_cache(maxsize=4)
def _chat(tokenizer: Any, protocol: Protocol, options: tuple) -> ChatTokens:
    """One per tokenizer and protocol: what it derives from the template is the same for every episode."""
    return ChatTokens(tokenizer, protocol, dict(options))


@lru_cache(maxsize=1)
def _workers(threads: int) -> EnvWorkers:
    """One pool per process."""
    return EnvWorkers(threads)


@lru_cache(maxsize=1)
def _processes(count: int, timeout: float) -> EnvProcesses:
    """One pool per process, for environments that ask for processes."""
    return EnvProcesses(count, timeout)


_configs: dict[int, tuple[Any, RagenConfig]] = {}


def _ragen_config(config: Any) -> RagenConfig:
    """The typed block, parsed once for a config object and not once an episode."""
    if id(config) not in _configs:
        _configs[id(config)] = (config, RagenConfig.from_omegaconf(config))  # holding it keeps the id its own
    return _configs[id(config)][1]
