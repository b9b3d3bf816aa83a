"""The reference for verl's engine: one row at a time, on the CPU in float32, in plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from ragen_lab.qualify.workers import Rows
from transformers import AutoModelForCausalLM

__all__ = ["Reference", "compute"]


@dataclass(frozen=True)
class Reference:
    """The results of one model on some rows, all in float32.

    Attributes:
        before: log-probabilities of each row's response.
        norm: the norm of the gradient of the policy loss.
        after: the log-probabilities after one step of AdamW.
        mixed: the log-probabilities if each row also sees the row before it, as a faulty packed batch would give.
        largest: the absolute value of the largest logit.
    """

    before: list[torch.Tensor]
    norm: float
    after: list[torch.Tensor]
    mixed: list[torch.Tensor]
    largest: float


def compute(
    model_folder: str, rows: Rows, lr: float, clip: float, decay: float, betas: tuple[float, float]
) -> Reference:
    """The reference.

    At the first update new and old policy are equal, so the clipped objective's gradient is that of the mean over all
    response tokens of -advantage * log-probability (token-mean).
    """
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=betas, weight_decay=decay)
    with torch.no_grad():
        before = _log_probs(model, rows)
        logits = [model(torch.tensor([[*prompt, *response]])).logits for prompt, response in rows.cells]
        mixed = [
            _log_prob(model, [*rows.cells[row - 1][0], *rows.cells[row - 1][1], *prompt], response)
            for row, (prompt, response) in enumerate(rows.cells)
        ]
    tokens = sum(len(response) for _, response in rows.cells)
    for one, advantage in zip(_log_probs(model, rows), rows.advantages, strict=True):
        (-(one * advantage).sum() / tokens).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
    optimizer.step()
    with torch.no_grad():
        largest = max(float(one.abs().max()) for one in logits)
        return Reference(before, norm, _log_probs(model, rows), mixed, largest)


def _log_probs(model: torch.nn.Module, rows: Rows) -> list[torch.Tensor]:
    return [_log_prob(model, prompt, response) for prompt, response in rows.cells]


def _log_prob(model: torch.nn.Module, prompt: list[int], response: list[int]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *response]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
