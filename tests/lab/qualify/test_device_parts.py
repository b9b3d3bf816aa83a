"""The parts that need a device, as far as they can be checked without one."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from ragen_lab.qualify import generation, learning
from ragen_lab.qualify.findings import Outcome
from transformers import AutoModelForCausalLM


def process(outcome: Outcome, name: str) -> None:
    outcome.row("processes", name=name, pid=os.getpid())


def test_every_engine_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apart, measured = generation._apart, []

    def recorded(outcome: Outcome, measure: Any, *arguments: Any) -> None:
        measured.append(measure.__name__)
        outcome.row("generation", shape="", tokens_per_second=1.0, sequences=1)

    outcome = Outcome("vllm")
    for name in "ab":
        apart(outcome, process, name)
    rows = outcome.tables["processes"]
    assert [row["name"] for row in rows] == ["a", "b"] and len({os.getpid(), *(row["pid"] for row in rows)}) == 3

    monkeypatch.setattr(generation, "_apart", recorded)
    monkeypatch.setattr(generation, "find_spec", lambda name: True)
    monkeypatch.setattr(generation, "make", lambda shape, folder: folder)
    monkeypatch.setattr(generation, "_engine", None)  # nothing makes one here
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = {"device": "cuda", "shapes": ["0.5b", "1.5b"], "models": str(tmp_path), "save": lambda: None}
    generation.run(Outcome("vllm"), settings)
    assert measured == ["_numbers", "_speed", "_speed"]


def test_the_bound_of_learning_allows_bf16_on_both_sides() -> None:
    folder = Path(str(files("ragen_verl.cpu"))) / "nano_model"
    tokens = torch.randint(4, 590, (8, 64), generator=torch.Generator().manual_seed(0))
    log_probs = []
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        with torch.no_grad():
            logits = model(tokens).logits[:, :-1].float()
        log_probs.append(logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]))
    apart = (log_probs[0] - log_probs[1]).abs().mean().item()
    assert 2 * apart < learning._BOUNDS["cuda"] < 8 * apart
