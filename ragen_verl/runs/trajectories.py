"""The saved trajectories of runs and evaluations, as an iterator: `read(path, split="val", success=False)`.

A run's folder has `trajectories/SPLIT/STEP.jsonl`, the folder of an evaluation's policy has `episodes.jsonl`. In the
same folder `preambles.jsonl` has the system messages and task prompts, each once. A line that cannot be read is skipped
with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.reading import decode, messages
from ragen_verl.rollout.record import COMMON
from ragen_verl.runs.writing import TASK_PROMPTS, TaskPrompts, rows, warn

__all__ = ["EPISODES", "features", "files", "messages", "read", "read_file"]

EPISODES = "episodes.jsonl"


def read(
    path: str | Path,
    *,
    split: str | None = None,
    steps: Collection[int] | None = None,
    env: str | None = None,
    success: bool | None = None,
    stop_reason: str | None = None,
    min_return: float | None = None,
    where: Callable[[dict[str, Any]], bool] | None = None,
) -> Iterator[dict[str, Any]]:
    """The trajectories of a run, an evaluation or a file, as `Trajectory.record()` made them, in the order of files.

    Each has in addition `split`, `step` (None in an evaluation), and in training `kept` (whether the update saw it).

    Args:
        path: see `files`.
        split: `train`, `val` or `generalisation`.
        steps: training steps.
        env: the environment's name in the metrics.
        success, stop_reason: the outcome and the reason of the end.
        min_return: the smallest return.
        where: any other condition.

    Raises:
        RecipeError: there are no trajectories at all; it is no error if none meets the conditions.
    """
    for file in files(path):
        at = _place(file)
        if (split is not None and at.get("split", split) != split) or (
            steps is not None and at.get("step", None) not in steps
        ):
            continue
        for record in read_file(file):
            if (
                (split is None or record["split"] == split)
                and (env is None or record["env"] == env)
                and (success is None or record["success"] is success)
                and (stop_reason is None or record["stop_reason"] == stop_reason)
                and (min_return is None or record["return"] >= min_return)
                and (where is None or where(record))
            ):
                yield record


def files(path: str | Path) -> list[Path]:
    """The JSONL files of a run's folder, of an evaluation (of one policy or all), or the file itself.

    Raises:
        RecipeError: there is none.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return [path]
    found = sorted((path / "trajectories").glob("*/*.jsonl"), key=lambda file: (file.parent.name, file.stem.zfill(9)))
    found = found or [path / EPISODES] * (path / EPISODES).is_file() or sorted(path.glob(f"*/{EPISODES}"))
    if not found:
        what = "has no trajectories" if path.is_dir() else "does not exist"
        raise RecipeError(
            f"{path} {what}: name the folder of a run or of an evaluation, or a JSONL file. A run writes its first "
            "trajectories when its first step or evaluation ends."
        )
    return found


def read_file(file: Path, broken: Callable[[str], None] | None = None) -> Iterator[dict[str, Any]]:
    """The trajectories of one file.

    Args:
        file: JSONL.
        broken: called with a sentence about each line that is left out; None gives a warning.
    """
    broken = broken or warn
    task_prompts, at = _task_prompts_for(file), _place(file)
    for number, row in rows(file, broken):
        try:
            record = decode(row, task_prompts)
        except RecipeError as error:
            broken(f"{file}, line {number}, is left out: {error}.")
            continue
        record = {"split": None, "step": None} | at | record
        if record["split"] != "train":
            record.pop("kept", None)
        yield record


def features(*, tokens: bool = False, evaluation: bool = False) -> Any:
    """The columns of a file, for `datasets.load_dataset("json", data_files=..., features=features())`.

    Without them `datasets` takes the types from the first file, in which a list that is always empty has no type.

    Args:
        tokens: whether the run has `ragen.run.tokens`.
        evaluation: whether the files are those of an evaluation.

    Returns:
        A `datasets.Features`.
    """
    from datasets import Features, List, Value

    def columns(kind: str, names: str) -> dict[str, Any]:
        return {name: Value(kind) for name in names.split()}

    turn = columns("int64", "turn shown_from prompt_tokens response_tokens")
    turn |= columns("string", "user state prefix response reasoning observation rewards")
    turn |= columns("bool", "format_ok valid effective")
    turn |= columns("float64", "reward penalty generate_seconds env_seconds")
    turn |= {name: List(Value("string")) for name in ("actions", "executed", "infos", "calls")}
    if tokens:
        turn["tokens"] = {name: List(Value("int64")) for name in ("prompt_ids", "ids", "offsets", "mask")}
        turn["tokens"] |= {name: List(Value("float64")) for name in ("log_probs", "advantages")}
    found = columns("int64", "schema protocol seed rollout_index")
    found |= columns("string", "package preamble env_id env stop_reason error env_metrics split")
    found |= columns("bool", "success truncated excluded row_per_turn")
    found |= columns("float64", "return started seconds")
    found |= {"metrics": {name: Value("float64") for name in COMMON}, "turns": List(turn)}
    if evaluation:
        usage = columns("int64", "prompt_tokens completion_tokens") | {"seconds": List(Value("float64"))}
        usage |= {name: List(Value("string")) for name in ("finishes", "left_out")}
        return Features(found | {"policy": Value("string"), "usage": usage})
    return Features(found | {"step": Value("int64"), "kept": Value("bool")})


def _place(file: Path) -> dict[str, Any]:
    """Split and step of a run's file, from its path."""
    if file.parent.parent.name == "trajectories" and file.stem.isdigit():
        return {"split": file.parent.name, "step": int(file.stem)}
    return {}


def _task_prompts_for(file: Path) -> Mapping[str, Mapping[str, str]]:
    found = (folder / TASK_PROMPTS for folder in file.absolute().parents[:3])
    return next((TaskPrompts(one).known for one in found if one.is_file()), {})
