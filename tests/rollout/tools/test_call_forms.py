"""Wire forms: what is written is read, what is wrong is said, and no text raises or takes long."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.rollout.protocols.tools import Tools
from ragen_verl.rollout.tools.form import FORMS, MOST, Broken, Call

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.lists(st.builds(Call, NAMES, st.dictionaries(NAMES, JSON, max_size=3)), min_size=1, max_size=3)
FORM = sorted(FORMS)
PIECES = [
    *(
        '{"name": "a", "arguments": {}}',
        '{"name"',
        '"',
        "{",
        "}",
        "[",
        "]",
        "\\",
        "\n",
        " ",
        "1e999",
        "NaN",
        "é",
        "\ud800",
    ),
    *("<think>", "</think>", ",", ":", "null", "\x00"),
]


def pieces(name: str) -> list[str]:
    """What hostile texts for a form are made of."""
    form = FORMS[name]()
    parts = [form.opens, form.closes, *form.tokens, *form.thoughts, form.example]
    return [*PIECES, *(part for part in parts if part), *form.example.split('"')]


def hostile(name: str, rng: random.Random, most: int = 12) -> str:
    known = pieces(name)
    return "".join(rng.choice(known) for _ in range(rng.randrange(most)))


@pytest.mark.parametrize("name", FORM)
@given(calls=CALLS)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(name, calls):
    form = FORMS[name]()
    calls = calls if form.several else calls[:1]
    said, found = form.read(form.write(calls))
    assert said == "" and [one.name for one in found] == [one.name for one in calls]
    for one, wanted in zip(found, calls, strict=True):  # forms without types give texts
        assert {key: told(value) for key, value in one.arguments.items()} == {
            key: told(value) for key, value in wanted.arguments.items()
        }


def told(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("name", FORM)
def test_no_text_raises_and_none_is_lost(name):
    form, rules, rng = FORMS[name](), Tools(think=False), random.Random(0)
    for _ in range(1_500):
        text = hostile(name, rng)
        parsed = rules.read(text, form, opened=rng.random() < 0.2)
        assert parsed.actions, "there is always something to answer"
        assert all(isinstance(json.loads(action), dict) for action in parsed.actions)
        assert parsed.format_ok == (not any('"error"' in action[:8] for action in parsed.actions))


@pytest.mark.parametrize("name", [name for name in FORM if name not in ("harmony", "muse")])
@given(text=TEXTS, calls=CALLS)
@settings(max_examples=20, deadline=None)
def test_nothing_before_the_end_of_thoughts_is_read(name, text, calls):
    form = FORMS[name]()
    begins, ends = form.thoughts
    inside = form.write(calls[:1])
    assert form.think(f"{begins}{inside}{text}", False)[1] is None or ends in text
    assert form.think(f"{inside}{text}", True)[1] is None or ends in text
    assert form.think(f"{begins}{inside}{ends}{inside}{ends}{text}", True)[1] == text.rpartition(ends)[2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<tool_call>{"name": "a", "arguments": {}}', "After the JSON object comes </tool_call>"),
        ('<tool_call>{"name": "a"}</tool_call>', '"name" and "arguments" alone'),
        ('<tool_call>{"name": "a", "arguments": {}, "id": 1}</tool_call>', '"name" and "arguments" alone'),
        ('<tool_call>{"name": "a", "arguments": "x"}</tool_call>', '"arguments" an object'),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN is no number of JSON"),
        ('<tool_call>{"name": "a", "arguments": {"x": 1, "x": 2}}</tool_call>', "a key twice"),
        ('<tool_call>{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}</tool_call>", "not valid"),
        ("<tool_call>" + "[" * 5000 + "</tool_call>", "nested too deeply"),
        ("</tool_call>", "</tool_call> stands alone"),
        ("<tool_call>", "not valid"),
        ("", None),
    ],
)
def test_hermes_says_what_is_wrong(text, why):
    _, found = FORMS["hermes"]().read(text)
    assert (found == []) if why is None else (isinstance(found[0], Broken) and why in found[0].why)


def test_a_tag_inside_an_argument_does_not_end_the_call():
    call = Call("say", {"text": "<tool_call></tool_call></think>"})
    form = FORMS["hermes"]()
    assert form.read(form.write([call, call])) == ("", [call, call])


@pytest.mark.parametrize("name", FORM)
def test_reading_takes_linear_time(name):
    """Twice the text takes about twice the work: counted in calls of the reader, with a bound on blocks."""
    form = FORMS[name]()
    for piece in pieces(name):
        _, found = form.read(piece * 20_000)
        assert len(found) <= MOST + 1


@pytest.mark.parametrize("name", ["harmony", "muse"])
def test_messages_of_thoughts_are_never_executed(name):
    form = FORMS[name]()
    begins, ends = form.thoughts
    call = form.write([Call("a", {"b": "c"})])
    assert form.think(f"{begins}{call}", False)[1] is None
    think, rest = form.think(f"{begins}{call}{ends}<|start|>assistant{call}", False)
    assert form.read(rest) == ("", [Call("a", {"b": "c"})]) and call.strip() in think


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("qwen_xml", "<tool_call><function=a><parameter=b>1</function></tool_call>", "parameter=KEY"),
        ("qwen_xml", "<tool_call>{}</tool_call>", "begins with <function=NAME>"),
        ("glm", "<tool_call>a<arg_key>b</arg_key></tool_call>", "<arg_value>VALUE"),
        ("llama", '{"name": "a", "arguments": {}}', '"name" and "parameters" alone'),
        ("llama", '{"name": "a", "parameters": {}} and more', "nothing else"),
        ("lfm", "<|tool_call_start|>[a(b=__import__('os'))]<|tool_call_end|>", "There should be a value"),
        ("lfm", "<|tool_call_start|>[a(b='1', b='2')]<|tool_call_end|>", "b is there twice"),
        ("lfm", "<|tool_call_start|>[" + "a(b=" + "[" * 100 + "<|tool_call_end|>", "nested too deeply"),
        ("gemma", '<|tool_call>call:a{b:<|"|>c}<tool_call|>', "A text does not end"),
        ("harmony", " to=functions.a<|channel|>commentary json<|message|>[1]<|call|>", "a JSON object"),
        ("harmony", " to=python<|channel|>commentary<|message|>{}<|call|>", "functions.NAME"),
        ("muse", " to=a<|message|><atem:function_calls>x</atem:function_calls>", "atem:invoke"),
    ],
)
def test_other_forms_say_what_is_wrong(name, text, why):
    _, found = FORMS[name]().read(text)
    assert isinstance(found[0], Broken) and why in found[0].why
