"""verl's separate trainer writes its log with an argument of print's, which the patched logger takes."""

from __future__ import annotations

import logging

import pytest
from verl.trainer.ppo.v1 import trainer_separate_async


def test_the_log_takes_an_argument_of_print(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=trainer_separate_async.__name__):
        trainer_separate_async.logger.info("%d replicas only", 2, flush=True)
    assert [record.getMessage() for record in caplog.records] == ["2 replicas only"]
    assert trainer_separate_async.logger.name == trainer_separate_async.__name__
