"""A model behind an API that misbehaves: what comes back is retried, recorded and never scored."""

from __future__ import annotations

import psutil
import pytest
from endpoint import FAULTS, endpoint
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.runner import evaluate
from ragen_lab.evaluate.summary import markdown, remarks, results
from test_runner import LENGTHS, recipe
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError

ANSWER = "<think>straight down</think><answer>Down</answer>"


def play(url: str, folder, max_turns: int = 2, **sampling) -> list[dict]:
    ragen = recipe(max_turns=max_turns)
    policy = Endpoint("m", url, Sampling(**{"retries": 0, "timeout": 5.0, **sampling}))
    return evaluate(ragen, policy, episodes(ragen, states=3), folder, lengths=LENGTHS, settings={})


def test_messages_are_those_of_the_protocol(tmp_path):
    with endpoint(ANSWER) as (url, requests):
        records = play(url, tmp_path, concurrency=1, temperature=0.3)
    first, second = requests[:2]
    assert [one["role"] for one in first["messages"]] == ["system", "user"]
    assert [one["role"] for one in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == ANSWER and second["messages"][:2] == first["messages"]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.3, 400)
    assert records[0]["turns"][0]["executed"] == ["Down"] and records[0]["turns"][0]["reasoning"] == "straight down"
    assert records[0]["usage"]["completion_tokens"] == 7 * len(records[0]["turns"])


def test_seeds_of_requests_follow_from_the_episode(tmp_path):
    seeds = []
    for name in "ab":
        with endpoint(ANSWER) as (url, requests):
            play(url, tmp_path / name, concurrency=4)
        seeds.append(sorted(one["seed"] for one in requests))
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])


@pytest.mark.parametrize("fault", ["429", "500", "closed", "slow", "garbage", "half", "no choices"])
def test_a_refused_request_is_made_again(tmp_path, fault):
    with endpoint(ANSWER, fault, fault) as (url, _):
        records = play(url, tmp_path, retries=3, concurrency=1, timeout=0.5)
    assert not any(one["excluded"] for one in records)


def test_the_pause_after_429_is_the_servers(tmp_path):
    with endpoint(ANSWER, "429", retry_after="1.5") as (url, requests):
        play(url, tmp_path, retries=1, concurrency=1)
    first, second = requests[:2]
    assert second["messages"] == first["messages"] and second["time"] - first["time"] >= 1.5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_request_excludes_its_episode_alone(tmp_path, fault):
    with endpoint(ANSWER, fault) as (url, _):
        records = play(url, tmp_path, concurrency=1, timeout=0.5 if fault == "slow" else 5.0)
    assert [one["stop_reason"] == "engine_error" for one in records] == [True, *[False] * (len(records) - 1)]
    assert records[0]["error"]
    found = results({"m": records})["policies"]["m"]["val/FrozenLake"]
    assert (found["excluded"], found["states"]) == (1, 2)
    with endpoint(ANSWER) as (url, requests):
        again = play(url, tmp_path, concurrency=1)
    assert not any(one["excluded"] for one in again) and 1 <= len(requests) <= 2, "only the failed one is played"


def test_a_server_that_is_not_there_is_said_once(tmp_path):
    with pytest.raises(RecipeError, match=r"No server answers at http://127\.0\.0\.1:9/v1/"):
        play("http://127.0.0.1:9/v1", tmp_path)


def test_connections_are_closed_at_the_end(tmp_path):
    with endpoint(ANSWER) as (url, _):
        policy = Endpoint("m", url, Sampling())
        for name in "ab":
            evaluate(recipe(), policy, episodes(recipe()), tmp_path / name, lengths=LENGTHS, settings={})
            open_now = [
                one.raddr.port for one in psutil.Process().net_connections() if one.raddr and one.status != "TIME_WAIT"
            ]
            assert int(url.split(":")[2].partition("/")[0]) not in open_now


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405])
def test_the_first_refusal_of_everything_ends_it(tmp_path, status):
    with (
        endpoint(lambda body: (status, {"message": "no such thing"})) as (url, requests),
        pytest.raises(RecipeError, match=f"m cannot be asked at .*{status}.*no such thing"),
    ):
        play(url, tmp_path, concurrency=2)
    assert len(requests) <= 2, "those at the same time"
    assert not (tmp_path / "episodes.jsonl").read_text()


