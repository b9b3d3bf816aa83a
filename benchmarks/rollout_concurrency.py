"""Episodes per second of the asynchronous loop: against a lock-step barrier, and against the engine alone.

    python benchmarks/rollout_concurrency.py [--episodes 128] [--concurrency 64] [--rounds 2]

A real engine (vLLM, the nano model) plays FrozenLake through `ragen_verl.rollout.episode.play`, the same seeds every
time, and a fixed number of episodes is in flight. Each action takes 5 to 50 ms, drawn from the episode's seed.

- `asynchronous`: every episode goes on when its own answer is there, and a finished one makes room for the next.
- `lock-step`: all episodes in flight are sampled together, then all act together; the next ones begin when all ended.
- `no latency`: the asynchronous loop where actions take no time, and
- `engine alone`: the same prompts with the same numbers of tokens, the same number in flight, no environment.

All four are repeated `--rounds` times in turn; the ratios are those of the best round of each.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; what ragen_verl/cpu/patches.py sets for a training
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from ragen_envs.frozen_lake import FrozenLake
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from ragen_verl.cpu.nano import nano_model_path
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.trajectory import Trajectory
from ragen_verl.rollout.workers import EnvWorkers
from ragen_verl.run_folder import versions

RESULT = Path(__file__).parent / "results" / "rollout_concurrency.json"
RULES = Protocol()
LIMITS = Limits(response_length=96, context_length=1024, step_timeout=60.0)
LATENCY = (0.005, 0.050)


class SlowLake(FrozenLake):
    """FrozenLake whose actions take their time, as a browser or a database would."""

    def step(self, action: str):
        time.sleep(self.dynamics.uniform(*LATENCY))
        return super().step(action)


class Engine:
    """vLLM's asynchronous engine with the nano model."""

    def __init__(self, concurrency: int) -> None:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.async_llm import AsyncLLM

        self.engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(nano_model_path()),
                dtype="float32",
                max_model_len=LIMITS.context_length,
                max_num_seqs=concurrency,
                enforce_eager=True,
                enable_chunked_prefill=False,
                distributed_executor_backend="uni",
                disable_log_stats=True,
            )
        )
        self.params = partial(
            SamplingParams, temperature=1.0, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY
        )
        self.numbers = itertools.count()

    async def sample(self, ids: list[int], **params: Any) -> list[int]:
        request = self.engine.generate({"prompt_token_ids": ids}, self.params(**params), str(next(self.numbers)))
        tokens: list[int] = []
        async for output in request:
            tokens = list(output.outputs[0].token_ids)
        return tokens


class Barrier:
    """Lets nobody on before all that still take part are there."""

    def __init__(self, parties: int) -> None:
        self.parties, self.waiting, self.gate = parties, 0, asyncio.Event()

    async def wait(self) -> None:
        self.waiting += 1
        gate = self.gate
        self._open()
        await gate.wait()

    def leave(self) -> None:
        self.parties -= 1
        self._open()

    def _open(self) -> None:
        if self.waiting and self.waiting >= self.parties:
            self.waiting, gate, self.gate = 0, self.gate, asyncio.Event()
            gate.set()


