"""Chats of episodes with tools: calls and results as data, in the columns that TRL reads."""

from __future__ import annotations

from ragen_lab.convert.chats import sft
from tool_templates import HERMES, tokenizer

from ragen_verl.env.calls import called, said, unread
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}]


def turn(user: str, text: str, *actions: tuple[str, dict]) -> Turn:
    infos = [{"call": {"result": "", "error": "", "name": None, "arguments": None, **call}} for _, call in actions]
    done = [action for action, _ in actions]
    return Turn("", [1], [2], text=text, actions=done, executed=done, infos=infos, seconds=[0.1] * len(done), user=user)


def test_calls_and_results_are_messages_of_their_own():
    call = {"name": "look", "arguments": {"box": "red"}, "result": "Empty."}
    turns = [
        turn(
            "Boxes.", "<tool_call>1</tool_call>", (called("look", box="red"), call), (called("look", box="red"), call)
        ),
        turn("results", "<tool_call>?", (unread("Why."), {"error": "malformed", "result": "Why."})),
        turn("Why.", "I am done.", (said("I am done."), {"result": ""})),
    ]
    played = Trajectory("Lockbox-v0", 1, 0, [1], turns, StopReason.TERMINATED, system="Be good.", tools=TOOLS)
    [chat] = sft([played.record()])
    assert chat["tools"] == TOOLS
    written = {"type": "function", "function": {"name": "look", "arguments": {"box": "red"}}}
    assert chat["messages"] == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "Boxes."},
        {"role": "assistant", "content": "", "tool_calls": [written, written]},
        {"role": "tool", "name": "look", "content": "Empty."},
        {"role": "tool", "name": "look", "content": "Empty."},
        {"role": "assistant", "content": "<tool_call>?"},
        {"role": "user", "content": "Why."},
        {"role": "assistant", "content": "I am done."},
    ]
    shown = tokenizer(HERMES).apply_chat_template(chat["messages"], tools=chat["tools"], tokenize=False)
    assert shown.count('{"name": "look", "arguments": {"box": "red"}}') == 2
