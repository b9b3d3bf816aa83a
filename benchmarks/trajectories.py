"""What saved trajectories cost: bytes on disk and processor time of a step, without and with every token.

    python benchmarks/trajectories.py

A step of the paper's size: 128 trajectories of 5 turns, 200 sampled tokens of three to five characters and 60 prompt
tokens a turn, states of Sokoban's size. The times are processor seconds of one thread (median of a few runs): making
the records where the episodes are played, reading them in the trainer, writing the file; with tokens, also completing
it and writing it again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import Trajectory, Turn
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.training import batch as episodes
from ragen_verl.training.batch import RowTurns, TrajectoryBatch

RESULT = Path(__file__).parent / "results" / "trajectories.json"
TRAJECTORIES, TURNS, SAMPLED, PROMPT = 128, 5, 200, 60
RUNS = 5


class Rows:
    """The fields of a step's rows, as TransferQueue returns them."""

    def __init__(self, fields: dict[str, torch.Tensor]) -> None:
        self.fields = fields

    def kv_batch_get(self, **_: Any) -> dict[str, torch.Tensor]:
        """Return all fields."""
        return self.fields


def played(chat: ChatTokens) -> list[Trajectory]:
    """Episodes whose responses are words of the vocabulary, drawn at random."""
    rng, protocol = np.random.default_rng(0), Ragen()
    words = [index for index in range(len(chat.tokenizer)) if 3 <= len(chat.decode([index])) <= 5]
    found = []
    state = "######\n#_P__#\n#_X__#\n#__O_#\n######"
    for index in range(TRAJECTORIES):
        turns = []
        for _ in range(TURNS):
            ids = rng.choice(words, SAMPLED).tolist()
            turns.append(
                Turn(
                    state,
                    [1] * PROMPT,
                    ids,
                    rng.normal(-1, 0.5, SAMPLED).tolist(),
                    chat.decode(ids),
                    actions=["Up", "Left"],
                    executed=["Up", "Left"],
                    infos=[{"success": False, "action_is_valid": True, "action_is_effective": True}] * 2,
                    observation=state,
                    user=protocol.message([*turns, Turn("", [], [], reward=-0.2)], state, 8),
                    prefill="<think>",
                )
            )
        found.append(
            Trajectory("Sokoban-v0", index // 16, index % 16, turns=turns, system="s" * 30, task_prompt="h" * 500)
        )
    return found


def seconds(function: Callable[[], Any]) -> float:
    """Median processor time."""
    times = []
    for _ in range(RUNS):
        before = process_time()
        function()
        times.append(process_time() - before)
    return round(median(times), 4)


def measured(trajectories: list[Trajectory], chat: ChatTokens, tokens: bool) -> dict[str, Any]:
    """Bytes of a trajectory, and processor seconds of a step by purpose."""

    def record() -> list[str]:
        offsets = chat.offsets if tokens else None
        return [json.dumps(one.record(offsets), ensure_ascii=False) for one in trajectories]

    texts = record()
    records = [json.loads(text) for text in texts]
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(path)
        times = {
            "record": seconds(record),
            "read": seconds(lambda: [json.loads(text) for text in texts]),
            "write": seconds(lambda: folder.write_trajectories("train", 1, records)),
        }
        if tokens:
            width = TURNS * (SAMPLED + PROMPT) - PROMPT
            rows = torch.randn(TRAJECTORIES, width)
            episodes.tq = Rows({"advantages": rows, "response_mask": torch.ones(rows.shape, dtype=torch.int64)})
            keys = tuple((f"u_{index}_0",) for index in range(TRAJECTORIES))
            ends = tuple(number * (SAMPLED + PROMPT) - PROMPT - 1 for number in range(1, TURNS + 1))
            turns = {key: RowTurns(tuple(range(1, TURNS + 1)), ends) for (key,) in keys}
            trained = TrajectoryBatch(tuple(records), ("u",) * TRAJECTORIES, keys, turns)

            class Batch:
                partition_id = "train"

            times["complete"] = seconds(lambda: episodes.fill_tokens(Batch(), trained))
            times["write again"] = seconds(lambda: folder.write_trajectories("train", 1, records))
        rows = (folder.trajectories("train") / "000001.jsonl").read_text().splitlines()
    size = {"bytes": len(rows[0]), "of which for messages, versions and times": len(rows[0]) - len(_older(rows[0]))}
    return {**size, "seconds": {**times, "all": round(sum(times.values()), 4)}}


def _older(row: str) -> str:
    """A row without the fields that version 2 of the record did not have."""
    new = {
        "package",
        "protocol",
        "preamble",
        "started",
        "user",
        "shown_from",
        "prefix",
        "generate_seconds",
        "env_seconds",
    }
    return json.dumps(json.loads(row, object_hook=lambda one: {key: one[key] for key in one if key not in new}))


def main() -> None:
    """Measure, write, print."""
    chat = ChatTokens(AutoTokenizer.from_pretrained(nano_model_path()), Ragen())
    trajectories = played(chat)
    size = {"trajectories": TRAJECTORIES, "turns": TURNS, "sampled": SAMPLED, "prompt": PROMPT}
    found = {name: measured(trajectories, chat, name == "tokens") for name in ("usual", "tokens")}
    RESULT.write_text(json.dumps({"size": size, **found, "versions": versions()}, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
