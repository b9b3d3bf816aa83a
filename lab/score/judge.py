"""A language model's judgement of a trajectory, from any OpenAI-compatible endpoint; only where one is asked for."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt
from ragen_lab.evaluate.api import Api, Unusable
from ragen_lab.score.registry import evaluator
from ragen_lab.score.saved import Played

from ragen_verl.errors import RecipeError

__all__ = ["SCHEMA", "Count", "Seconds", "Times", "judge", "read"]

_RUBRIC = """\
Judge whether the agent did what the task asks for, by what happened and not by what the agent says. A score of 1 is a
task that was done without detours, 0.5 is half of it or a way with many useless turns, 0 is nothing that helps."""
_FORM = """\
Reply with one JSON object and nothing else: {"score": a number from 0 to 1 in tenths, "reason": one short sentence}."""
SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"enum": [tenth / 10 for tenth in range(11)]},  # else a weak model writes endless digits
        "reason": {"type": "string", "maxLength": 200},
    },
    "required": ["score", "reason"],
    "additionalProperties": False,
}

Count = Annotated[int, Ge(1)]
Times = Annotated[int, Ge(0)]
Seconds = Annotated[float, Gt(0)]


@evaluator("judge", better="higher", bounded=True, together=True, on_request=True)
def judge(
    trajectories: Sequence[Played],
    *,
    model: str,
    url: str | None = None,
    rubric: str = _RUBRIC,
    cache: str | None = None,
    schema: bool = True,
    attempts: Count = 3,
    retries: Times = 6,
    concurrency: Count = 16,
    timeout: Seconds = 120.0,
    max_tokens: Count = 512,
) -> list[float | None]:
    """Score that a language model gives the trajectory by a rubric, from 0 to 1.

    Args:
        trajectories: of one environment and step.
        model: its name at the endpoint.
        url: the endpoint's base address; None takes OPENAI_BASE_URL or OpenAI's own.
        rubric: what it looks for.
        cache: a JSONL file with the judgements so far; one with the same model, rubric and trajectory is not asked for
            again. None keeps none.
        schema: ask for an answer of the form by `response_format` (JSON schema); false for endpoints without it.
        attempts: how often an answer of the wrong form is requested again before a trajectory is left without one.
        retries: of a request that timed out or was refused (429, 5xx).
        concurrency: requests at the same time.
        timeout: seconds for one request.
        max_tokens: of an answer.

    Raises:
        MissingExtra: the openai package is not installed.
        RecipeError: the endpoint cannot be asked, or not one of the trajectories could be judged; with the last reason.
    """
    file = Path(cache) if cache else None
    known = _known(file)
    texts = [_transcript(one) for one in trajectories]
    keys = [hashlib.sha256(json.dumps([model, rubric, text]).encode()).hexdigest() for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:
        asked = _Endpoint(model, url, rubric, schema, attempts, retries, concurrency, timeout, max_tokens)
        failures = asyncio.run(asked.all(missing, known, file))
        if failures and not any(key in known for key in keys):
            raise RecipeError(f"The judge {model} gave no judgement of {len(keys)} trajectories: {failures[-1]}")
    return [known[key]["score"] if key in known else None for key in keys]


def read(text: str | None) -> dict[str, Any]:
    """Read the judgement from an answer, which must be exactly the wanted object.

    Raises:
        ValueError: the answer has another form.
    """
    found = json.loads(text or "")
    if not isinstance(found, dict) or set(found) != {"score", "reason"}:
        raise ValueError("not an object with score and reason alone")
    score = found["score"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score is {score!r}, not a number from 0 to 1")
    if not isinstance(found["reason"], str):
        raise ValueError("reason is no text")
    return {"score": float(score), "reason": found["reason"]}


def _transcript(one: Played) -> str:
    """The text for the judge: the whole episode without the reward."""
    parts = [task] if (task := (one.record.get("preamble") or {}).get("head")) else []
    for turn in one.turns:
        parts += [f"[turn {turn['turn']}] state:\n{turn['state']}", f"agent:\n{turn['response']}"]
        parts.append(f"executed: {', '.join(turn['executed']) or 'nothing'}")
    if one.turns:
        parts.append(f"[end] state:\n{one.turns[-1]['observation']}")
    return "\n\n".join([f"Environment: {one.env}", *parts])


def _known(file: Path | None) -> dict[str, dict[str, Any]]:
    """The judgements of earlier calls; an invalid line, such as one cut short by a kill, is skipped."""
    found = {}
    for line in file.read_text("utf-8", errors="replace").splitlines() if file and file.is_file() else ():
        try:
            one = json.loads(line)
            found[one["key"]] = {**one, **read(json.dumps({name: one[name] for name in ("score", "reason")}))}
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
    return found


class _Endpoint:
    def __init__(
        self,
        model: str,
        url: str | None,
        rubric: str,
        schema: bool,
        attempts: int,
        retries: int,
        concurrency: int,
        timeout: float,
        max_tokens: int,
    ) -> None:
        self._model, self._rubric, self._attempts, self._concurrency = model, rubric, attempts, concurrency
        self._arguments: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.0}
        if schema:
            form = {"name": "judgement", "strict": True, "schema": SCHEMA}
            self._arguments["response_format"] = {"type": "json_schema", "json_schema": form}
        self._api = Api(model, url, timeout=timeout, retries=retries)

    async def all(self, texts: dict[str, str], known: dict[str, dict[str, Any]], file: Path | None) -> list[str]:
        """Ask about every text and store each judgement at once; return the reasons of the failed ones."""
        gate, failures = asyncio.Semaphore(self._concurrency), []
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)

        async def one(key: str, text: str) -> None:
            async with gate:
                try:
                    found = await self._ask(text)
                except Unusable:
                    raise
                except Exception as error:  # any failure of the endpoint leaves this trajectory without a score
                    failures.append(f"{type(error).__name__}: {error}")
                    return
            known[key] = {"key": key, "model": self._model, **found}
            if file:
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(known[key], ensure_ascii=False) + "\n")

        try:
            await asyncio.gather(*(one(key, text) for key, text in texts.items()))
        finally:
            await self._api.close()
        return failures

    async def _ask(self, text: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": f"{self._rubric}\n\n{_FORM}"}, {"role": "user", "content": text}]
        for attempt in range(1, self._attempts + 1):
            reply = await self._api.chat(
                messages,
                seed=attempt,  # with the same seed an answer of a wrong form would come again
                **{**self._arguments, "temperature": 0.0 if attempt == 1 else 0.7},
            )
            try:
                return read(reply.text)
            except ValueError as error:
                failure = f"the answer is not of the form ({error}): {reply.text[:200]!r}"
        raise ValueError(failure)
