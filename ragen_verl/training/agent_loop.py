"""An agent loop for verl: it plays one episode for each session and passes exactly its tokens to the replay buffer.

An episode becomes one row, or one row for each turn if the rollout context asks for it. The key of a row is
`{uid}_{session_id}_{index}`.

verl creates one loop for each session (experimental/agent_loop/agent_loop.py:661-695) and calls `run` with the row of
`ragen_verl.training.dataset.EnvDataset`. What depends on the engine or on the version of verl is in this file alone.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ragen_verl.config import RagenConfig
from ragen_verl.env import make, registry
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.rows import Row, rows_of
from ragen_verl.rollout.trajectory import RECORD, Offsets, Trajectory

if TYPE_CHECKING:
    from ragen_verl.env.hosting.process import EnvProcesses

__all__ = ["Engine", "RagenAgentLoop", "RagenOutput", "to_outputs"]


class RagenOutput(AgentLoopOutput):
    """verl's output with a reward for each token: a turn's reward is at its last sampled token."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """verl's fields, with `rm_scores` (float32, one for each response token) made from `token_rewards`."""
        output = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_rewards"), dtype=torch.float32)
        return output


class RagenAgentLoop(AgentLoopBase):
    """Plays one episode with verl's engine. It is registered as `ragen`; its arguments are verl's."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # verl's own constructor is not called: in every session it would prepare a tokenization that is not used here
        # (Continuous Token)
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[RagenOutput]:
        """Play the environment and the seed of a row; `session_id` is the rollout index in the group."""
        ragen = _ragen_config(self.config)
        info, rollout_index = row["extra_info"], int(row["session_id"])
        protocol, context = ragen.rollout.chat_protocol(), ragen.rollout.chat_context()
        rollout = self.config.actor_rollout_ref.rollout
        entropy = (info["seed"], rollout_index) if ragen.rollout.seeded_sampling else None
        if rollout.name == "vllm":
            sampling_params = {**sampling_params, "detokenize": False}  # only the ids are used
        chat = _chat(self.tokenizer, protocol, tuple(self.config.data.apply_chat_template_kwargs.items()))
        if chat.stop_ids:
            sampling_params = {**sampling_params, "stop_token_ids": list(chat.stop_ids)}
        engine = Engine(self.server_manager, sampling_params, entropy)
        build, workers = make, _workers(ragen.rollout.env_threads)
        if registry.isolation(info["env_id"]) == "process":
            process = _processes(ragen.rollout.env_processes, ragen.rollout.step_timeout).worker()
            build, workers = process.make, process.threads
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
            rewards=ragen.rewards.chosen,
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
    """Makes verl's LLM client callable as `play` needs it: with ids, one request at a time, returning ids.

    Args:
        client: verl's `LLMServerClient`.
        sampling_params: temperature and so on. All sessions share this dict, so it is copied and never changed.
        entropy: the group's seed and the rollout index. With the number of the turn they seed its sampling, so that a
            rerun or a resumed run samples the same tokens from the same weights. None leaves seeding to the engine.
    """

    def __init__(self, client: Any, sampling_params: dict[str, Any], entropy: tuple[int, int] | None) -> None:
        self.client = client
        self.sampling_params = sampling_params
        self.seeds = None if entropy is None else np.random.default_rng(entropy)
        self.request_id = uuid4().hex  # one id for all turns sends them to the server that has their prefix cached
        self.steps: dict[str, int] = {}

    async def __call__(self, ids: list[int], max_tokens: int) -> Generation:
        """Sample at most `max_tokens` ids after `ids`."""
        params = {**self.sampling_params, "max_tokens": max_tokens}
        if self.seeds is not None:
            params["seed"] = int(self.seeds.integers(2**31))
        try:
            output = await self.client.generate(request_id=self.request_id, prompt_ids=ids, sampling_params=params)
        except Exception as error:  # Ray's message is the whole remote traceback, whose last line is the cause
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
    """Convert a trajectory to verl's rows, each with the turns that it trains on and the places where they end.

    The first row carries the trajectory's record. verl's validation passes on only `reward_extra_info`, so the record
    of a held-out trajectory is in there.

    Args:
        trajectory: the trajectory.
        engine: the engine that played it; it knows the steps of the weights that it used.
        filler: the token of a trajectory without any sampled token. verl needs a row for it as well, which is masked.
        log_probs: whether rows get the engine's log-probabilities. All rows of a batch have them, or none.
        loss_on_env_tokens: see `rows_of`.
        held_out: whether the trajectory is one of a validation.
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
            reward_score=trajectory.ret,  # so that verl computes no reward; training uses `token_rewards`
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
    """One object for each tokenizer and protocol: what it reads from the template is the same in every episode."""
    return protocol.chat(tokenizer, dict(options))


@lru_cache(maxsize=1)
def _workers(threads: int) -> EnvWorkers:
    """One pool for each process."""
    return EnvWorkers(threads)


@lru_cache(maxsize=1)
def _processes(count: int, timeout: float) -> EnvProcesses:
    """One pool for each process, for environments that have to run in processes of their own."""
    from ragen_verl.env.hosting.process import EnvProcesses

    return EnvProcesses(count, timeout)


_configs: dict[int, tuple[Any, RagenConfig]] = {}


def _ragen_config(config: Any) -> RagenConfig:
    """The typed `ragen` block, which is parsed once for each config object, not once for each episode."""
    if id(config) not in _configs:
        _configs[id(config)] = (config, RagenConfig.from_omegaconf(config))  # a config that is kept keeps its id
    return _configs[id(config)][1]
