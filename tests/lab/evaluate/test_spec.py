"""Policies by name: the built-in ones, one of a plugin, and texts that name none."""

from __future__ import annotations

import pytest
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.policies import Person, Scripted
from ragen_lab.evaluate.spec import POLICIES, Setting, Spec, policy

from ragen_verl.errors import RecipeError

SETTING = Setting(Sampling())


def opened(text):
    with Spec.parse(text).opened(SETTING) as found:
        return found


def test_policies_without_an_argument_are_opened_by_name():
    assert [type(opened(text)) for text in ("random", "oracle", "human")] == [Scripted, Scripted, Person]
    assert opened("oracle").name == "oracle"


@pytest.mark.parametrize(
    ("text", "model", "url"),
    [
        ("api:m@http://127.0.0.1:1/v1", "m", "http://127.0.0.1:1/v1"),
        ("api:org/a@b@http://127.0.0.1:1/v1", "org/a@b", "http://127.0.0.1:1/v1"),
    ],
)
def test_the_last_part_of_an_api_is_its_address(text, model, url):
    found = opened(text)
    assert isinstance(found, Endpoint) and (found.name, found.model, found.api.url) == (model, model, url)


@pytest.mark.parametrize("text", ["orcale", "api:", "hf", "ftp:x", "", "oracle:x", "run"])
def test_a_policy_of_no_known_form_is_refused(text):
    with pytest.raises(
        RecipeError, match=r"has no known form: .* Forms: random, oracle, human, api:MODEL\[@URL\], run"
    ):
        Spec.parse(text)


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(RecipeError), Spec.parse(f"run:{tmp_path}@best").opened(SETTING):
        pass


def test_a_policy_of_a_plugin_is_opened_and_ended(monkeypatch):
    monkeypatch.setattr(POLICIES, "_things", dict(POLICIES))
    done = []

    @policy("mine", form="mine:WORD")
    def mine(argument, setting):
        """A policy of mine."""
        yield Scripted(argument)
        done.append(setting)

    with Spec.parse("mine:a:b").opened(SETTING) as found:
        assert (found.name, done) == ("a:b", [])
    assert done == [SETTING] and POLICIES["mine"].about == "A policy of mine."
    with pytest.raises(RecipeError, match="did you mean mine"):
        Spec.parse("min:a")


@pytest.mark.parametrize(("name", "form"), [("my policy", None), ("mine", "yours:X"), ("", None)])
def test_a_name_that_cannot_be_typed_is_refused(name, form):
    with pytest.raises(RecipeError, match="its name is a word, its form NAME:ARGUMENT"):
        policy(name, form=form)
