"""Protocols by name: the prompts of all recipes, answers in boxes, and a protocol of one's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_digests import digest, tables
from recipe_composition import composed

from ragen_verl.cli.recipes import find
from ragen_verl.config import RagenConfig
from ragen_verl.config.rollout import Rollout
from ragen_verl.config.schema import parse
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.protocol import PROTOCOLS, Parsed, Protocol, protocol
from ragen_verl.rollout.protocols.boxed import Boxed
from ragen_verl.rollout.protocols.ragen import Ragen

PROMPTS = json.loads(Path(__file__).with_name("prompts.json").read_text())
"""Recipe -> the digest of its prompts and read answers, computed before protocols were found by name."""


def rollout(**keys) -> Rollout:
    return parse(Rollout, keys, "ragen.rollout")


def test_every_recipe_has_a_digest_of_its_prompts():
    assert set(PROMPTS) == {name for name, _ in find()}


@pytest.mark.parametrize("recipe", PROMPTS)
def test_prompts_of_a_recipe_are_what_they_were(recipe, tmp_path):
    assert digest(RagenConfig.from_omegaconf(composed(recipe, *tables(recipe, tmp_path)))) == PROMPTS[recipe]


texts = st.text(st.sampled_from("aB 1{}|<>/\\é\n"), max_size=12)
pieces = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "}", "{", "||", " ", "Up", "\x00"]
)


@pytest.mark.parametrize("kind", [Ragen, Boxed])
@pytest.mark.parametrize("think", [True, False])
@given(
    actions=st.lists(st.sampled_from(["Up", "left 2", "é"]), min_size=1, max_size=4),
    thoughts=st.sampled_from(["", "a b"]),
)
def test_an_answer_is_read_as_its_actions(kind, think, actions, thoughts):
    rules = kind(think=think)
    assert rules.parse(rules.answer(actions, thoughts)) == (True, thoughts if think else "", actions)


@pytest.mark.parametrize("think", [True, False])
@given(text=st.lists(pieces | texts, max_size=12).map("".join))
def test_any_text_is_read_and_only_a_closed_box_counts(think, text):
    ok, thoughts, actions = Boxed(think=think, max_actions_per_turn=2).parse(text)
    assert len(actions) <= 2 and all(one == one.strip() != "" for one in actions)
    if ok and think:
        assert "</think>" in text and "</think>" not in "".join(actions)
    if not ok:
        assert (thoughts, actions) == ("", [])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("so</think> \\boxed{Up || Down}", (True, "so", ["Up", "Down"])),
        ("so</think> I say \\boxed{\\frac{1}{2}}.", (True, "so", ["\\frac{1}{2}"])),
        ("no, \\boxed{Up}</think> \\boxed{Left} and \\boxed{Down}", (True, "no, \\boxed{Up}", ["Down"])),
        ("only \\boxed{Up}", (False, "", [])),
        ("a \\boxed{Up}</think> none", (False, "", [])),
        ("a</think> \\boxed{Up", (False, "", [])),
        ("a</think> \\boxed{ }", (True, "a", [])),
    ],
)
def test_the_last_box_behind_the_thoughts_counts(text, read):
    assert Boxed().parse(text) == read


@pytest.mark.parametrize(
    "bad", ["\\boxed{" * 50_000, "{" * 300_000, "</think>" * 50_000, "</think>\\boxed{" + "{}" * 150_000]
)
def test_boxes_are_found_in_linear_time(bad):
    Boxed().parse(bad)


def test_a_separator_cannot_be_part_of_a_box():
    with pytest.raises(RecipeError, match="action_sep '}' is part of an answer tag"):
        Boxed(action_sep="}")


def test_a_recipe_names_its_protocol():
    assert rollout().chat_protocol() == Ragen() != Boxed() == rollout(protocol="boxed").chat_protocol()
    chosen = rollout(protocol="boxed", think=False, max_turns=3).chat_protocol()
    assert chosen == Boxed(think=False, max_turns=3) and chosen.prefill == "\\boxed{"
    with pytest.raises(
        RecipeError, match=r"ragen\.rollout\.protocol is 'boxd', which is no protocol: did you mean boxed\?"
    ):
        rollout(protocol="boxd")


def test_options_of_a_protocol_are_keys_of_the_rollout(monkeypatch):
    monkeypatch.setattr(PROTOCOLS, "_things", dict(PROTOCOLS))

    @protocol("marked")
    @dataclass(frozen=True, kw_only=True)
    class Marked(Protocol):
        mark: str = "="

        @property
        def prefill(self) -> str:
            return self.mark

        def parse(self, text: str) -> Parsed:
            return Parsed(True, "", [text])

    assert Marked.name == "marked" and rollout(protocol="marked").chat_protocol().prefill == "="
    chosen = rollout(protocol="marked", mark=">", context="window", window=2)
    assert chosen.chat_protocol() == Marked(mark=">") and chosen.chat_context().window == 2
    with pytest.raises(
        RecipeError, match=r"mark is > but ragen\.rollout\.protocol is ragen, .*: set mark to null, or the"
    ):
        rollout(mark=">")
    with pytest.raises(RecipeError, match=r"ragen\.rollout\.mark is 3 but has to be text"):
        rollout(protocol="marked", mark=3)
    with pytest.raises(RecipeError, match=r"ragen\.rollout\.marc is not a key of ragen\.rollout: did you mean mark\?"):
        rollout(protocol="marked", marc=">")
