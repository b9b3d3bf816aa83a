"""`ragen-verl env play`."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from ragen_verl.cli.console import console
from ragen_verl.cli.env_arguments import ID, KWARGS, parse_kwargs
from ragen_verl.env import Env, make
from ragen_verl.env.registry import resolve

__all__ = ["play"]

_COMMANDS = {
    "hint": "the next action of the environment's own plan",
    "oracle": "the whole plan",
    "help": "task, actions and commands",
    "quit": "stop",
}
_COLOURS = ("bold green", "bright_black", "cyan", "bold yellow", "bold red", "magenta", "blue", "white")


def play(
    id: str = ID,
    kwargs: list[str] = KWARGS,
    seed: int = typer.Option(0, min=0, help="Seed of the initial state."),
    rollout_index: int = typer.Option(0, min=0, help="Number in the group: the same start, other transitions."),
) -> None:
    """Play one episode by hand: the same start, budget and rewards as an agent has.

    Type an action as it is. If actions have names, the beginning of a name or its number is enough.
    Commands: hint, oracle, help, quit. If such a word can also be an action, a colon (:hint) makes it a command.
    """
    env = make(id, **parse_kwargs(kwargs or []))
    out = console()
    try:
        state, _ = env.reset(seed=seed, options={"rollout_index": rollout_index})
        out.print(Text.assemble((resolve(id), "bold"), f", seed {seed}, rollout index {rollout_index}"))
        _explain(out, env)
        if hasattr(env, "person"):  # `ragen_verl.env.tools.AsksHuman`
            env.person = lambda question: typer.prompt(f"{question}\nyour answer", prompt_suffix="> ")
        total, stop = _episode(out, env, state)
    finally:
        env.close()
    out.print(Text.assemble("Return ", (f"{total:g}", "bold"), "; stop reason: ", (stop, "bold")))


def _episode(out: Console, env: Env, state: str) -> tuple[float, str]:
    """Play until the end; return and stop reason."""
    from ragen_verl.rollout.trajectory import StopReason

    total, left = 0.0, env.max_actions
    _draw(out, env, state)
    while left:
        action = _ask(out, env, left)
        if action is None:
            return total, "stopped by hand"
        step = env.step(action)
        left -= 1
        total += step.reward
        _draw(out, env, step.observation)
        out.print(_outcome(step.reward, step.info))
        if stop := StopReason.of_step(step.info.get("success", False), step.terminated, step.truncated):
            return total, str(stop)
    return total, str(StopReason.ACTION_BUDGET)


def _ask(out: Console, env: Env, left: int) -> str | None:
    """Execute commands until an action is typed, and return it; None to stop."""
    while True:
        try:
            said = typer.prompt(f"action ({left} left)", prompt_suffix="> ", default="", show_default=False)
        except typer.Abort:
            return None
        command = said.strip().lower().removeprefix(":")
        if command in _COMMANDS and (said.strip().startswith(":") or env.name_of(said) is None):
            if command == "quit":
                return None
            _obey(out, env, command)
        elif env.actions is None:
            return said
        elif (name := _named(env, said)) is not None:
            return name
        else:
            told = Text.assemble((f"No action {said!r}.", "yellow"), f" Actions: {', '.join(env.actions)}")
            out.print(told, soft_wrap=True)


def _obey(out: Console, env: Env, command: str) -> None:
    """Print what `hint`, `oracle` or `help` asks for."""
    if command == "help":
        _explain(out, env)
        return
    plan = env.oracle()
    if not plan:
        out.print("No plan is known from here.", style="yellow")
        return
    shown = plan if command == "oracle" else plan[:1]
    out.print(Text(" || ".join(shown), style="cyan"), soft_wrap=True)


def _named(env: Env, said: str) -> str | None:
    """The action name that `said` spells, numbers (from 1) or begins, or None."""
    names, said = env.actions or (), said.strip()
    if (name := env.name_of(said)) is not None:
        return name
    if said.isascii() and said.isdecimal() and 1 <= int(said[:4]) <= len(names):
        return names[int(said) - 1] if len(said) <= 4 else None
    begun = [name for name in names if said and name.casefold().startswith(said.casefold())]
    return begun[0] if len(begun) == 1 else None


def _explain(out: Console, env: Env) -> None:
    """Print task, symbols, actions and commands."""
    if env.instruction:
        out.print(Text(env.instruction), soft_wrap=True)
    if env.symbols:
        legend = Text(", ").join(Text(f"{one} {env.symbols[one]}", style=style) for one, style in _styles(env).items())
        out.print(Text("Symbols: ") + legend, soft_wrap=True)
    if env.actions:
        numbered = (f"{number} {name}" for number, name in enumerate(env.actions, start=1))
        out.print(Text(f"Actions: {', '.join(numbered)}"), soft_wrap=True)
    out.print(Text("Commands: " + ", ".join(f"{name} ({what})" for name, what in _COMMANDS.items()), style="dim"))


def _styles(env: Env) -> dict[str, str]:
    """A colour for each symbol, in the order in which the environment lists them."""
    return {symbol: _COLOURS[place % len(_COLOURS)] for place, symbol in enumerate(env.symbols)}


def _draw(out: Console, env: Env, state: str) -> None:
    """Print an observation, the symbols of a grid in their colours."""
    text, colours = Text(state), _styles(env)
    for place, symbol in enumerate(state):
        if symbol in colours:
            text.stylize(colours[symbol], place, place + 1)
    out.print()
    out.print(text, soft_wrap=True)


def _outcome(reward: float, info: dict[str, Any]) -> Text:
    """One line on an action: its reward and what the environment says of it."""
    text = Text(f"reward {reward:g}", style="green" if reward > 0 else "red" if reward < 0 else "dim")
    if not info.get("action_is_valid", True):
        text.append(", not a valid action", style="yellow")
    elif not info.get("action_is_effective", True):
        text.append(", no effect", style="yellow")
    return text
