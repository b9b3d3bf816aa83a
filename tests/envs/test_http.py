"""Requests of environments to a server, over real HTTP; the tests of SearchQA and TwentyQuestions have more."""

from __future__ import annotations

import os

import pytest
from json_server import serve
from ragen_envs.common.http import post_json

from ragen_verl.env.http import client


def test_any_text_a_model_can_write_arrives() -> None:
    with serve(lambda path, headers, body: (200, body)) as url:
        body = {"query": 'half a pair \ud800, "quotes"\x00 and \u2028'}
        assert post_json(url, body, timeout=5, retries=0) == body


@pytest.mark.parametrize("reply", ["[" * 100_000, "\xff{", "", '{"a": 1'])
def test_an_answer_that_is_no_json_is_an_error(reply: str) -> None:
    with serve(lambda path, headers, body: (200, reply)) as url, pytest.raises(ConnectionError, match=url):
        post_json(url, {}, timeout=5, retries=0)


def test_a_token_is_sent_and_none_where_there_is_none() -> None:
    seen = []
    with serve(lambda path, headers, body: (200, seen.append(headers.get("Authorization")))) as url:
        post_json(url, {}, timeout=5, retries=0, token="sesame")
        post_json(url, {}, timeout=5, retries=0)
    assert seen == ["Bearer sesame", None]


def test_an_address_that_is_none_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="check that the server runs"):
        post_json("http://[", {}, timeout=5, retries=0)


def test_a_forked_process_has_no_connection_of_its_parent() -> None:
    client()
    child = os.fork()
    if child == 0:
        os._exit(client.cache_info().currsize)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
