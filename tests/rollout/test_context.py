"""Rollout contexts: what a turn's prompt shows of the past, and the training rows that follow from it."""

from __future__ import annotations

import asyncio
import copy
import json
from functools import cache
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_module
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from recipe_composition import hydra_finds_verl
from toy_chat import Engine, Walk, say, tokenizer
from trainers import trainer_of

from ragen_verl.config.rollout import Rollout
from ragen_verl.config.schema import parse
from ragen_verl.env import make
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.context import CONTEXTS, Context, Full, SingleTurn, Window, context
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocol import ACTIONS_SHOWN, Protocol
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.training.agent_loop import RECORD, to_outputs
from ragen_verl.validation.recipe import check

FAMILIES = ["qwen", "llama", "gemma"]
FULL, SINGLE = Full(), SingleTurn()
WIDE = Limits(response_length=200, context_length=20_000, step_timeout=5)
FORM = (
    "Reply with <think> [your thoughts] </think> <answer> [your answer] </answer> and nothing else. "
    "Max response length: 100 words (tokens)."
)


@pytest.fixture(scope="module")
def workers():
    with EnvWorkers(2) as pool:
        yield pool


@cache
def chat_tokens(family: str, rules: Protocol) -> ChatTokens:
    return ChatTokens(tokenizer(family), rules)


def run(workers, context, *said, family="qwen", env=None, limits=WIDE, **options) -> tuple[Trajectory, Engine]:
    """Play an episode in which the model says these texts or ids, the last one over and over."""
    words = tokenizer(family)
    shared_rng = options.pop("shared_rng", False)
    rules = Ragen(**options)
    engine = Engine([say(words, text) if isinstance(text, str) else text for text in said])
    episode = play(
        env or Walk(goal=99),
        seed=3,
        rollout_index=1,
        protocol=rules,
        chat=chat_tokens(family, rules),
        generate=engine,
        limits=limits,
        workers=workers,
        context=context,
        shared_rng=shared_rng,
    )
    return asyncio.run(episode), engine


def answer(*actions: str, think: str = "go ") -> str:
    return f"{think}</think><answer>{'||'.join(actions)}</answer>"


# -- ids --------------------------------------------------------------------------------------------------------------

contexts = st.one_of(
    st.just(FULL),
    st.builds(Window, window=st.integers(1, 6)),
    st.builds(SingleTurn, summary_turns=st.integers(1, 6)),
)


@st.composite
def responses(draw):
    """Actions in the right form, ended or not, and any ids at all."""
    said = answer(*draw(st.lists(st.sampled_from(["Left", "Right", "fly"]), max_size=3)))
    ids = st.lists(st.integers(0, 300), min_size=1, max_size=12)
    return draw(st.one_of(st.just(said), ids))


