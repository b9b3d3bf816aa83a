"""Large things that instances share: built once, without waiting for other ones, and let go."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import pytest
from ragen_envs.common import shared
from ragen_envs.common.shared import share

BUILT: list[str] = []
BEGUN, GATE = threading.Event(), threading.Event()


class Large:
    def __init__(self, name: str) -> None:
        self.name = name


def build(name: str) -> Large:
    BUILT.append(name)
    if name == "slow":
        BEGUN.set()
        assert GATE.wait(30)
    if name == "bad" and BUILT.count("bad") == 1:
        raise ValueError(name)
    return Large(name)


@pytest.fixture(autouse=True)
def fresh():
    shared.forget()
    BUILT.clear()


def test_a_slow_one_keeps_no_other_waiting():
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(share, build, "slow") for _ in range(3)]
        assert BEGUN.wait(30)
        assert share(build, "quick").value.name == "quick"
        GATE.set()
        assert len({id(one.result(30).value) for one in slow}) == 1
    assert BUILT == ["slow", "quick"]


def test_what_is_used_stays_and_the_rest_is_let_go():
    used, unused = share(build, "used"), ref(share(build, "unused").value)
    for number in range(shared._KEPT):
        share(build, str(number))
    gc.collect()
    assert unused() is None and share(build, "used").value is used.value
    assert len(shared._recent) == shared._KEPT and not shared._building


def test_what_is_neither_used_nor_asked_for_of_late_is_released():
    used, unused = share(build, "used"), ref(share(build, "unused").value)
    between = time.monotonic()
    asked = ref(share(build, "asked").value)
    shared.release(between)
    gc.collect()
    assert unused() is None and asked() is not None and share(build, "used").value is used.value
    assert BUILT == ["used", "unused", "asked"]


def test_a_copy_is_the_same_one():
    one = share(build, "one")
    assert copy.deepcopy(one) is one and pickle.loads(pickle.dumps([one]))[0] is one


def test_one_that_could_not_be_built_is_tried_again():
    with pytest.raises(ValueError, match="bad"):
        share(build, "bad")
    assert share(build, "bad").value.name == "bad"
