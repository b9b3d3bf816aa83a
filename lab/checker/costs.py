"""Measurements: the times of `reset` and `step`, and the numbers of tokens of observations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.profile import Profile
from ragen_lab.checker.record import chooser, random_action
from ragen_lab.checker.subject import Subject

from ragen_verl.env.core import Env
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.protocols.ragen import Ragen

__all__ = ["NANO", "load_tokenizer", "measure"]

NANO = "nano"
_ENOUGH_SECONDS = 5.0
_PERCENTILES = (50, 90, 99, 100)


def measure(subject: Subject, profile: Profile, calls: Calls, tokenizer: str = NANO) -> dict[str, Any]:
    """Play at random in one thread and measure.

    Returns:
        `milliseconds`: the time of `build`, and for `reset` and `step` the percentiles 50, 90, 99 and the maximum;
        `steps_per_second`: from the median of `step`; `tokens`: the numbers of tokens of observations (mean, max) and
        of the first prompt (max).
    """
    encode = load_tokenizer(tokenizer)
    started = time.perf_counter()
    env = calls.build(subject.build)
    build = time.perf_counter() - started
    times: dict[str, list[float]] = {"reset": [], "step": []}
    observations: list[str] = []
    prompts: list[str] = []
    begun = time.perf_counter()
    for seed in range(profile.episodes):
        if times["step"] and time.perf_counter() - begun > _ENOUGH_SECONDS:
            break
        started = time.perf_counter()
        state = calls.reset(env, seed)
        times["reset"].append(time.perf_counter() - started)
        observations.append(state)
        prompts.append(Ragen().first_user(env, state))
        until = begun + _ENOUGH_SECONDS
        _steps(env, chooser(seed), state, profile.steps, calls, times["step"], observations, until)
    lengths, heads = encode(observations), encode(prompts)
    return {
        "milliseconds": {"build": 1e3 * build, **{name: _percentiles(found) for name, found in times.items()}},
        "steps_per_second": 1 / float(np.median(times["step"])),
        "tokens": {
            "tokenizer": tokenizer,
            "mean": float(np.mean(lengths)),
            "max": max(lengths),
            "first_prompt": max(heads),
            "seen": len(observations),
            "empty": sum(not text.strip() for text in observations),
        },
    }


def _steps(
    env: Env,
    rng: np.random.Generator,
    state: str,
    most: int,
    calls: Calls,
    times: list[float],
    seen: list[str],
    until: float,
) -> None:
    for _ in range(most):
        action = random_action(env, rng, state, calls)
        started = time.perf_counter()
        step = calls.step(env, action)
        times.append(time.perf_counter() - started)
        state = step.observation
        if step.terminated or step.truncated or time.perf_counter() > until:
            return
        seen.append(state)  # an episode's last one is shown to no model


def _percentiles(seconds: list[float]) -> dict[str, float]:
    found = np.percentile(seconds, _PERCENTILES) * 1e3
    return {f"p{percent}": float(value) for percent, value in zip(_PERCENTILES, found, strict=True)}


def load_tokenizer(path: str) -> Any:
    """A function from texts to their numbers of tokens.

    Args:
        path: "nano" for the nano model's, a folder with a tokenizer.json, such a file, or a model of the hub.

    Raises:
        RecipeError: there is no tokenizer.
    """
    from tokenizers import Tokenizer

    file = Path(path)
    if path == NANO:
        from ragen_verl.cpu.nano_model import nano_model_path

        file = nano_model_path() / "tokenizer.json"
    elif file.is_dir():
        file = file / "tokenizer.json"
    try:
        found = Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(path)
    except Exception as error:  # the library raises bare exceptions
        raise RecipeError(
            f"There is no tokenizer at {path!r} ({' '.join(str(error).split())[:200]}): name a folder with a "
            "tokenizer.json or a model of the hub."
        ) from error

    def lengths(texts: Sequence[str]) -> list[int]:
        return [len(one.ids) for one in found.encode_batch(list(texts), add_special_tokens=False)]

    return lengths