@given(
    context=contexts,
    family=st.sampled_from(FAMILIES),
    said=st.lists(responses(), min_size=1, max_size=6),
    think=st.booleans(),
    response_length=st.integers(1, 60),
    context_length=st.integers(1, 1500),
    prompt_length=st.integers(1, 700),
    loss_on_env_tokens=st.booleans(),
    max_turns=st.integers(1, 6),
)
@settings(max_examples=100, deadline=None)
def test_rows_hold_exactly_what_the_engine_saw_and_made(
    workers, context, family, said, think, response_length, context_length, prompt_length, loss_on_env_tokens, max_turns
):
    limits = Limits(response_length, context_length, prompt_length=prompt_length if context.row_per_turn else None)
    played, engine = run(
        workers, context, *said, family=family, limits=limits, think=think, max_turns=max_turns, max_actions=9
    )
    assert not played.excluded
    rows = rows_of(played, loss_on_env_tokens)
    assert len(rows) == (len(played.turns) if context.row_per_turn else min(1, len(played.turns)))
    assert [number for row in rows for number in row.turns] == list(range(1, len(engine.made) + 1))
    for row in rows:
        whole = row.prompt_ids + row.response_ids
        assert row.prompt_ids == engine.saw[row.turns[0] - 1], "no loss on what the engine was given first"
        assert len(whole) <= context_length
        assert not context.row_per_turn or len(row.prompt_ids) <= prompt_length
        sampled = []
        for number in row.turns:
            saw, made = engine.saw[number - 1], engine.made[number - 1]
            assert whole[: len(saw) + len(made)] == saw + made
            sampled += range(len(saw), len(saw) + len(made))
            turn = played.turns[number - 1]
            assert row.rewards[sampled[-1] - len(row.prompt_ids)] == turn.reward + turn.penalty
        assert sampled[-1] == len(whole) - 1, "nothing follows the last sampled id"
        trained = [len(row.prompt_ids) + i for i, kept in enumerate(row.response_mask) if kept]
        observed = set(range(len(row.prompt_ids), len(whole))) - set(sampled) if loss_on_env_tokens else set()
        assert set(trained) == set(sampled) | observed
        assert [value < 0 for value in row.log_probs] == [
            len(row.prompt_ids) + i in sampled for i in range(len(row.log_probs))
        ]
    assert sum(sum(row.rewards) for row in rows) == pytest.approx(played.ret)
    assert json.loads(json.dumps(played.record(), allow_nan=False))["row_per_turn"] is context.row_per_turn


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@given(window=st.integers(1, 6), said=st.lists(responses(), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_window_is_the_conversation_without_its_oldest_turns(workers, family, window, said):
    played, full = run(workers, FULL, *said, family=family)
    cut, seen = run(workers, Window(window=window), *said, family=family)
    assert [turn.executed for turn in cut.turns] == [turn.executed for turn in played.turns]
    chat, words = chat_tokens(family, Ragen()), tokenizer(family)
    for number, (whole, shown) in enumerate(zip(full.saw, seen.saw, strict=True), start=1):
        first = max(1, number - window + 1)
        if first == 1:
            assert shown == whole
            continue
        # from the response of the first turn shown on, the ids are those of the full conversation
        tail = whole[len(full.saw[first - 1]) :]
        assert shown[len(shown) - len(tail) :] == tail
        # before it stands an opening: the system message, the task and the message of that turn as it was
        left = 10 - sum(len(turn.executed) for turn in played.turns[: first - 1])
        message = Ragen().message(played.turns[: first - 1], played.turns[first - 1].state, left)
        opening = shown[: len(shown) - len(tail)]
        assert opening == chat.initial(Ragen().system(Walk()), f"{Ragen().task(Walk())}\n\n{message}")
        assert words.decode(opening).count("Walk to G.") == 1


def test_every_prompt_holds_system_message_and_task(workers):
    for chosen in (FULL, Window(window=1), Window(window=2), SINGLE):
        played, engine = run(workers, chosen, answer("Right"))
        assert len(engine.saw) == 5
        for number, ids in enumerate(engine.saw, start=1):
            text = tokenizer("qwen").decode(ids)
            assert text.startswith(
                "<|im_start|>system\nYou're a helpful assistant.<|im_end|>\n<|im_start|>user\nWalk to G."
            )
            assert text.count("Walk to G.") == 1
            assert f"Turn {number}:\nState:\n{played.turns[number - 1].state}\n" in text


# -- texts ------------------------------------------------------------------------------------------------------------


def test_texts_of_the_full_history_stay_as_they_are(workers):
    """The model that ships with the package was trained on these very characters."""
    _, engine = run(workers, FULL, answer("Right", "Right"), answer("fly"), max_turns=3)
    response = "go </think><answer>{}</answer><|im_end|>\n"
    assert tokenizer("qwen").decode(engine.saw[2]) == (
        "<|im_start|>system\nYou're a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWalk to G.\nSymbols: P you, G goal.\n"
        'Actions: Left, Right. You can make up to 10 actions, separated by " || ".\n\n'
        f"Turn 1:\nState:\nP at 0, G at 99\nYou have 10 actions left. {FORM}<|im_end|>\n"
        f"<|im_start|>assistant\n<think>{response.format('Right||Right')}"
        "<|im_start|>user\nReward:\n-0.2\n\n"
        f"Turn 2:\nState:\nP at 2, G at 99\nYou have 8 actions left. {FORM}<|im_end|>\n"
        f"<|im_start|>assistant\n<think>{response.format('fly')}"
        "<|im_start|>user\nReward:\n0\n\n"
        f"Turn 3:\nState:\nP at 2, G at 99\nYou have 8 actions left. {FORM}<|im_end|>\n"
        "<|im_start|>assistant\n<think>"
    )


def test_the_prompt_of_a_single_turn(workers):
    context = SingleTurn(summary_turns=2)
    _, engine = run(workers, context, answer("Left"), answer("Right", "Right"), answer("fly"), max_turns=4)
    head = f"{Ragen().task(Walk())}\n\n"
    users = [tokenizer("qwen").decode(ids).split("<|im_start|>user\n")[1].split("<|im_end|>")[0] for ids in engine.saw]
    assert users == [
        f"{head}Turn 1:\nState:\nP at 0, G at 99\nYou have 10 actions left. {FORM}",
        f"{head}Your turns so far: 1\nTurn 1: Left, reward -0.1\n\n"
        f"Turn 2:\nState:\nP at -1, G at 99\nYou have 9 actions left. {FORM}",
        f"{head}Your turns so far: 2\nTurn 1: Left, reward -0.1\nTurn 2: Right || Right, reward -0.2\n\n"
        f"Turn 3:\nState:\nP at 1, G at 99\nYou have 7 actions left. {FORM}",
        f"{head}Your turns so far: 3, the last 2 of them\n"
        "Turn 2: Right || Right, reward -0.2\nTurn 3: no action, reward 0\n\n"
        f"Turn 4:\nState:\nP at 1, G at 99\nYou have 7 actions left. {FORM}",
    ]
    assert all(tokenizer("qwen").decode(ids).count("<|im_start|>assistant") == 1 for ids in engine.saw)


@pytest.mark.parametrize("context", [FULL, Window(window=1), Window(window=3), SINGLE])
def test_an_invalid_reply_is_explained_in_every_context(workers, context):
    _, engine = run(workers, context, answer("fly"), explain_invalid=True, max_turns=2)
    assert ["not valid" in tokenizer("qwen").decode(ids) for ids in engine.saw] == [False, True]
    _, engine = run(workers, context, answer("fly"), max_turns=2)
    assert not any("not valid" in tokenizer("qwen").decode(ids) for ids in engine.saw)


@given(actions=st.lists(st.text(max_size=400), max_size=3), shown=st.integers(1, 4), turns=st.integers(1, 6))
@example(actions=["x" * 2000], shown=1, turns=1)
def test_a_summary_is_short_whatever_was_done(actions, shown, turns):
    past = [Turn("s", [1], [2], executed=actions, reward=-0.1)] * turns
    lines = Ragen().summary(past, shown).split("\n")
    assert len(lines) == 1 + min(shown, turns)
    assert lines[0].startswith(f"Your turns so far: {turns}") and ("last" in lines[0]) == (shown < turns)
    assert [line.split(":")[0] for line in lines[1:]] == [f"Turn {i}" for i in range(turns - len(lines) + 2, turns + 1)]
    assert all(len(line) < ACTIONS_SHOWN + 60 and line.endswith(", reward -0.1") for line in lines[1:])


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [Window(window=2), SINGLE])
def test_a_prompt_that_is_too_long_ends_the_episode(workers, context):
    _, engine = run(workers, context, answer("Right"))
    sizes = [len(ids) for ids in engine.saw]
    assert sizes[0] < sizes[1]
    for prompt_length, turns in ((sizes[1] - 1, 1), (sizes[0] - 1, 0)):
        played, _ = run(workers, context, answer("Right"), limits=Limits(200, 20_000, prompt_length=prompt_length))
        assert (played.stop_reason, len(played.turns)) == (StopReason.CONTEXT_FULL, turns)
    played, _ = run(workers, context, answer("Right"), limits=Limits(200, max(sizes) + 200, prompt_length=max(sizes)))
    assert len(played.turns) == 5


def test_long_episodes_fit_where_the_full_history_does_not(workers):
    limits = Limits(200, 900)
    options = {"limits": limits, "max_turns": 100, "max_actions": 100}
    assert run(workers, FULL, answer("Right"), **options)[0].stop_reason is StopReason.CONTEXT_FULL
    for chosen in (Window(window=2), SINGLE):
        played, engine = run(workers, chosen, answer("Right"), env=Walk(goal=60), **options)
        assert played.success and len(rows_of(played)) == 60
        assert max(len(ids) for ids in engine.saw) < 700


# -- transition randomness --------------------------------------------------------------------------------------------


def test_a_shared_rng_starts_every_member_as_member_0(workers):
    for shared_rng, rollout_index in ((False, 1), (True, 0)):
        env = Walk()
        played, _ = run(workers, FULL, answer("Right"), env=env, shared_rng=shared_rng)
        assert env.log[0] == (3, {"rollout_index": rollout_index})
        assert played.rollout_index == 1


def test_a_shared_rng_makes_slips_the_same_in_a_group(workers):
    def states(member_rng: bool) -> set[str]:
        found = set()
        for rollout_index in range(6):
            env = make("FrozenLake-v0", size=8, frozen=1.0, success_rate=0.3)
            rules = Ragen(max_turns=1)
            words = tokenizer("qwen")
            episode = play(
                env, seed=5, rollout_index=rollout_index, protocol=rules, chat=chat_tokens("qwen", rules),
                generate=Engine([say(words, answer(*["Down", "Right"] * 2))]), limits=WIDE, workers=workers,
                shared_rng=not member_rng,
            )  # fmt: skip
            found.add(asyncio.run(episode).turns[0].observation)
        return found

    assert len(states(member_rng=False)) == 1 < len(states(member_rng=True))


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"window": 2}, "window is 2 but ragen.rollout.context is full"),
        ({"window": 2, "context": "single_turn"}, "set window to null"),
        ({"context": "window"}, "ragen.rollout.window is missing: rollout context window needs it"),
        ({"context": "window", "window": 0}, "ragen.rollout.window is 0 but has to be a whole number of 1 or more"),
        ({"context": "single_turn", "summary_turns": "all"}, "a whole number or null"),
        ({"context": "windwo"}, "is 'windwo', which is no rollout context: did you mean window"),
        ({"max_turn": 3}, "ragen.rollout.max_turn is not a key of ragen.rollout: did you mean max_turns"),
        ({"max_turn": None}, "ragen.rollout.max_turn is not a key of ragen.rollout: did you mean max_turns"),
        ({"summary_turns": 2}, "summary_turns is 2"),
        ({"context": "window", "window": 2, "summary_turns": 2}, "the context to single_turn"),
        ({"context": "window", "window": 2, "loss_on_env_tokens": True}, "no environment tokens"),
        ({"context": "single_turn", "loss_on_env_tokens": True}, "no environment tokens"),
    ],
)
def test_settings_without_an_effect_are_refused(keys, words):
    with pytest.raises(RecipeError, match=words) as refused:
        parse(Rollout, keys, "ragen.rollout")
    assert "\n" not in str(refused.value)


