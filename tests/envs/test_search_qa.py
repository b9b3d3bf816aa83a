"""SearchQA: the invented country, any JSONL corpus, and a retrieval server over real HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from environment_contract import check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from json_server import serve
from ragen_envs.common import shared
from ragen_envs.common.lines import parse_call, sanitise
from ragen_envs.search_qa import env as search_qa
from ragen_envs.search_qa.env import exact_match, f1
from ragen_envs.search_qa.fictional_world import world
from ragen_lab.checker.texts import HOSTILE

from ragen_verl import make
from ragen_verl.errors import MissingExtra, RecipeError


def test_contract():
    check_contract("SearchQA-v0")
    check_contract("SearchQA-v0", split="val", reward="f1", results=1)


# -- the invented country ---------------------------------------------------------------------------------------------


def test_every_question_is_answered_by_the_passages_it_names():
    passages, questions = world()
    pages = dict(passages)
    assert len(pages) == len(passages) and len({asked.question for asked in questions}) == len(questions) >= 1000
    for asked in questions:
        assert asked.hops[0] in asked.question and asked.answers[0] in pages[asked.hops[-1]]
        assert asked.answers[0] not in asked.question
        if len(asked.hops) == 2:  # the first page names the second, and does not give the answer away
            assert asked.hops[1] in pages[asked.hops[0]]
    assert sum(len(asked.hops) == 2 for asked in questions) > 300


def test_the_country_is_the_same_in_every_process():
    code = "from ragen_envs.search_qa.fictional_world import world; print(hash(str(world())))"
    run = [sys.executable, "-c", code]
    env = {"PYTHONHASHSEED": "7"}
    outputs = {subprocess.run(run, capture_output=True, text=True, env=env, timeout=60).stdout for _ in range(2)}
    assert len(outputs) == 1 and outputs != {""}


def test_splits_share_no_question():
    spans = {split: set(search_qa._numbers(1050, split)) for split in ("train", "val", "all")}
    assert spans["train"] | spans["val"] == spans["all"] == set(range(1050)) and not spans["train"] & spans["val"]
    env, seen = make("SearchQA-v0", split="val"), set()
    for seed in range(100):
        env.reset(seed=seed)
        seen.add(env._number)
    assert seen <= spans["val"] and len(seen) > 60


def test_the_oracle_reads_first_and_chance_rarely_hits():
    env, rng, hits = make("SearchQA-v0"), np.random.default_rng(0), 0
    for seed in range(100):
        env.reset(seed=seed)
        *searches, finish = env.oracle()
        for action in searches:
            step = check_step(env, action)
        shown = step.observation.partition("Results for")[2]
        assert env.question.answers[0] in shown and len(searches) + 1 <= env.max_actions
        assert check_step(env, finish).reward == 1.0
        env.reset(seed=seed)
        hits += any(env.step(env.random_action(rng)).info["success"] for _ in range(env.max_actions))
    assert hits < 20


# -- actions and grades -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("search[red shoes]", ("search", "red shoes")),
        ("  Search [ red\nshoes ]  ", ("search", "red shoes")),
        ("<search> red shoes </search>", ("search", "red shoes")),
        ("<ANSWER>x</answer>", ("answer", "x")),
        ("finish[a [b] c]", ("finish", "a [b] c")),
        ("finish[]", ("finish", "")),
        ("finish[a] or b", None),
        ("finish[a", None),
        ("<search>a</answer>", None),
        ("buy[a]", None),
        ("ｓearch[a]", None),
        ("search［a］", None),
        ("red shoes", None),
        ("", None),
    ],
)
def test_forms_of_actions(text, call):
    assert parse_call(text, ("search", "finish", "answer")) == call


@settings(max_examples=100, deadline=None)
@given(text=st.text(), limit=st.integers(3, 50))
def test_cleaned_text_is_one_short_line(text, limit):
    line = sanitise(text, limit)
    assert len(line) <= limit and len(line.splitlines()) <= 1 and line == line.strip()
    line.encode()  # no lone surrogates


@pytest.mark.parametrize(
    ("answer", "true", "exact", "score"),
    [
        ("The Ivel.", "ivel", True, 1.0),
        ("Greta Vesman", "Greta Vesman", True, 1.0),
        ("Greta", "Greta Vesman", False, 2 / 3),
        ("it is Greta Vesman I think", "Greta Vesman", False, 0.5),
        ("yes it is", "yes", False, 0.0),
        ("Bruno", "Greta Vesman", False, 0.0),
        ("a", "b", False, 0.0),
    ],
)
def test_grades_are_those_of_squad(answer, true, exact, score):
    assert exact_match(answer, true) is exact and f1(answer, true) == pytest.approx(score)


@pytest.mark.parametrize(
    ("reward", "paid", "success"),
    [
        ("threshold", (1.0, 1.0, 0.0), (1, 1, 0)),
        ("released", (1.0, 2 / 3, 0.0), (1, 1, 0)),
        ("em", (1.0, 0.0, 0.0), (1, 0, 0)),
        ("f1", (1.0, 2 / 3, 0.0), (1, 1, 0)),
    ],
)
def test_what_answers_earn(reward, paid, success):
    env = make("SearchQA-v0", reward=reward, split="all")
    seed = next(seed for seed in range(999) if env.reset(seed=seed) and len(env.question.answers[0].split()) == 2)
    for answer, earned, won in zip(
        (env.question.answers[0], env.question.answers[0].split()[0], "no"), paid, success, strict=True
    ):
        env.reset(seed=seed)
        step = check_step(env, f"<answer>{answer}</answer>")
        assert step.terminated and step.reward == pytest.approx(earned) and step.info["success"] == won
        assert step.info["exact_match"] == float(answer == env.question.answers[0])


def test_below_the_threshold_only_f1_pays():
    for reward, paid in (("released", 0.0), ("threshold", 0.0), ("f1", 2 / 3)):
        env = make("SearchQA-v0", reward=reward, split="all", f1_threshold=0.7)
        seed = next(seed for seed in range(999) if env.reset(seed=seed) and len(env.question.answers[0].split()) == 2)
        env.reset(seed=seed)
        step = check_step(env, f"finish[{env.question.answers[0].split()[0]}]")
        assert step.reward == pytest.approx(paid) and not step.info["success"]


def test_a_text_that_is_no_action_is_no_answer():
    env = make("SearchQA-v0")
    env.reset(seed=0)
    step = check_step(env, env.question.answers[0])
    assert not step.terminated and not step.info["action_is_valid"]


def test_ten_actions_are_the_limit():
    env = make("SearchQA-v0")
    env.reset(seed=0)
    steps = [check_step(env, f"search[{word}]") for word in "abcdefghij"]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


def test_results_have_the_lengths_of_the_reference(tmp_path):
    files = corpus(tmp_path, [{"text": f"word {number} " + "x" * 5000} for number in range(9)], [QUESTION])
    env = make("SearchQA-v0", **files)
    env.reset(seed=0)
    lines = check_step(env, "search[word]").observation.splitlines()[2:]
    assert len(lines) == 5 and max(map(len, lines)) <= 804 and sum(map(len, lines)) <= 4000


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(st.text(max_size=30) | st.sampled_from(HOSTILE[:9]), max_size=5))
def test_no_text_breaks_a_step(actions):
    env = make("SearchQA-v0")
    env.reset(seed=0)
    for text in actions:
        for action in (text, f"search[{text}]", f"<search>{text}</search>"):
            check_step(env, action)


# -- files ------------------------------------------------------------------------------------------------------------

QUESTION = {"question": "Who?", "answer": "Me"}


def corpus(folder, passages, questions) -> dict[str, str]:
    """Write both files; return the arguments that name them."""
    for name, lines in (("corpus", passages), ("questions", questions)):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    return {"corpus": str(folder / "corpus.jsonl"), "questions": str(folder / "questions.jsonl"), "split": "all"}


def test_any_corpus_and_the_usual_names_of_fields(tmp_path):
    passages = [
        {"id": 0, "contents": '"Nile"\nThe Nile is a river.'},
        {"title": "Rhône", "text": "A river with <b>tags</b> and\u0000 noise."},
        "",
        {"content": "Nothing of interest."},
    ]
    questions = [
        {"question": "Which river has tags?", "golden_answers": ["Rhône", "the Rhône"]},
        {"question": "Which river is a river?", "ground_truth": "Nile", "id": 7},
    ]
    env = make("SearchQA-v0", **corpus(tmp_path, passages, questions))
    seen = set()
    for seed in range(20):
        seen.add(env.reset(seed=seed)[0])
        steps, reward = play_oracle(env)
        assert reward == 1.0 and len(steps) == 2
        env.reset(seed=seed)
        assert "[1] Rhône: A river with <b>tags</b> and noise." in check_step(env, "search[tags]").observation
        assert check_step(env, "search[qqq]").observation.endswith("Nothing was found.")
    assert seen == {"Question: Which river has tags?", "Question: Which river is a river?"}


@pytest.mark.parametrize(
    ("passages", "questions", "message"),
    [
        (["{"], [QUESTION], "Line 1 of SearchQA's corpus .* is no JSON"),
        ([{"title": "x"}], [QUESTION], "none of text, contents, content"),
        ([{"text": "x"}], [{"question": "x"}], "none of answers"),
        ([{"text": "x"}], ["", "[3]"], "none of answers"),
        ([{"text": "x"}], [], "too few"),
        ([], [QUESTION], "no passage"),
    ],
)
def test_files_that_cannot_work_are_named(tmp_path, passages, questions, message):
    with pytest.raises(RecipeError, match=message):
        make("SearchQA-v0", **corpus(tmp_path, passages, questions))


# -- a server ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["results", "result"])
def test_a_retrieval_server_is_asked(format):
    seen = []

    def answer(path, headers, body):
        seen.append((path, body))
        found = [f"passage {number} for {body['query']}" for number in range(9)]
        if format == "results":
            return 200, {"results": [{"id": "x", "content": text, "score": 0.5} for text in found]}
        return 200, {"result": [[{"document": {"contents": text}, "score": 0.5} for text in found]]}

    with serve(answer) as url:
        env = make("SearchQA-v0", url=f"{url}/retrieve", results=2, retries=0)
        env.reset(seed=0)
        step = check_step(env, "search[bl\u00fce]")
    assert step.observation.endswith("[1] passage 0 for bl\u00fce\n[2] passage 1 for bl\u00fce")
    assert seen[0][0] == "/retrieve" and len(seen) == 1
    assert (seen[0][1]["query"], seen[0][1]["top_k"]) == ("bl\u00fce", 2)
    assert (seen[0][1]["queries"], seen[0][1]["topk"]) == (["bl\u00fce"], 2)


def test_a_failing_server_is_asked_again():
    failures = iter([(503, "down"), (200, "{ no json"), (429, "slow down")])

    def answer(path, headers, body):
        return next(failures, (200, {"results": [{"content": "at last"}]}))

    with serve(answer) as url:
        env = make("SearchQA-v0", url=url, retries=3)
        env.reset(seed=0)
        assert "at last" in check_step(env, "search[x]").observation


@pytest.mark.parametrize(
    ("reply", "asked"),
    [((500, "down"), 2), ((404, "no such page"), 1), ((200, {"hits": []}), 1), ((200, [1]), 1), ((200, "{"), 2)],
)
def test_a_server_without_an_answer_is_an_error_not_a_score(reply, asked):
    seen = []

    def answer(path, headers, body):
        seen.append(body)
        return reply

    with serve(answer) as url:
        env = make("SearchQA-v0", url=url, retries=1)
        env.reset(seed=0)
        with pytest.raises(ConnectionError, match=url):
            env.step("search[x]")
    assert len(seen) == asked


def test_a_server_that_hangs_or_is_not_there_is_given_up():
    def answer(path, headers, body):
        time.sleep(0.5)
        return 200, {"results": []}

    with serve(answer) as url:
        env = make("SearchQA-v0", url=url, timeout=0.05, retries=0)
        env.reset(seed=0)
        with pytest.raises(ConnectionError, match="timed out"):
            env.step("search[x]")
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        env = make("SearchQA-v0", url=f"http://127.0.0.1:{reserved.getsockname()[1]}", retries=0)
        env.reset(seed=0)
        with pytest.raises(ConnectionError, match="check that the server runs"):
            env.step("search[x]")


# -- arguments --------------------------------------------------------------------------------------------------------


def test_a_missing_library_is_named_and_a_server_needs_none(monkeypatch):
    shared.forget()
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtra, match=r'pip install "ragen-verl\[search\]"'):
        make("SearchQA-v0")
    make("SearchQA-v0", url="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"split": "test"}, "split"),
        ({"results": 0}, "results"),
        ({"results": True}, "results"),
        ({"reward": "acc"}, "reward"),
        ({"f1_threshold": 0}, "f1_threshold"),
        ({"url": "localhost:8000"}, "http"),
        ({"url": "http://x", "corpus": "x"}, "leave out one"),
        ({"corpus": "x"}, "together"),
        ({"corpus": "missing", "questions": "missing"}, "no file"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(RecipeError, match=message):
        make("SearchQA-v0", **kwargs)
