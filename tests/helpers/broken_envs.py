"""A good small environment, and one for every way to break a rule."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import threading
import time
import warnings

import numpy as np
from numpy.random import default_rng

from ragen_verl import Env


class Walk(Env):
    """Walk along a line to its end; now and then the ground slips."""

    actions = ("Left", "Right")
    max_actions = 8

    def __init__(self, length: int = 4) -> None:
        self.length = length
        self.instruction = "Walk to the right end."
        self.place = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.length - 1))
        return self.render(), {}

    def step(self, action):
        name = self.name_of(action)
        if name is None or self.place == self.length - 1:
            return self.outcome(valid=name is not None, effective=False, terminated=self.place == self.length - 1)
        before = self.place
        self.place = self.moved(name)
        solved = self.place == self.length - 1
        return self.outcome(float(solved), terminated=solved, success=solved, effective=self.place != before)

    def moved(self, name: str) -> int:
        way = (1 if name == "Right" else -1) * (self.dynamics.random() < 0.9)
        return min(max(self.place + way, 0), self.length - 1)

    def render(self):
        return "".join("P" if cell == self.place else "_" for cell in range(self.length))

    def oracle(self):
        return ["Right"] * (self.length - 1 - self.place)


class Says(Env):
    """Free text, no plan, no random_action: as little as an environment can have."""

    instruction = "Say the number."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(20))
        return self.render(), {}

    def step(self, action):
        right = action.strip() == str(self.number)
        return self.outcome(float(right), terminated=right, success=right)

    def render(self):
        return "Which one?"


class DrawsFromRandom(Walk):
    def moved(self, name):
        return min(max(self.place + random.choice((-1, 1)), 0), self.length - 1)


class SeedsNumpy(Walk):
    def reset(self, *, seed=None, options=None):
        observation = super().reset(seed=seed, options=options)
        np.random.seed(self.seed)
        return observation


class UnseededGenerator(Walk):
    def moved(self, name):
        return min(max(self.place + int(np.random.default_rng().integers(-1, 2)), 0), self.length - 1)


class LeftOver(Walk):
    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.resets += 1
        self.place = self.resets % (self.length - 1)
        return self.render(), {}


class OwnThread(Walk):
    """Its database may be used in the thread that opened it, and in no other."""

    def reset(self, *, seed=None, options=None):
        self.base = sqlite3.connect(":memory:")
        return super().reset(seed=seed, options=options)

    def moved(self, name):
        self.base.execute("select 1")
        return super().moved(name)

    def __deepcopy__(self, memo):
        raise TypeError("a database cannot be copied")


class OwnThreadApart(OwnThread):
    isolation = "process"


class ClosesInItsThread(Walk):
    def reset(self, *, seed=None, options=None):
        self.base = sqlite3.connect(":memory:")
        return super().reset(seed=seed, options=options)

    def close(self):
        self.base.close()


class LocalPlace(Walk):
    """Another thread sees another place, and nothing fails."""

    def __init__(self, length=4):
        self.local = threading.local()
        super().__init__(length)

    place = property(
        lambda self: getattr(self.local, "place", 0), lambda self, value: setattr(self.local, "place", value)
    )


class HoldsItsLock(Walk):
    """Waits for ever where another thread makes the next call."""

    def reset(self, *, seed=None, options=None):
        self.lock = threading.RLock()
        self.lock.acquire()
        return super().reset(seed=seed, options=options)

    def moved(self, name):
        with self.lock:
            return super().moved(name)


class MainThreadOnly(Walk):
    def moved(self, name):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return super().moved(name)


class MembersApart(Walk):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place = int(self.dynamics.integers(self.length - 1))
        return self.render(), {}


class SharedPlace(Walk):
    places: list[int] = [0]  # noqa: RUF012 (that is the mistake)

    place = property(lambda self: self.places[0], lambda self, value: self.places.__setitem__(0, value))


class SharedScratch(Walk):
    scratch = threading.Event

    def moved(self, name):
        SharedScratch.scratch = self
        time.sleep(0.002)
        return Walk.moved(self if SharedScratch.scratch is self else SharedScratch(self.length), name)


class SaltedHash(Walk):
    salt = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.salt = hash(f"start {self.seed}")
        return self.render(), {}

    def render(self):
        return f"{super().render()} {self.salt}"


class HoldsALock(Walk):
    def __init__(self, length=4):
        super().__init__(length)
        self.lock = threading.Lock()


class CopiesAreTheSame(Walk):
    def __deepcopy__(self, memo):
        return self


class RaisesOnText(Says):
    def step(self, action):
        return self.outcome(float(int(action) == self.number))


class EndsTheProcess(Says):
    def step(self, action):
        raise SystemExit(3)


class NanReward(Walk):
    def step(self, action):
        return super().step(action)._replace(reward=float("nan"))


class TextReward(Walk):
    def step(self, action):
        return super().step(action)._replace(reward="1")


class ArrayObservation(Walk):
    def step(self, action):
        return super().step(action)._replace(observation=np.zeros(3))


class BytesAtReset(Walk):
    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return observation.encode(), info


class HalfACharacter(Walk):
    charset = "P_\ud800"

    def render(self):
        return super().render() + "\ud800"


class OutsideCharset(Walk):
    charset = "P_"

    def render(self):
        return super().render() + "é"


class FourValues(Walk):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NoFlags(Walk):
    def step(self, action):
        return super().step(action)._replace(info={"success": False})


class ArrayOfSuccess(Walk):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "success": np.array([info["success"]])}


class WrittenSuccess(Walk):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "success": str(info["success"])}


class WinsByItself(Walk):
    def moved(self, name):
        return min(self.place + 1, self.length - 1)


class SlowToBegin(Walk):
    def reset(self, *, seed=None, options=None):
        time.sleep(0.03)
        return super().reset(seed=seed, options=options)


class SlowToBuild(Walk):
    def __init__(self, length=4):
        time.sleep(0.03)
        super().__init__(length)


class LineBreakInAName(Walk):
    actions = ("Left", "Right", "Right\nnow")


class SolvedAndCut(Walk):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, False, terminated, info


class OneSpelling(Walk):
    def name_of(self, action):
        return action if action in self.actions else None


class MovesOnAnything(Walk):
    def name_of(self, action):
        return super().name_of(action) or "Right"


class PaysForNonsense(Says):
    def step(self, action):
        return self.outcome(1.0, valid=action.isdigit())


class OracleWalks(Walk):
    def oracle(self):
        plan = super().oracle()
        self.place = min(self.place + 1, self.length - 2)
        return plan


class OraclePlansNonsense(Walk):
    def oracle(self):
        return ["Forward"]


class NoBudget(Walk):
    max_actions = 0


class ListOfActions(Walk):
    actions = ["Left", "Right"]  # noqa: RUF012 (that is the mistake)


class TwiceTheSameName(Walk):
    actions = ("Left", "Right", "left ")


class SeparatorInAName(Walk):
    actions = ("Left", "Right", "Left || Right")


class Sleeps(Walk):
    def step(self, action):
        time.sleep(30)
        return super().step(action)


class SleepsAtReset(Walk):
    def reset(self, *, seed=None, options=None):
        time.sleep(30)
        return super().reset(seed=seed, options=options)


class HoldsTheInterpreter(Says):
    def step(self, action):
        re.match(r"(a|a)*$", "a" * 60 + "b")
        return self.outcome()


class Secret(Says):
    """A secret that the rollouts of a group do not share, though all of them start alike to the eye."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.secret = int(self.dynamics.integers(1000))
        return self.render(), {}

    def step(self, action):
        right = action.strip() == str(self.secret)
        return self.outcome(float(right), terminated=right, success=right)