def test_settings_become_the_rule():
    def rule(**keys):
        return parse(Rollout, keys, "ragen.rollout").chat_context()

    assert rule() == FULL and not FULL.row_per_turn
    assert rule(context="window", window=3, summary_turns=None) == Window(window=3)
    assert rule(context="single_turn", summary_turns=2) == SingleTurn(summary_turns=2)
    assert rule(context="single_turn") == SingleTurn(summary_turns=5)


def test_context_of_a_plugin_shows_what_it_says(workers, monkeypatch):
    monkeypatch.setattr(CONTEXTS, "_things", dict(CONTEXTS._things))

    @context("reminder")
    class Reminder(Context):
        """The present state alone, behind a sentence."""

        def __init__(self, *, sentence: str = "Go on."):
            self.sentence = sentence

        def user(self, protocol, turns, state, actions_left):
            return f"{self.sentence} {state}"

    chosen = parse(Rollout, {"context": "reminder", "sentence": "Do not stop."}, "ragen.rollout").chat_context()
    played, engine = run(workers, chosen, answer("Right"))
    assert len(rows_of(played)) == len(played.turns) == 5
    for turn, ids in zip(played.turns[1:], engine.saw[1:], strict=True):
        assert f"\n\nDo not stop. {turn.state}<|im_end|>" in tokenizer("qwen").decode(ids)
    with pytest.raises(RecipeError, match="the context to reminder"):
        parse(Rollout, {"sentence": "Do not stop."}, "ragen.rollout")


