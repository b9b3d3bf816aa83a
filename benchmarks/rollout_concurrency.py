"""Episodes per second of the asynchronous loop: against a lock-step barrier, and against the engine alone.

    python benchmarks/rollout_concurrency.py [--episodes 512] [--concurrency 64] [--rounds 3] [--answers 0 64]

A real engine (vLLM, the nano model) plays FrozenLake through `ragen_verl.rollout.episode.play`, the same seeds every
time, and a fixed number of episodes is in flight. Each action takes 5 to 50 ms, drawn from the episode's seed.

- `asynchronous`: every episode continues when its own answer is there, and a finished one makes room for the next.
- `lock-step`: all episodes in flight are sampled together, then all act together; the next ones begin when all ended.
- `no latency`: the asynchronous loop where actions take no time, and
- `engine alone`: the same prompts with the same numbers of tokens, the same number in flight, no environment.

The nano model says its action in 9 tokens, which no language model does; `--answers 64` lets the engine sample 64 for
every answer (0: as many as the model wants), of which the episode is given those up to the end of the turn.

All four are repeated `--rounds` times in turn; a ratio is taken within each round, and its median is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; what ragen_verl/cpu/patches.py sets for a run
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from ragen_envs.frozen_lake import FrozenLake
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import Trajectory
from ragen_verl.runs.folder import versions

RESULT = Path(__file__).parent / "results" / "rollout_concurrency.json"
RULES = Ragen()
LIMITS = Limits(response_length=96, context_length=1024, step_timeout=60.0)
LATENCY = (0.005, 0.050)


class SlowLake(FrozenLake):
    """FrozenLake with slow actions, like those of a browser or a database."""

    def step(self, action: str):
        time.sleep(self.dynamics.uniform(*LATENCY))
        return super().step(action)


class Engine:
    """vLLM's asynchronous engine with the nano model."""

    def __init__(self, concurrency: int, model: Path | None = None) -> None:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.async_llm import AsyncLLM

        self.engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(model or nano_model_path()),
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
        self.requests: list[tuple[list[int], int]] = []

    async def sample(self, ids: list[int], **params: Any) -> list[int]:
        """Sampled ids; prompt and number of ids are noted in `requests`."""
        request = self.engine.generate({"prompt_token_ids": ids}, self.params(**params), str(next(self.numbers)))
        tokens: list[int] = []
        async for output in request:
            tokens = list(output.outputs[0].token_ids)
        self.requests.append((ids, len(tokens)))
        return tokens


class Barrier:
    """A barrier: it releases its parties when all that still take part have arrived."""

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

    def __init__(self, episodes: int, concurrency: int, rules: Protocol = RULES, model: Path | None = None) -> None:
        self.episodes, self.concurrency, self.answer, self.rules = episodes, concurrency, 0, rules
        self.engine = Engine(concurrency, model)
        self.chat = rules.chat(AutoTokenizer.from_pretrained(model or nano_model_path()))
        self.workers = EnvWorkers(concurrency)  # enough threads, since waiting for one must not be measured

    async def episode(self, seed: int, env: Callable, barrier: Barrier | None = None) -> Trajectory:
        turn_seeds = np.random.default_rng(seed)

        async def generate(ids: list[int], max_tokens: int) -> Generation:
            if barrier:
                await barrier.wait()  # all have acted
            tokens = await self._answer(ids, max_tokens, seed=int(turn_seeds.integers(2**31)))
            if barrier:
                await barrier.wait()  # all are sampled
            return Generation(tokens)

        try:
            return await play(
                env, seed=seed, rollout_index=0, protocol=self.rules, chat=self.chat, generate=generate, limits=LIMITS,
                workers=self.workers,
            )  # fmt: skip
        finally:
            if barrier:
                barrier.leave()

    async def _answer(self, ids: list[int], max_tokens: int, seed: int) -> list[int]:
        ends = list(self.chat.eos_ids)
        if not self.answer:
            return await self.engine.sample(ids, max_tokens=max_tokens, seed=seed, stop_token_ids=ends)
        n = self.answer
        tokens = await self.engine.sample(ids, max_tokens=n, min_tokens=n, seed=seed, ignore_eos=True)
        return tokens[: next((at + 1 for at, token in enumerate(tokens) if token in ends), n)][:max_tokens]

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


async def measure(bench: Bench, answer: int, rounds: int) -> dict[str, Any]:
    """Play all modes `rounds` times with answers of a length; returns seconds, tokens per second and ratios."""
    bench.answer = answer
    plain, slow = partial(FrozenLake, success_rate=1.0), partial(SlowLake, success_rate=1.0)
    bench.engine.requests = requests = []
    await bench.asynchronous(plain)  # warms everything up
    modes = {
        "asynchronous": partial(bench.asynchronous, slow),
        "lock-step": partial(bench.lock_step, slow),
        "no latency": partial(bench.asynchronous, plain),
        "engine alone": partial(bench.engine_alone, requests),
    }
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    rates: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(rounds):
        for mode, run in modes.items():
            await bench.engine.engine.reset_prefix_cache()
            bench.engine.requests = []
            started = time.perf_counter()
            played = await run()
            seconds[mode].append(time.perf_counter() - started)
            rates[mode].append(sum(count for _, count in bench.engine.requests) / seconds[mode][-1])
            if mode != "engine alone" and any(trajectory.excluded for trajectory in played):
                raise SystemExit(next(trajectory.error for trajectory in played if trajectory.excluded))

    def ratio(values: dict[str, list[float]], over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(values[over], values[under], strict=True))

    return {
        "answer_tokens": answer or "as the model answers", "turns": len(requests),
        "tokens": sum(count for _, count in requests), "seconds": seconds, "tokens_per_second": rates,
        "asynchronous_to_lock_step": ratio(seconds, "lock-step", "asynchronous"),
        "no_latency_to_engine_alone": ratio(rates, "no latency", "engine alone"),
        "asynchronous_to_engine_alone": ratio(rates, "asynchronous", "engine alone"),
    }  # fmt: skip


async def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(options.episodes, options.concurrency)
    found = [await measure(bench, answer, options.rounds) for answer in options.answers]
    bench.engine.engine.shutdown()
    return {
        "episodes": options.episodes, "in_flight": options.concurrency, "latency_seconds": LATENCY, "measured": found,
        "cores": os.cpu_count(), "load_average_at_the_end": os.getloadavg(), "versions": versions(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=int, nargs="+", default=[0, 64], help="tokens of every answer")
    result = asyncio.run(measure_all(parser.parse_args()))
    console = Console(width=110)
    for found in result["measured"]:
        table = Table(title=f"{result['episodes']} episodes, {found['turns']} turns, {found['tokens']} tokens")
        for column in ("mode", "seconds, median", "tokens per second, median"):
            table.add_column(column, justify="left" if column == "mode" else "right")
        for mode, seconds in found["seconds"].items():
            rate = statistics.median(found["tokens_per_second"][mode])
            table.add_row(mode, f"{statistics.median(seconds):.1f}", f"{rate:.0f}")
        console.print(table)
        for key in ("asynchronous_to_lock_step", "no_latency_to_engine_alone", "asynchronous_to_engine_alone"):
            console.print(f"{key.replace('_', ' ')}: {found[key]:.2f}")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