SAID = {
    "parts": {"content": [{"type": "text", "text": "<think>down</think>"}, {"type": "text", "text": ANSWER[-21:]}]},
    "reasoning_content": {"content": "<answer>Down</answer>", "reasoning_content": "down"},
    "reasoning": {"content": "<answer>Down</answer>", "reasoning": "down"},
    "all of it in the thoughts": {"content": None, "reasoning_content": "down</think><answer>Down</answer>"},
    "thoughts without tags": {"content": "down\n<answer>Down</answer>"},
    "thoughts that are not closed": {"content": "<think>down <answer>Down</answer>"},
    "a tag that the template wrote": {"content": "down</think><answer>Down</answer>"},
    "no thoughts": {"content": "<answer>Down</answer>"},
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_answers_are_read_wherever_a_server_puts_them(tmp_path, said):
    with endpoint(said) as (url, requests):
        records = play(url, tmp_path, concurrency=1)
    assert all(turn["executed"] == ["Down"] and turn["valid"] for one in records for turn in one["turns"])
    thoughts = {turn["reasoning"] for one in records for turn in one["turns"]}
    assert thoughts == ({"down"} if said != SAID["no thoughts"] else {""})
    later = [one for one in requests if len(one["messages"]) == 4]
    assert later and all("<answer>Down</answer>" in one["messages"][2]["content"] for one in later)
    assert all(one["messages"][2]["content"].startswith("<think>") for one in later), "as in training"


@pytest.mark.parametrize("content", [None, "", 7, {"text": "x"}, ["x", 3], [{"type": "image"}]])
def test_an_answer_without_text_is_an_invalid_turn(tmp_path, content):
    with endpoint({"content": content}) as (url, _):
        records = play(url, tmp_path)
    assert not any(one["excluded"] or turn["valid"] for one in records for turn in one["turns"])


def refusing(*names, message="Unsupported parameter: {0!r} is not supported with this model.", status=400, param=True):
    def answer(body):
        for name in names:
            if name in body:
                return status, {"message": message.format(name), **({"param": name} if param else {})}
        return ANSWER

    return answer


@pytest.mark.parametrize("concurrency", [1, 8])
def test_what_a_server_refuses_is_left_out(tmp_path, concurrency):
    with endpoint(refusing("max_tokens", "temperature", "seed")) as (url, requests):
        records = play(url, tmp_path, concurrency=concurrency)
    assert not any(one["excluded"] for one in records)
    assert (
        not {"max_tokens", "temperature", "seed"} & set(requests[-1]) and requests[-1]["max_completion_tokens"] == 400
    )
    (told,) = remarks(results({"m": records}))
    assert told == "m: its server refuses max_tokens, seed, temperature, so it was asked without."


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_in_words_alone_is_understood(tmp_path, status):
    answer = refusing("seed", message="body.{0}: Extra inputs are not permitted", status=status, param=False)
    with endpoint(answer) as (url, _):
        assert not any(one["excluded"] for one in play(url, tmp_path))


def test_another_refusal_fails_its_episode_alone(tmp_path):
    with endpoint(lambda body: (400, {"message": "The temperature is too high."})) as (
        url,
        requests,
    ):
        records = play(url, tmp_path)
    assert all(one["stop_reason"] == "engine_error" for one in records) and len(requests) == len(records)


@pytest.mark.parametrize(
    "said",
    [
        "'max_tokens' is too large: 400. This model's maximum context length is 256 tokens.",
        "max_tokens=400 cannot be greater than max_model_len=256. Please request fewer output tokens.",
        "max_tokens: 400 > 256, which is the maximum allowed number of output tokens",
        "Requested token count exceeds the model's maximum context length of 256 tokens.",
        "the request exceeds the available context size (256 tokens)",
    ],
)
def test_more_than_fits_beside_a_prompt_is_not_asked_for(tmp_path, said):
    with endpoint(lambda body: (400, {"message": said}) if "max_tokens" in body else ANSWER) as (url, _):
        assert not any(one["excluded"] for one in play(url, tmp_path))


TOO_LONG = {
    "vLLM": (400, "This model's maximum context length is 256 tokens. However, your prompt contains 300 tokens."),
    "vLLM's engine": (400, "The decoder prompt (length 300) is longer than the maximum model length of 256."),
    "Anthropic": (400, "prompt is too long: 300 tokens > 256 maximum"),
    "TGI": (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 256: inputs too long"),
    "llama.cpp": (400, "the request exceeds the available context size. try increasing the context size"),
    "a proxy": (413, "Request Entity Too Large: the request is too large"),
    "by code": (400, {"message": "Please shorten.", "code": "context_length_exceeded"}),
}


@pytest.mark.parametrize("server", TOO_LONG)
def test_a_conversation_longer_than_the_context_ends_its_episode(tmp_path, server):
    status, said = TOO_LONG[server]
    error = said if isinstance(said, dict) else {"message": said}
    with endpoint(lambda body: (status, error) if len(body["messages"]) > 3 else "<answer>none</answer>") as (url, _):
        records = play(url, tmp_path, max_turns=4)
    assert {(one["stop_reason"], one["excluded"], len(one["turns"])) for one in records} == {("context_full", False, 1)}
    found = results({"m": records})
    assert all("success" in one for one in found["policies"]["m"].values())
    assert "the model's context was full" in remarks(found)[0]


def test_another_value_that_is_too_large_is_no_full_context(tmp_path):
    with endpoint(lambda body: (400, {"message": "The temperature 2.5 is too large."})) as (url, _):
        assert {one["stop_reason"] for one in play(url, tmp_path)} == {"engine_error"}


def test_no_credit_left_ends_it(tmp_path):
    quota = {"message": "You exceeded your current quota.", "code": "insufficient_quota"}
    with (
        endpoint(lambda body: (429, quota)) as (url, requests),
        pytest.raises(RecipeError, match="has no credit left"),
    ):
        play(url, tmp_path, concurrency=1, retries=0)
    assert len(requests) == 1


BROKEN = {
    "a choice that is null": {"choices": [None]},
    "a choice without a message": {"choices": [{"index": 0}]},
    "a message that is text": {"choices": [{"index": 0, "message": "x"}]},
    "choices that are null": {"choices": None},
    "a list": [],
    "an error with 200": {"error": {"message": "overloaded"}},
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_reply_of_another_form_is_asked_for_again(tmp_path, body):
    with endpoint(ANSWER, body) as (url, requests):
        records = play(url, tmp_path, concurrency=1, retries=1)
    assert not any(one["excluded"] for one in records)
    assert len(requests) == 1 + sum(len(one["turns"]) for one in records)


@pytest.mark.parametrize(("finish", "told"), [("length", "were cut"), ("content_filter", "were stopped")])
def test_how_responses_ended_is_counted(tmp_path, finish, told):
    with endpoint(ANSWER, finish=finish) as (url, requests):
        found = results({"m": play(url, tmp_path)})
    counts = [one["finishes"] for one in found["policies"]["m"].values()]
    assert sum(one[finish] for one in counts) == len(requests) and all(set(one) == {finish} for one in counts)
    assert f"of {counts[0][finish]} responses {counts[0][finish]} {told}" in remarks(found)[0]
    with endpoint({"content": None, "refusal": "I cannot."}) as (url, _):
        found = results({"m": play(url, tmp_path / "refusing")})
    assert set(found["policies"]["m"]["val/FrozenLake"]["finishes"]) == {"refusal"}


def test_episodes_that_failed_do_not_change_k(tmp_path):
    ragen = recipe(max_turns=1)
    with endpoint(ANSWER, "500") as (url, _):
        policy = Endpoint("m", url, Sampling(retries=0, concurrency=1))
        plan = [one for one in episodes(ragen, samples=2, states=3) if one.env == "FrozenLake"]
        records = evaluate(ragen, policy, plan, tmp_path, lengths=LENGTHS, settings={})
    one = results({"m": records})["policies"]["m"]["val/FrozenLake"]
    whole = [record["success"] for record in records[2:]]
    assert (one["k"], one["excluded"], one["episodes"]) == (2, 1, 6)
    assert one["mean@k"] == sum(whole) / 4
    assert one["pass@k"] == sum(any(whole[i : i + 2]) for i in (0, 2)) / 2
    assert "5 of 6" in markdown(results({"m": records}), "title")


def evaluated(*args):
    options = ("--states", "2", "--retries", "0", "ragen.rollout.max_turns=1")
    return CliRunner().invoke(app, ["eval", "nano/frozen_lake", *options, *map(str, args)], env={"COLUMNS": "240"})


def test_the_exit_code_says_whether_all_was_played(tmp_path):
    with endpoint(lambda body: (500, {"message": "out of order"})) as (url, _):
        told = evaluated("--policy", f"api:m@{url}", "--out", tmp_path)
    assert told.exit_code == 1 and "0 of 2" in told.stdout and "out of order" in told.stdout, told.output
    with endpoint(ANSWER) as (url, requests):
        told = evaluated("--policy", f"api:m@{url}", "--out", tmp_path)
    assert told.exit_code == 0 and "2 of 2" in told.stdout and "failed" not in told.stdout, told.output
    assert requests[0]["max_tokens"] == 4096, "not what the nano model gets"
    with endpoint(lambda body: (401, {"message": "no key"})) as (url, _):
        told = evaluated("--policy", f"api:m@{url}", "--out", tmp_path / "other")
    assert told.exit_code == 2 and "without a key" in told.output
    assert "no key" in told.output and "Traceback" not in told.output
    assert evaluated("--policy", "random", "--response-length", "9", "--out", tmp_path / "r").exit_code == 2


def test_openai_without_a_key_is_refused(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RecipeError, match="set OPENAI_API_KEY"):
        Endpoint("gpt-4o")
