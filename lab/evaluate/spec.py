"""`Spec`: a policy from its name on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragen_lab.convert.export import LAST, export, find
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.policies import Person, Policy, Scripted
from ragen_lab.evaluate.server import NAME, serving

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.runs.folder import RunFolder

__all__ = ["Spec"]

_SCRIPTED = ("random", "oracle")
_FORMS = {
    "random": "actions by chance",
    "oracle": "the environment's own plan",
    "human": "a person at the keyboard",
    "api:MODEL[@URL]": "a model behind a chat API; without a URL at OPENAI_BASE_URL",
    "run:FOLDER[@best]": "a checkpoint of a run: best, last (the default), before_warning or a step",
    "hf:FOLDER": "a Hugging Face folder, served by vLLM and asked token by token, as in training",
}
"""The forms of a policy's name, and the meaning of each."""


@dataclass(frozen=True)
class Spec:
    """A policy that can be opened.

    Attributes:
        text: the given text.
        form: the part before the colon, or the whole text.
        name: the part after the colon.
        at: the part after the last `@`, if there is one: an address, or a checkpoint.
    """

    text: str
    form: str
    name: str
    at: str | None = None

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read a text such as "api:gpt-4o" or "oracle".

        Raises:
            RecipeError: it has none of the forms.
        """
        form, _, name = text.partition(":")
        if text in (*_SCRIPTED, "human"):
            return cls(text, text, text)
        if form in ("api", "run") and name:
            before, at, after = name.rpartition("@")
            return cls(text, form, before if at else name, after if at else None)
        if form == "hf" and name:
            return cls(text, form, name)
        known = [one.partition(":")[0] for one in _FORMS]
        raise RecipeError(f"The policy {text!r} has no known form: {nearest(form, known)} Forms: {', '.join(_FORMS)}.")

    @contextmanager
    def opened(
        self, sampling: Sampling, *, dtype: str, context: int, ask: Callable[[str], str] = input
    ) -> Iterator[Policy]:
        """A context with the policy, and with the server that it needs while it plays.

        Args:
            sampling: the settings of requests to an endpoint.
            dtype: the type of a checkpoint's or a folder's weights and arithmetic, as vLLM takes it.
            context: the highest number of tokens of a conversation with a served checkpoint or folder; the model's own
                limit holds as well.
            ask: the function that asks a person.
        """
        if self.form in _SCRIPTED:
            yield Scripted(self.form)
        elif self.form == "human":
            yield Person(ask)
        elif self.form == "api":
            yield Endpoint(self.name, self.at, sampling, name=self.name)
        else:
            from transformers import AutoTokenizer

            folder = self._folder()
            context = min(context, _longest(folder) or context)
            with serving(folder, dtype=dtype, max_model_len=context) as url:
                tokenizer = AutoTokenizer.from_pretrained(folder)
                name = Path(self.name).name + (f"@{self.at or LAST}" if self.form == "run" else "")
                yield Endpoint(NAME, url, sampling, tokenizer, name=name, context=context)

    def _folder(self) -> Path:
        """The Hugging Face folder; a run's checkpoint is exported into the run's folder first, once."""
        if self.form == "hf":
            return Path(self.name).expanduser()
        run, which = RunFolder(self.name), self.at or LAST
        checkpoint = find(run, which)
        folder = run.path / "exports" / checkpoint.name
        return folder if (folder / "README.md").is_file() else export(run, which, folder)


def _longest(folder: Path) -> int | None:
    """The highest number of tokens that a model supports; None where its configuration does not have it."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8")).get("max_position_embeddings")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, int) else None
