"""The speed of tools: the episode loop against the engine alone, and the time to render and parse a turn.

    python benchmarks/tools_speed.py [--episodes 256] [--concurrency 64] [--rounds 3] [--answers 0 64] [--templates]

The loop: a real engine (vLLM, the nano model that calls tools) plays Lockbox with tools that take 1 ms each, and the
same prompts with the same numbers of tokens, as many in flight, without environments; in turn, `--rounds` times.
The ratio of tokens per second is taken within a round, and the median is reported (goal: 0.9). `--answers 64` lets the
engine sample 64 tokens for every answer, as `rollout_concurrency.py` does (0: as many as the model wants).

A turn: a response with one call is read, and the ids of its result are rendered (goal: 2 ms together), for results of
several lengths, with the nano model and, with `--templates`, with the chat templates of the package trl on a small
vocabulary (`pip install --no-deps trl==1.16.0`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "helpers")]

from ragen_envs.lockbox import Lockbox  # noqa: E402
from rollout_concurrency import Bench  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from ragen_verl.cpu.nano_model import nano_model_path  # noqa: E402
from ragen_verl.env.calls import called  # noqa: E402
from ragen_verl.errors import RecipeError  # noqa: E402
from ragen_verl.rollout.protocols.tools import Results, Tools  # noqa: E402
from ragen_verl.runs.folder import versions  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "tools_speed.json"
RULES = Tools(think=False, max_turns=5)
TOOL_SECONDS = 0.001
LENGTHS = (20, 500, 5000)
"""Characters of a result."""


class SlowBox(Lockbox):
    """Lockbox with tools that take a millisecond."""

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        time.sleep(TOOL_SECONDS)
        return super().call(name, arguments)


async def loop(bench: Bench, answer: int, rounds: int) -> dict[str, Any]:
    """Tokens per second of the loop and of the engine alone, and the median of their ratios."""
    bench.answer, env = answer, partial(SlowBox, digits=3)
    rates: dict[str, list[float]] = {"loop": [], "engine alone": []}
    bench.engine.requests = requests = []
    await bench.asynchronous(env)  # warms everything up
    for _ in range(rounds):
        for mode, run in (("loop", partial(bench.asynchronous, env)), ("engine alone", None)):
            await bench.engine.engine.reset_prefix_cache()
            bench.engine.requests = []
            started = time.perf_counter()
            played = await (run or partial(bench.engine_alone, requests))()
            seconds = time.perf_counter() - started
            rates[mode].append(sum(count for _, count in bench.engine.requests) / seconds)
            if run and any(one.excluded for one in played):
                raise SystemExit(next(one.error for one in played if one.excluded))
    ratio = statistics.median(one / other for one, other in zip(*rates.values(), strict=True))
    tokens = answer or "as the model answers"
    return {"answer_tokens": tokens, "turns": len(requests), "tokens_per_second": rates, "ratio": ratio}


def turn(tokenizer: Any, repeats: int = 200) -> dict[str, Any] | None:
    """Median milliseconds to parse a call and to render its result, for each length; None without a form of calls."""
    try:
        chat = RULES.chat(tokenizer)
    except RecipeError:
        return None
    if not chat.rendered:
        return None
    text = Tools(think=False, wire=chat.form.name).answer([called("look", box="red")])
    response = [*tokenizer.encode(text, add_special_tokens=False), chat.call_end_id]
    found = {}
    for length in LENGTHS:
        result, times = Results([("look", ("A note. " * length)[:length])]), []
        for _ in range(repeats):
            started = time.perf_counter()
            chat.parse(chat.decode(response), RULES)
            chat.after(response, result)
            times.append(1000 * (time.perf_counter() - started))
        found[str(length)] = round(statistics.median(times), 3)
    return {"form": chat.form.name, "milliseconds": found}


def templates() -> dict[str, Any]:
    """`turn` with each chat template of trl that can show tools."""
    from tool_templates import tokenizer

    folder = Path(str(files("trl"))) / "chat_templates"
    found = {file.stem: turn(tokenizer(file.read_text("utf-8")), 50) for file in sorted(folder.glob("*.jinja"))}
    return {name: one for name, one in found.items() if one}


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=int, nargs="+", default=[0, 64], help="tokens of every answer")
    parser.add_argument("--templates", action="store_true", help="also the chat templates of trl")
    given = parser.parse_args()
    folder = nano_model_path("tools")
    turns = {"nano model": turn(AutoTokenizer.from_pretrained(folder)), **(templates() if given.templates else {})}

    async def measured() -> list[dict[str, Any]]:
        bench = Bench(given.episodes, given.concurrency, RULES, folder)
        found = [await loop(bench, answer, given.rounds) for answer in given.answers]
        bench.engine.engine.shutdown()
        return found

    result = {
        "loop": asyncio.run(measured()),
        "turn": turns,
        "episodes": given.episodes,
        "in_flight": given.concurrency,
        "tool_seconds": TOOL_SECONDS,
        "cores": os.cpu_count(),
        "load_average_at_the_end": os.getloadavg(),
        "versions": versions(),
    }
    for one in result["loop"]:
        print(f"answers of {one['answer_tokens']} tokens: {one['ratio']:.2f} of the engine's throughput")
    for name, one in turns.items():
        print(f"{name} ({one['form']}): {one['milliseconds']} ms for a turn with a result of so many characters")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
