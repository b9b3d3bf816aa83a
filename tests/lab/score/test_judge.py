"""A judge behind a real HTTP server: strict answers, retries, each trajectory asked about once."""

from __future__ import annotations

import json

import pytest
from endpoint import FAULTS, endpoint
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.score.judge import SCHEMA, read
from ragen_lab.score.registry import run
from saved_episodes import plan, played

from ragen_verl.errors import RecipeError

GOOD = json.dumps({"score": 0.75, "reason": "it arrived"})


def three():
    return [played([plan(seed=seed)], seed=seed, thoughts=["on"]) for seed in (123, 124, 125)]


def judged(url, cache=None, trajectories=None, **options):
    found = trajectories or three()
    given = {"model": "m", "url": url, "retries": 0, "timeout": 5.0, "concurrency": 1, **options}
    run(found, ["judge"], {"judge": given if cache is None else {**given, "cache": str(cache)}})
    return [one.scores["judge"] for one in found]


def test_a_judge_sees_what_happened_and_not_the_reward():
    with endpoint(GOOD) as (url, requests):
        assert judged(url, rubric="Be kind.") == [0.75] * 3
    (system, user), one = requests[0]["messages"], three()[0]
    assert system["content"].startswith("Be kind.") and '"score"' in system["content"]
    for part in (one.turns[0]["state"], one.turns[0]["observation"], *plan(seed=123), one.record["preamble"]["head"]):
        assert part in user["content"]
    assert "reward" not in user["content"].casefold() and "1.0" not in user["content"]
    assert requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA
    with endpoint(GOOD) as (url, requests):
        judged(url, schema=False)
    assert "response_format" not in requests[0]


def test_each_trajectory_is_asked_about_once(tmp_path):
    cache = tmp_path / "deep" / "judgements.jsonl"
    with endpoint(GOOD) as (url, requests):
        judged(url, cache)
        assert judged(url, cache) == [0.75] * 3 and len(requests) == 3
        judged(url, cache, rubric="Another one.")
        assert len(requests) == 6, "another rubric is another question"
    with cache.open("a") as file:
        file.write('{"key": "x", "sco')
    assert judged("http://127.0.0.1:9/v1", cache) == [0.75] * 3, "nobody has to be there"


@pytest.mark.parametrize(
    "bad",
    [
        "Well done!",
        "```json\n" + GOOD + "\n```",
        '{"score": 2, "reason": "x"}',
        '{"score": true, "reason": "x"}',
        '{"score": NaN, "reason": "x"}',
        '{"score": "0.5", "reason": "x"}',
        '{"score": 0.5}',
        '{"score": 0.5, "reason": null}',
        '{"score": 0.5, "reason": "x", "more": 1}',
        "[0.5]",
        "",
    ],
)
def test_an_answer_of_another_form_is_asked_for_again(bad):
    answers = [bad, GOOD, GOOD, GOOD]
    with endpoint(lambda body: answers.pop(0)) as (url, requests):
        assert judged(url) == [0.75] * 3
    assert len(requests) == 4 and requests[0]["seed"] != requests[1]["seed"]


def test_a_judge_that_never_keeps_to_the_form_is_an_error(tmp_path):
    with endpoint("no") as (url, requests), pytest.raises(RecipeError, match=r"no judgement of 3 trajectories.*'no'"):
        judged(url, tmp_path / "cache", attempts=2)
    assert len(requests) == 6 and not (tmp_path / "cache").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_request_leaves_one_trajectory_unscored(tmp_path, fault):
    cache, timeout = tmp_path / "cache", 0.5 if fault == "slow" else 5.0
    with endpoint(GOOD, fault) as (url, _):
        found = judged(url, cache, timeout=timeout, attempts=1)
    assert sorted(found, key=str) == [0.75, 0.75, None]
    with endpoint(GOOD) as (url, _):
        assert judged(url, cache) == [0.75] * 3, "what is missing is asked for by the next call"


@pytest.mark.parametrize("fault", ["429", "500", "closed", "slow"])
def test_a_refused_judgement_is_asked_for_again(fault):
    with endpoint(GOOD, fault, fault) as (url, _):
        assert judged(url, retries=3, timeout=0.5) == [0.75] * 3


def test_no_endpoint_is_one_sentence():
    with pytest.raises(RecipeError, match="No server answers at"):
        judged("http://127.0.0.1:9/v1")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
)


@given(JSON | st.fixed_dictionaries({"score": JSON, "reason": JSON}))
def test_only_a_judgement_is_read_as_one(answer):
    try:
        found = read(json.dumps(answer))
    except ValueError:
        return
    assert found == answer and 0 <= found["score"] <= 1 and isinstance(found["reason"], str)