@pytest.fixture(scope="module")
def recipe():
    register_resolvers()
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        config = compose("nano/frozen_lake")
    OmegaConf.set_struct(config, False)
    return config


def checked(recipe, **keys):
    """The recipe with these keys changed, `__` standing for the dots, through all checks before a start."""
    config = copy.deepcopy(recipe)
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return check(config)


NO_ENGINE_LOG_PROBS = {
    "algorithm__rollout_correction__bypass_mode": False,
    "actor_rollout_ref__rollout__calculate_log_probs": False,
}


def test_lengths_of_a_row_are_checked(recipe):
    window = {"ragen__rollout__context": "window", "ragen__rollout__window": 3}
    assert checked(recipe, **window).rollout.chat_context() == Window(window=3)
    with pytest.raises(RecipeError, match="holds 2 responses of up to 64 tokens"):
        checked(recipe, **window, data__max_prompt_length=128)
    with pytest.raises(RecipeError, match="64 tokens a turn, is more than the 63 of a row"):
        checked(recipe, **window, data__max_response_length=63)
    with pytest.raises(RecipeError, match="of a whole episode"):
        checked(recipe, data__max_response_length=63)


def test_a_loss_on_environment_tokens_needs_trainer_log_probs(recipe):
    on = {"ragen__rollout__loss_on_env_tokens": True}
    assert checked(recipe, **on, **NO_ENGINE_LOG_PROBS).rollout.loss_on_env_tokens
    for key in NO_ENGINE_LOG_PROBS:
        with pytest.raises(RecipeError, match=f"set {key.replace('__', '.')} to false"):
            checked(recipe, **on, **{**NO_ENGINE_LOG_PROBS, key: True})
    checked(recipe, **on, **NO_ENGINE_LOG_PROBS, algorithm__adv_estimator="turn_grpo")


