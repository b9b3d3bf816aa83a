"""`ragen-verl bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from ragen_lab.cli.eval import CONCURRENCY, PER_MINUTE, RETRIES, TIMEOUT, asked, conclude, played

__all__ = ["EPILOG", "bench"]

EPILOG = """Policies are named as in `ragen-verl eval`. Examples:

ragen-verl bench bfcl --policy oracle

ragen-verl bench tau2 --policy api:my-model@http://127.0.0.1:8000/v1 --samples 4"""


def bench(
    name: str = typer.Argument(help="A name of docs/benchmarks.md, such as bfcl or tau2_retail."),
    policy: list[str] = typer.Option(..., help="A policy; may be repeated, and each is compared with the first."),
    samples: int = typer.Option(1, min=1, help="Episodes of each task: pass^1 to pass^k are printed."),
    tasks: int = typer.Option(None, min=2, help="Only the first tasks of each part, to try: no official score."),
    user: str = typer.Option(None, help="api:MODEL@URL: who plays the customer of tau2_retail and tau2_airline."),
    out: Path = typer.Option(None, help="Folder of the results.  \\[default: runs/bench/NAME]"),
    temperature: float = typer.Option(0.0, min=0.0, help="Temperature of models."),
    response_length: int = typer.Option(4096, min=1, help="Most tokens of one response."),
    context: int = typer.Option(32768, min=64, help="Most tokens of a conversation with a model that is served here."),
    dtype: str = typer.Option("auto", help="Type of a model that is served here, as vLLM takes it."),
    concurrency: int = CONCURRENCY,
    per_minute: float = PER_MINUTE,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
) -> None:
    """Play every task of a benchmark once (or --samples times) and print the official score.

    With it: its 95 % interval over tasks, pass^k, the data's version, and what is known of contamination. The same
    command resumes an interrupted one. Results: results.json, results.md, and each POLICY/episodes.jsonl. The exit code
    is 1 if an episode could not be played; it counts as 0.
    """
    from ragen_lab.evaluate.bench import contamination, find, score
    from ragen_lab.evaluate.endpoint import Sampling
    from ragen_lab.evaluate.spec import Setting, Spec
    from ragen_lab.evaluate.summary import interval, results
    from ragen_lab.statistics import Estimate

    chosen = find(name).played_with(user) if user else find(name)
    specs = [Spec.parse(text) for text in policy]
    envs = chosen.environments()
    ragen = chosen.recipe(envs, tasks, response_length)
    plan = chosen.plan(ragen, envs, samples)
    versions = sorted({str(getattr(env, "version", "unknown")) for env in envs})
    sampling = Sampling(
        temperature=temperature,
        response_length=response_length,
        timeout=timeout,
        retries=retries,
        concurrency=concurrency,
        per_minute=per_minute,
    )
    setting = Setting(sampling, dtype, context, asked)
    folder = out or Path("runs/bench") / name
    same = {"bench": name, "data": versions, "response_length": response_length, **({"user": user} if user else {})}
    every = played(specs, setting, {"": (ragen, plan)}, folder, lengths=(0, context), settings=same)
    records = {who: rows[""] for who, rows in every.items()}
    lines, scores = list[str](), dict[str, dict[str, Any]]()
    for spec, (who, rows) in zip(specs, records.items(), strict=True):
        scores[who] = one = {**score(chosen, rows, samples), "contamination": contamination(chosen, envs, spec.text)}
        official = Estimate(**one["score"])
        what = "official score" if tasks is None else f"the first {tasks} tasks alone, no official score"
        lines.append(f"{who}: {what} {official.value:.3f} ({interval(official)}) over {official.states} tasks.")
        if len(one["parts"]) > 1:
            lines.append(f"{who}: {', '.join(f'{part} {value:.3f}' for part, value in one['parts'].items())}.")
        lines.append(f"{who}: {', '.join(f'pass^{k} {value:.3f}' for k, value in one['pass^k'].items())}.")
        lines.append(f"{who}: contamination: {one['contamination']}.")
    lines.append(f"Data: {', '.join(versions)}{f'; customer: {user}' if user else ''}.")
    found = results(records)
    about = {"bench": name, "data": versions, "user": user, "scores": scores}
    conclude(found, f"{name}: {len(plan)} episodes", folder, about, lines)
    if any(one["failed"] for one in scores.values()):
        raise typer.Exit(1)
