"""A resumed run's optimiser has the settings of the present configuration, and its own moments and schedule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragen_verl.patches.rates import use_configured_rates

WARMUP = 4


class Manager:
    """What verl's manager does with the states: it loads them over what is there."""

    def __init__(self, lr: float, weight_decay: float = 0.0, betas: tuple = (0.9, 0.999)) -> None:
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.optimizer = torch.optim.AdamW([self.weight], lr=lr, weight_decay=weight_decay, betas=betas)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, step / WARMUP))

    def step(self) -> float:
        self.weight.grad = torch.ones(3)
        self.optimizer.step()
        self.lr_scheduler.step()
        return self.lr_scheduler.get_last_lr()[0]

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.lr_scheduler.state_dict()}

    def load_checkpoint(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["scheduler"])


@pytest.fixture
def patched() -> type[Manager]:
    module = SimpleNamespace(FSDPCheckpointManager=type("FSDPCheckpointManager", (Manager,), {}))
    use_configured_rates(module)
    return module.FSDPCheckpointManager


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_the_first_resumed_step_has_the_new_rate(patched: type[Manager], steps: int) -> None:
    before = patched(1e-3)
    for _ in range(steps):
        before.step()
    after = patched(5e-4, weight_decay=0.1, betas=(0.8, 0.9))
    after.load_checkpoint(before.state())
    group = after.optimizer.param_groups[0]
    assert group["lr"] == 5e-4 * min(1.0, steps / WARMUP) and group["weight_decay"] == 0.1
    assert group["betas"] == (0.8, 0.9)
    assert after.optimizer.state[after.weight]["step"] == steps  # the moments go on
    assert after.step() == 5e-4 * min(1.0, (steps + 1) / WARMUP)


def test_a_resumed_run_of_the_same_settings_goes_on_as_it_was(patched: type[Manager]) -> None:
    before, plain = patched(3e-4, weight_decay=0.01), Manager(3e-4, weight_decay=0.01)
    for _ in range(3):
        before.step()
    after = patched(3e-4, weight_decay=0.01)
    for one in (after, plain):
        one.load_checkpoint(before.state())
    for _ in range(4):
        assert after.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"]
        assert after.step() == plain.step()
        assert torch.equal(after.weight, plain.weight)


def test_a_model_without_an_optimiser_is_loaded(patched: type[Manager]) -> None:
    manager = object.__new__(type("Reference", (patched,), {"optimizer": None, "lr_scheduler": None}))
    with pytest.raises(AttributeError, match="load_state_dict"):  # verl's own call, and nothing of ours before it
        manager.load_checkpoint({"optimizer": {}, "scheduler": {}})