# -- verl's rows ------------------------------------------------------------------------------------------------------


def outputs_of(played: Trajectory, **options) -> list[dict]:
    engine = SimpleNamespace(steps={"min_global_steps": 3, "max_global_steps": 4})
    return [output.as_dict() for output in to_outputs(played, engine, filler=9, **options)]


@pytest.mark.parametrize("context", [FULL, Window(window=2), SINGLE])
def test_rows_carry_their_turns_rewards_and_the_first_the_record(workers, context):
    played, _ = run(workers, context, answer("Right"), answer("fly"), env=Walk(goal=3))
    rows = outputs_of(played)
    assert [row["extra_fields"]["turns"] for row in rows] == (
        [[1], [2], [3], [4], [5]] if rows[1:] else [[1, 2, 3, 4, 5]]
    )
    ends = [[len(turn.response_ids) - 1] for turn in played.turns]
    assert not rows[1:] or [row["extra_fields"]["turn_ends"] for row in rows] == ends
    record = json.dumps(played.record(), ensure_ascii=False)
    assert [row["extra_fields"][RECORD] for row in rows] == [record, *[""] * (len(rows) - 1)]
    held_out = outputs_of(played, held_out=True)
    assert all(row["extra_fields"]["reward_extra_info"] == {RECORD: record} for row in held_out)
    assert sum(float(row["rm_scores"].sum()) for row in rows) == pytest.approx(played.ret)
    assert all(row["num_turns"] == 5 for row in rows)
    for row in rows:
        length = len(row["responses"])
        assert all(len(row[key]) == length for key in ("response_mask", "rm_scores", "rollout_log_probs"))
    assert rows[0].keys() == outputs_of(Trajectory("Walk-v0", 3, 2, stop_reason=StopReason.ENV_ERROR))[0].keys()


def test_log_probs_are_left_out_of_every_row_or_of_none(workers):
    played, _ = run(workers, FULL, answer("Right"))
    (row,) = outputs_of(played, log_probs=False, loss_on_env_tokens=True)
    (failed,) = outputs_of(Trajectory("Walk-v0", 3, 2, stop_reason=StopReason.ENV_ERROR), log_probs=False)
    assert "rollout_log_probs" not in row and row.keys() == failed.keys()
    assert row["response_mask"].all() and not failed["response_mask"].any()


def test_a_held_out_trajectory_counts_once_with_all_its_return(workers, tmp_path):
    played, _ = run(workers, Window(window=1), answer("Right"), env=Walk(goal=3))
    failed = Trajectory("Walk-v0", 4, 0, stop_reason=StopReason.ENGINE_ERROR)
    # what verl hands over: of each session the last row, whose score is that of the last turn alone
    last = [outputs_of(one, held_out=True)[-1] for one in (played, failed)]
    trainer = trainer_of(tmp_path, "ragen.train.seed=10", "ragen.val.seed=3", "trainer.log_val_generations=0")
    trainer.validation_generations_logger, trainer.global_steps = None, 5
    infos = {
        "reward": [float(row["rm_scores"].sum()) for row in last],
        RECORD: [row["extra_fields"]["reward_extra_info"][RECORD] for row in last],
    }
    metrics = trainer._val_metrics_update(["Walk", "Walk"], ["a", "b"], infos, [3, 0], expected_acc_counts={})
    assert len(played.turns) == 3 and played.ret == pytest.approx(10.7)
    assert metrics["val-env/return"] == pytest.approx(10.7) and metrics["val-env/Walk/turns"] == 3
    assert metrics["val-core/Walk/reward/mean@1"] == pytest.approx(10.7 / 2)
    lines = (tmp_path / "trajectories" / "val" / "000005.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [3, 4]
