"""The cases of the package, called inside a sandbox and judged outside, where no program that was written sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ragen_envs.repair.almanac.cases import CASES
from ragen_envs.sandbox import Limits, open_sandbox

__all__ = ["failing"]

# Calls each function with each case's arguments and writes the number and the value of each on a line. A case has 0.2 s
# of the processor; a function that takes longer is called no more.
_CALLER = """
import ast, importlib, io, json, signal, sys
def stop(*_): raise TimeoutError("it takes too long")
signal.signal(signal.SIGVTALRM, stop)
out, sys.stdout, slow = sys.stdout, io.StringIO(), set()
for number, (name, arguments) in enumerate(json.load(sys.stdin)):
    if name in slow:
        continue
    module, function = name.split(".")
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
        found = repr(getattr(importlib.import_module("almanac." + module), function)(*ast.literal_eval(arguments)))
    except BaseException as error:
        found = f"{type(error).__name__}: {error}"
        if isinstance(error, TimeoutError):
            slow.add(name)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print(json.dumps([number, found[:200]]), file=out, flush=True)
"""
_CALLS = [(name, arguments, repr(expected)) for name, cases in CASES.items() for arguments, expected in cases]
_ASKED = json.dumps([(name, repr(arguments)) for name, arguments, _ in _CALLS])


def failing(texts: Mapping[str, str], kind: str, limits: Limits) -> dict[int, tuple[str, str]]:
    """The cases that fail: number -> the function, and what it gave and has to give.

    Args:
        texts: the text of each module.
        kind: the kind of sandbox.
        limits: those of the sandbox; where all cases together take longer, those that were not called fail.
    """
    with open_sandbox(kind, limits) as sandbox:
        for module, text in texts.items():
            sandbox.write(f"almanac/{module}.py", text)
        output = sandbox.run(["python3", "-c", _CALLER], _ASKED).output
    found: dict[int, str] = {}
    for line in output.splitlines():
        try:
            number, text = json.loads(line)
            found[int(number)] = text
        except (ValueError, TypeError, RecursionError):  # the package can write there too
            continue
    return {
        number: (
            name,
            f"{name}({', '.join(map(repr, arguments))}) gives {found.get(number, 'nothing')} instead of {expected}",
        )
        for number, (name, arguments, expected) in enumerate(_CALLS)
        if found.get(number) != expected
    }
