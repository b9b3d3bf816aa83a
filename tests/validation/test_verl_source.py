"""What is read from verl's files is what verl has when it is imported."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module

from ragen_verl.training.losses import POLICY_LOSSES
from ragen_verl.validation import verl_source
from ragen_verl.verl_files import folder


def test_every_block_of_verl_has_the_fields_of_its_dataclass() -> None:
    config = folder() / "trainer" / "config"
    targets = {one for file in config.rglob("*.yaml") for one in re.findall(r"_target_: (verl\.\S+)", file.read_text())}
    assert len(targets) > 40
    for target in targets:
        module, _, name = target.rpartition(".")
        wanted = {one.name for one in fields(getattr(import_module(module), name))}
        assert set(verl_source.dataclass_fields(target)) == wanted, target


def test_policy_losses_are_those_that_verl_registers() -> None:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    assert verl_source.policy_losses() == set(POLICY_LOSS_REGISTRY) - set(POLICY_LOSSES)


def test_loggers_are_those_that_verl_takes() -> None:
    from verl.utils.tracking import Tracking

    assert list(verl_source.loggers()) == Tracking.supported_backend
