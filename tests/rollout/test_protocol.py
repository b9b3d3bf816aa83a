from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_chat import Walk

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.protocol import compact
from ragen_verl.rollout.protocols.ragen import TAGS, Ragen
from ragen_verl.rollout.trajectory import Turn


def turn(reward: float = 0.0, valid: bool = False) -> Turn:
    return Turn("", [], [], reward=reward, valid=valid)


def test_first_user_holds_task_symbols_actions_and_turn_1():
    assert Ragen(stated_length=50).first_user(Walk(), "P at 0") == (
        "Walk to G.\n"
        "Symbols: P you, G goal.\n"
        'Actions: Left, Right. You can make up to 10 actions, separated by " || ".\n'
        "\n"
        "Turn 1:\nState:\nP at 0\n"
        "You have 10 actions left. Reply with <think> [your thoughts] </think> <answer> [your answer] </answer> "
        "and nothing else. Max response length: 50 words (tokens)."
    )


def test_first_user_renders_when_no_state_is_given():
    assert "State:\nP at 0, G at 3\n" in Ragen().first_user(Walk())


def test_first_user_of_a_bare_environment_is_turn_1_alone():
    env = Walk()
    env.instruction, env.symbols, env.actions = "", {}, None
    assert Ragen(max_actions=1).first_user(env, "s").startswith("Turn 1:\nState:\ns\nYou have 1 action left.")


def test_separator_is_not_mentioned_where_only_one_action_fits():
    assert "||" not in Ragen(max_actions_per_turn=1).first_user(Walk(), "s")
    assert "||" not in Ragen(max_actions=1).first_user(Walk(), "s")


def test_free_text_in_several_actions_is_told_of_the_separator():
    env = Walk()
    env.instruction, env.symbols, env.actions = "", {}, None
    assert Ragen().first_user(env, "s").startswith('You can make up to 10 actions, separated by " || ".\n\nTurn 1:')
    assert Ragen(max_actions_per_turn=1).first_user(env, "s").startswith("Turn 1:")


def test_next_user_shows_reward_then_the_next_turn():
    protocol = Ragen(think=False)
    assert protocol.message([turn(-0.1 - 0.2)], "s", 7) == (
        "Reward:\n-0.3\n\nTurn 2:\nState:\ns\nYou have 7 actions left. "
        "Reply with <answer> [your answer] </answer> and nothing else. Max response length: 100 words (tokens)."
    )


def test_an_invalid_answer_is_explained_only_if_asked_for():
    assert "not valid" not in Ragen().message([turn(valid=False)], "s", 7)
    explaining = Ragen(explain_invalid=True)
    assert "not valid" in explaining.message([turn(valid=False)], "s", 7)
    assert "not valid" not in explaining.message([turn(valid=True)], "s", 7)


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.1, "-0.1"), (1.0, "1"), (10.9, "10.9"), (0.1 + 0.2, "0.3"), (0, "0"), (-0.0, "0"), (-1e-9, "0"), (100, "100")],
)
def test_rewards_are_compact(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("text", "ok", "think", "actions"),
    [
        (" go up </think> <answer> Up || Up </answer>", True, "go up", ["Up", "Up"]),
        ("a\nb</think>\n\n<answer>\nUp\n||\nDown</answer>", True, "a\nb", ["Up", "Down"]),
        ("</think><answer></answer>", True, "", []),
        ("a</think><answer> || Up ||  || </answer>", True, "a", ["Up"]),
        ("a</think><answer>1||2||3||4||5||6||7</answer>", True, "a", ["1", "2", "3", "4", "5"]),
        ("a</think><answer>Up</answer> and more <answer>Down</answer>", True, "a", ["Up"]),
        ("a</think> so <answer>Up</answer>", False, "", []),
        ("a</think> so </think><answer>Up</answer>", True, "a so", ["Up"]),
        ("<think>a</think><answer>Up</answer>", True, "a", ["Up"]),
        ("a</think><answer><answer>Up</answer></answer>", True, "a", ["Up"]),
        ("a</think><answer>Up</ans<think>wer> || <</think>think>Down</answer>", True, "a", ["Up", "Down"]),
        ("<th</answer>ink>a</think><answer><an<th<think>ink>swer>Up</answer>", True, "a", ["Up"]),
        ("a</think><answer>Up", False, "", []),
        ("a <answer>Up</answer>", False, "", []),
        ("Up</answer>", False, "", []),
        ("", False, "", []),
    ],
)
def test_parse_with_thoughts(text, ok, think, actions):
    assert Ragen().parse(text) == (ok, think, actions)


@pytest.mark.parametrize(
    ("text", "ok", "actions"),
    [
        (" Up || Down </answer>", True, ["Up", "Down"]),
        ("<answer>Up</answer>", True, ["Up"]),
        ("Up", False, []),
        ("x</think><answer>Up</answer>", True, ["xUp"]),
    ],
)
def test_parse_without_thoughts(text, ok, actions):
    assert Ragen(think=False).parse(text) == (ok, "", actions)


def test_an_empty_separator_keeps_the_answer_whole():
    assert Ragen(think=False, action_sep="").parse("a || b</answer>").actions == ["a || b"]


@given(
    st.lists(
        st.sampled_from([*TAGS, "||", " ", "\n", "Up", "<", ">", "think", "</ans", "wer>", "\x00", "é"])
        | st.text(max_size=8)
    )
)
def test_parse_never_raises_and_keeps_its_promises(parts):
    text = "".join(parts)
    for think in (True, False):
        protocol = Ragen(think=think, max_actions_per_turn=3)
        format_ok, thoughts, actions = protocol.parse(text)
        assert len(actions) <= 3
        assert all(action and action == action.strip() and "||" not in action for action in actions)
        assert not any(tag in part for tag in TAGS for part in (thoughts, *actions))
        assert format_ok or (not thoughts and not actions)


@pytest.mark.timeout(30)  # a quadratic search takes minutes
@pytest.mark.parametrize(
    "bad",
    [
        *(tag * 130_000 for tag in TAGS),
        "</think>" + " " * 1_000_000,
        "</think> " * 110_000,
        "</think><answer>" * 65_000,
        "</think><answer>" + "||" * 500_000 + "</answer>",
        "</think><answer>" + " " * 1_000_000 + "</answer>",
        "<" * 1_000_000,
    ],
    ids=range(10),
)
def test_a_megabyte_is_parsed_at_once(bad):
    for think in (True, False):
        Ragen(think=think).parse(bad)


@given(
    thoughts=st.text(alphabet="abc \n", max_size=20),
    actions=st.lists(st.text(alphabet="UpDown", min_size=1, max_size=5), max_size=5),
)
@settings(max_examples=50)
def test_what_is_written_in_form_is_read_back(thoughts, actions):
    text = f"{thoughts}</think> <answer> {' || '.join(actions)} </answer>"
    assert Ragen().parse(text) == (True, thoughts.strip(), actions)


@pytest.mark.parametrize(
    "bad",
    [
        {"max_turns": 0},
        {"max_actions": 0},
        {"max_actions_per_turn": -1},
        {"stated_length": 0},
        {"format_penalty": 0.1},
        {"format_penalty": float("nan")},
        {"action_sep": "think"},
    ],
)
def test_values_that_cannot_work_are_refused(bad):
    with pytest.raises(RecipeError, match=next(iter(bad))):
        Ragen(**bad)
