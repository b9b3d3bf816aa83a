"""Policies by name: `--policy NAME` or `--policy NAME:ARGUMENT`; `@policy` adds one from any package or file.

    @policy("mine", form="mine:FOLDER")
    def mine(argument: str, setting: Setting) -> Policy:
        '''A model of mine in a folder.'''

A policy that needs a server while it plays yields the policy instead; what stands behind the `yield` runs in the end.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ragen_lab.convert.export import LAST, export, find
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.policies import Person, Policy, Scripted
from ragen_lab.evaluate.server import NAME, Serving, serving

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.extensions import Registry
from ragen_verl.runs.folder import RunFolder

__all__ = ["POLICIES", "Form", "Setting", "Spec", "policy"]


@dataclass(frozen=True)
class Setting:
    """What an evaluation asks of the policies that it opens.

    Attributes:
        sampling: the settings of requests to an endpoint.
        dtype: the type of a checkpoint's or a folder's weights and arithmetic, as vLLM takes it.
        context: the highest number of tokens of a conversation with a served checkpoint or folder; the model's own
            limit holds as well.
        ask: the function that asks a person.
        serving: what serves a checkpoint or a folder; `Servers.serving` keeps a server for the next one.
    """

    sampling: Sampling
    dtype: str = "auto"
    context: int = 8192
    ask: Callable[[str], str] = input
    serving: Serving = serving


@dataclass(frozen=True)
class Form:
    """A kind of policy.

    Attributes:
        name: the part of the text before the colon.
        form: how it is written: `name`, or `name:ARGUMENT`.
        function: (argument, setting) -> the policy, or a generator that yields it.
        about: the first line of the function's docstring.
    """

    name: str
    form: str
    function: Callable[[str, Setting], Policy | Iterator[Policy]]
    about: str

    @property
    def opened(self) -> Callable[[str, Setting], AbstractContextManager[Policy]]:
        """(argument, setting) -> a context with the policy."""
        if inspect.isgeneratorfunction(self.function):
            return contextmanager(self.function)
        return lambda argument, setting: nullcontext(self.function(argument, setting))  # type: ignore[arg-type]


POLICIES: Registry[Form] = Registry("policy")


def policy(name: str, *, form: str | None = None) -> Callable[[Callable], Callable]:
    """A decorator that registers a policy to evaluate; for the arguments see `Form`.

    Args:
        name: letters, digits, `-` and `_`.
        form: None for a policy without an argument.

    Raises:
        RecipeError: another policy has the name, or the form does not begin with it.
    """
    if (form or name).partition(":")[0] != name or not name.replace("-", "_").isidentifier():
        raise RecipeError(f"The policy {name!r} has the form {form!r} but its name is a word, its form NAME:ARGUMENT.")

    def register(function: Callable) -> Callable:
        about = (inspect.getdoc(function) or name).splitlines()[0]
        POLICIES.add(name, Form(name, form or name, function, about))
        return function

    return register


@dataclass(frozen=True)
class Spec:
    """A policy that can be opened.

    Attributes:
        text: the given text.
        form: its kind.
        argument: the part after the first colon; empty if the kind takes none.
    """

    text: str
    form: Form
    argument: str

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read a text such as "api:gpt-4o" or "oracle"; plugins are loaded.

        Raises:
            RecipeError: it has none of the forms.
        """
        name, _, argument = text.partition(":")
        form = POLICIES.get(name)
        if form and bool(argument) == (":" in form.form):
            return cls(text, form, argument)
        forms = ", ".join(one.form for one in POLICIES.values())
        raise RecipeError(f"The policy {text!r} has no known form: {nearest(name, list(POLICIES))} Forms: {forms}.")

    def opened(self, setting: Setting) -> AbstractContextManager[Policy]:
        """A context with the policy, and with what it needs while it plays."""
        return self.form.opened(self.argument, setting)


@policy("random")
def _random(argument: str, setting: Setting) -> Policy:
    """Actions by chance."""
    return Scripted("random")


@policy("oracle")
def _oracle(argument: str, setting: Setting) -> Policy:
    """The environment's own plan."""
    return Scripted("oracle")


@policy("human")
def _human(argument: str, setting: Setting) -> Policy:
    """A person at the keyboard."""
    return Person(setting.ask)


@policy("api", form="api:MODEL[@URL]")
def _api(argument: str, setting: Setting) -> Policy:
    """A model behind a chat API; without a URL at OPENAI_BASE_URL."""
    model, url = _at(argument)
    return Endpoint(model, url, setting.sampling, name=model)


@policy("run", form="run:FOLDER[@WHICH]")
def _run(argument: str, setting: Setting) -> Iterator[Policy]:
    """A checkpoint of a run: best, last (the default), before_warning or a step."""
    name, which = _at(argument)
    run, which = RunFolder(name), which or LAST
    checkpoint = find(run, which)
    folder = run.path / "exports" / checkpoint.name  # exported into the run's folder first, once
    folder = folder if (folder / "README.md").is_file() else export(run, which, folder)
    yield from _served(folder, f"{Path(name).name}@{which}", setting)


@policy("hf", form="hf:FOLDER")
def _hf(argument: str, setting: Setting) -> Iterator[Policy]:
    """A Hugging Face folder, served by vLLM and asked token by token, as in training."""
    yield from _served(Path(argument).expanduser(), Path(argument).name, setting)


def _served(folder: Path, name: str, setting: Setting) -> Iterator[Policy]:
    """A model in a folder while vLLM serves it."""
    from transformers import AutoTokenizer

    context = min(setting.context, _longest(folder) or setting.context)
    with setting.serving(folder, dtype=setting.dtype, max_model_len=context) as url:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        yield Endpoint(NAME, url, setting.sampling, tokenizer, name=name, context=context)


def _at(argument: str) -> tuple[str, str | None]:
    """The parts before and after the last `@`; the second is None where there is no `@`."""
    before, at, after = argument.rpartition("@")
    return (before, after) if at else (argument, None)


def _longest(folder: Path) -> int | None:
    """The highest number of tokens that a model supports; None where its configuration does not have it."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8")).get("max_position_embeddings")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, int) else None