class SecretPlan(Walk):
    """The same, kept where nothing but the plan shows it."""

    def oracle(self):
        return [("Left", "Right")[self.rollout_index % 2]]


class Slots:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class SecretInSlots(Secret):
    """The same, in an object without a `__dict__`."""

    def reset(self, *, seed=None, options=None):
        observation = super().reset(seed=seed, options=options)
        self.box, self.secret = Slots(self.secret), 0
        return observation


class Surely(Walk):
    """Nothing is left to chance."""

    def moved(self, name):
        return min(max(self.place + (1 if name == "Right" else -1), 0), self.length - 1)


class OracleWinsSeldom(Surely):
    def oracle(self):
        return super().oracle() if self.seed == 0 else ["Left"]


class TruncatesOnNonsense(Walk):
    def step(self, action):
        return super().step(action)._replace(truncated=self.name_of(action) is None)


class MovesUnseen(Surely):
    """A trap that any action arms, also one that is not valid, and that no observation shows."""

    def reset(self, *, seed=None, options=None):
        self.armed = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.armed += 1
        return super().step(action)

    def moved(self, name):
        return self.place if self.armed > 1 else super().moved(name)


class OneLevel(Walk):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place = 0
        return self.render(), {}


class AnyLongTextWins(Says):
    def step(self, action):
        right = str(self.number) in action or len(action) > 5_000
        return self.outcome(float(right), terminated=right, success=right)


