"""The pause of vLLM's engine under both of its signatures."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ragen_verl.patches.pause import pause_as_verl_asks


class Newer:
    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        self.asked = (mode, clear_cache)


class Older:
    async def pause_generation(self, *, wait_for_inflight_requests: bool = False, clear_cache: bool = True) -> None:
        self.asked = (wait_for_inflight_requests, clear_cache)


def asked(kind: type, **arguments: bool) -> tuple:
    patched = type("AsyncLLM", (kind,), {"pause_generation": kind.pause_generation})
    pause_as_verl_asks(SimpleNamespace(AsyncLLM=patched))
    engine = patched()
    asyncio.run(engine.pause_generation(**arguments))
    return engine.asked


@pytest.mark.parametrize(("wait", "mode"), [(False, "abort"), (True, "wait")])
def test_newer_engine_is_told_in_its_own_words(wait: bool, mode: str) -> None:
    assert asked(Newer, wait_for_inflight_requests=wait, clear_cache=False) == (mode, False)


def test_newer_engine_keeps_its_own_arguments() -> None:
    assert asked(Newer, mode="keep") == ("keep", True)
    assert asked(Newer) == ("abort", True)


def test_older_engine_is_left_alone() -> None:
    assert asked(Older, wait_for_inflight_requests=True, clear_cache=False) == (True, False)