class Bench:
    """One engine, one tokenizer, and the ways to play with them."""

    def __init__(self, episodes: int, concurrency: int) -> None:
        self.episodes, self.concurrency = episodes, concurrency
        self.engine = Engine(concurrency)
        self.chat = ChatTokens(AutoTokenizer.from_pretrained(nano_model_path()), RULES)
        self.workers = EnvWorkers(concurrency)  # waiting for a thread is not what is measured

    async def episode(self, seed: int, env: Callable, barrier: Barrier | None = None) -> Trajectory:
        turn_seeds = np.random.default_rng(seed)

        async def generate(ids: list[int], max_tokens: int) -> Generation:
            if barrier:
                await barrier.wait()  # all have acted
            tokens = await self.engine.sample(
                ids, max_tokens=max_tokens, seed=int(turn_seeds.integers(2**31)), stop_token_ids=list(self.chat.eos_ids)
            )
            if barrier:
                await barrier.wait()  # all are sampled
            return Generation(tokens)

        try:
            return await play(
                env, seed=seed, member=0, protocol=RULES, chat=self.chat, generate=generate, limits=LIMITS,
                workers=self.workers, env_id="FrozenLake",
            )  # fmt: skip
        finally:
            if barrier:
                barrier.leave()

    async def asynchronous(self, env: Callable) -> list[Trajectory]:
        return await self._in_flight([partial(self.episode, seed, env) for seed in range(self.episodes)])

    async def lock_step(self, env: Callable) -> list[Trajectory]:
        played = []
        for first in range(0, self.episodes, self.concurrency):
            seeds = range(first, min(first + self.concurrency, self.episodes))
            barrier = Barrier(len(seeds))
            played += await asyncio.gather(*(self.episode(seed, env, barrier) for seed in seeds))
        return played

    async def engine_alone(self, requests: list[tuple[list[int], int]]) -> None:
        same = partial(partial, self.engine.sample, ignore_eos=True)
        await self._in_flight([same(ids, max_tokens=n, min_tokens=n, seed=n) for ids, n in requests])

    async def _in_flight(self, jobs: list[Callable]) -> list:
        queue, results = iter(enumerate(jobs)), [None] * len(jobs)

        async def work() -> None:
            for number, job in queue:
                results[number] = await job()

        await asyncio.gather(*(work() for _ in range(self.concurrency)))
        return results


def requests_of(played: list[Trajectory]) -> list[tuple[list[int], int]]:
    """Every prompt that the engine saw, with the number of tokens it sampled, turn by turn."""
    found = []
    for trajectory in played:
        ids: list[int] = []
        for number, turn in enumerate(trajectory.turns):
            ids = [*ids, *turn.prompt_ids]
            found.append((number, ids, len(turn.response_ids)))
            ids = [*ids, *turn.response_ids]
    return [(ids, count) for _, ids, count in sorted(found, key=lambda one: one[0])]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(options.episodes, options.concurrency)
    plain, slow = partial(FrozenLake, success_rate=1.0), partial(SlowLake, success_rate=1.0)
    reference = await bench.asynchronous(plain)  # warms everything up
    requests = requests_of(reference)
    tokens = sum(count for _, count in requests)
    modes = {
        "asynchronous": partial(bench.asynchronous, slow),
        "lock-step": partial(bench.lock_step, slow),
        "no latency": partial(bench.asynchronous, plain),
        "engine alone": partial(bench.engine_alone, requests),
    }
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    per_token: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(options.rounds):
        for mode, run in modes.items():
            await bench.engine.engine.reset_prefix_cache()
            started = time.perf_counter()
            played = await run()
            seconds[mode].append(time.perf_counter() - started)
            sampled = sum(len(t.response_ids) for p in played for t in p.turns) if played else tokens
            per_token[mode].append(sampled / seconds[mode][-1])
            if played and any(trajectory.excluded for trajectory in played):
                raise SystemExit(next(trajectory.error for trajectory in played if trajectory.excluded))
    best = {mode: min(values) for mode, values in seconds.items()}
    rate = {mode: max(values) for mode, values in per_token.items()}
    return {
        "episodes": options.episodes, "in_flight": options.concurrency, "turns": len(requests), "tokens": tokens,
        "latency_seconds": LATENCY, "seconds": seconds, "tokens_per_second": per_token,
        "trajectories_per_second": {mode: options.episodes / best[mode] for mode in list(modes)[:3]},
        "asynchronous_to_lock_step": best["lock-step"] / best["asynchronous"],
        "no_latency_to_engine_alone": rate["no latency"] / rate["engine alone"],
        "asynchronous_to_engine_alone": rate["asynchronous"] / rate["engine alone"],
        "cores": os.cpu_count(), "load_average_at_the_end": os.getloadavg(), "versions": versions(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    result = asyncio.run(measure(parser.parse_args()))
    table = Table(title=f"{result['episodes']} episodes, {result['in_flight']} in flight, {result['tokens']} tokens")
    for column in ("mode", "seconds, best round", "tokens per second"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    for mode, seconds in result["seconds"].items():
        table.add_row(mode, f"{min(seconds):.1f}", f"{max(result['tokens_per_second'][mode]):.0f}")
    console = Console(width=110)
    console.print(table)
    for key in ("asynchronous_to_lock_step", "no_latency_to_engine_alone", "asynchronous_to_engine_alone"):
        console.print(f"{key.replace('_', ' ')}: {result[key]:.2f}")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