class NoTextWins(Says):
    def step(self, action):
        right = action.strip() in ("", str(self.number))
        return self.outcome(float(right), terminated=right, success=right)


class SetsAVariable(Walk):
    def reset(self, *, seed=None, options=None):
        os.environ["RAGEN_WALK"] = str(seed)
        return super().reset(seed=seed, options=options)


class LeavesFilesOpen(Walk):
    files = []  # noqa: RUF012 (that is the mistake)

    def reset(self, *, seed=None, options=None):
        self.files.append(open(os.devnull))  # noqa: SIM115 (that is the mistake)
        return super().reset(seed=seed, options=options)


class LeavesThreads(Walk):
    def reset(self, *, seed=None, options=None):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        return super().reset(seed=seed, options=options)


class ChangesTheFolder(Walk):
    def reset(self, *, seed=None, options=None):
        os.chdir(os.sep)
        return super().reset(seed=seed, options=options)


class Prints(Walk):
    def step(self, action):
        print("a step")
        return super().step(action)


class Warns(Walk):
    def reset(self, *, seed=None, options=None):
        warnings.warn("Another version is played.", stacklevel=1)
        return super().reset(seed=seed, options=options)


class SlipsWithTheGroup(Walk):
    def moved(self, name):
        way = (1 if name == "Right" else -1) * (self.np_random.random() < 0.9)
        return min(max(self.place + way, 0), self.length - 1)


class SlipsWithItsOwn(Walk):
    def reset(self, *, seed=None, options=None):
        self.luck = {"of": random.Random(seed)}
        return super().reset(seed=seed, options=options)

    def moved(self, name):
        way = (1 if name == "Right" else -1) * (self.luck["of"].random() < 0.9)
        return min(max(self.place + way, 0), self.length - 1)


class SlipsWithNumpys(SlipsWithItsOwn):
    def reset(self, *, seed=None, options=None):
        observation = super().reset(seed=seed, options=options)
        self.luck = {"of": np.random.default_rng(seed)}
        return observation


class SlipsAnew(Walk):
    def reset(self, *, seed=None, options=None):
        self.begun, self.steps = seed, 0
        return super().reset(seed=seed, options=options)

    def moved(self, name):
        self.steps += 1
        way = (1 if name == "Right" else -1) * (self.drawn() < 0.9)
        return min(max(self.place + way, 0), self.length - 1)

    def drawn(self):
        return default_rng([self.begun, self.steps]).random()


class SlipsAnewWithPythons(SlipsAnew):
    def drawn(self):
        return random.Random(self.begun + 1000 * self.steps).random()


class SlipsAnewByMember(SlipsAnew):
    """No mistake: members of a group have luck of their own, and a table is the same for all."""

    def drawn(self):
        return max(default_rng([self.begun, self.rollout_index, self.steps]).random(), 0 * random.Random(7).random())


class KeepsMemory(Walk):
    kept = []  # noqa: RUF012 (that is the mistake)

    def reset(self, *, seed=None, options=None):
        self.kept.append(np.zeros(1 << 18))
        return super().reset(seed=seed, options=options)


class KeepsItsOwn(Walk):
    def reset(self, *, seed=None, options=None):
        self.kept = [*getattr(self, "kept", ()), bytearray(1 << 21)]
        return super().reset(seed=seed, options=options)


class OracleNeverWins(Walk):
    def oracle(self):
        return ["Left"] if super().oracle() else []


class SuccessNeverSet(Walk):
    def step(self, action):
        step = super().step(action)
        return step._replace(info={**step.info, "success": False})

    def oracle(self):
        return []


class NoEndAfterWinning(Walk):
    def step(self, action):
        return super().step(action)._replace(terminated=False)


class NoInstruction(Walk):
    def __init__(self):
        super().__init__()
        self.instruction = " \n"


class ShowsNothing(Walk):
    def render(self):
        return ""


class ShowsABook(Walk):
    charset = "P_ "

    def render(self):
        return super().render() + " _" * 10_000


class Slow(Walk):
    def step(self, action):
        time.sleep(0.03)
        return super().step(action)


class NoEndOfTheBudget(Walk):
    max_actions = 10**9

    def oracle(self):
        return []

    def moved(self, name):
        return 0


class NoValidMove(Says):
    """A random player that takes words of the observation says nothing that this one understands."""

    def step(self, action):
        return self.outcome(valid=action.startswith("MOVE "), effective=False)


class Mastermind(Says):
    """A secret that a player knows whose generator began as the environment's."""

    def random_action(self, rng):
        return str(int(rng.integers(20)))


class CannotBeBuilt(Walk):
    def __init__(self):
        raise KeyError("no such file")
