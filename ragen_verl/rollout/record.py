"""Encode records for files; `ragen_verl.rollout.reading` decodes them.

In memory a record is `Trajectory.record()`. As a row of a JSONL file it differs in four columns, so that files of any
environments have the same columns with the same types: `preamble` is a key (its texts are once in another file),
`error` is "" where there is none, `metrics` has the names that every trajectory has, with the environment's own as JSON
text in `env_metrics`, and each of a turn's `infos` and `calls` is JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from ragen_verl.rollout.trajectory import Record, Trajectory

__all__ = ["COMMON", "encode", "task_prompt_key"]

COMMON = tuple(Trajectory("", 0, 0).metrics())
"""Metrics that every trajectory has."""


def task_prompt_key(texts: Mapping[str, Any]) -> str:
    """The key of a task prompt in a row: 16 hexadecimal digits computed from it (`system`, `head`, perhaps `tools`)."""
    parts = [texts["system"], texts["head"], *([texts["tools"]] if "tools" in texts else [])]
    text = json.dumps(parts).encode()
    return blake2b(text, digest_size=8).hexdigest()


def encode(record: Record) -> dict[str, Any]:
    """A record as a row, with the key of the task prompt."""
    metrics = record["metrics"]
    return {
        **record,
        "preamble": task_prompt_key(record["preamble"]) if record["preamble"] else "",
        "error": record["error"] or "",
        "metrics": {name: metrics[name] for name in metrics if name in COMMON},
        "env_metrics": _text({name: metrics[name] for name in metrics if name not in COMMON}),
        "turns": [
            {**turn, "rewards": _text(turn["rewards"])}
            | {name: [_text(one) for one in turn[name]] for name in ("infos", "calls")}
            for turn in record["turns"]
        ],
    }


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
