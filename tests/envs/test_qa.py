"""MetaMathQA, GSM8K and StaticQA: their tables and the comparison of answers."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from environment_contract import TEXTS, check_contract, check_step
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.common import tables
from ragen_envs.common.answers import chosen, number, same_mathematics, same_text
from ragen_envs.math_qa import GSM8K, MetaMathQA
from ragen_envs.math_qa.word_problems import FAMILIES, _Draw, generate
from ragen_envs.static_qa import QUESTIONS, StaticQA

from ragen_verl import make
from ragen_verl.errors import MissingExtra, RecipeError

METAMATH = [
    {
        "query": f"Rephrased {k} of {k // 3}?",
        "response": f"First the answer is not seen. #### {k}\nThe answer is: {k}",
        "original_question": f"Original {k // 3}?",
        "type": "GSM_Rephrased",
    }
    for k in range(90)
]


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path, monkeypatch):
    import datasets  # here and not above, so that collecting the tests stays quick

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def written(rows: list[dict], path) -> str:
    import datasets

    table = datasets.Dataset.from_list(rows)
    {".parquet": table.to_parquet, ".csv": table.to_csv, ".jsonl": table.to_json}[path.suffix](str(path))
    return str(path)


def seen(env, seeds) -> list[tuple[str, str]]:
    return [(env.reset(seed=seed)[0], env.truth) for seed in seeds]


# -- comparison of answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        (" -7.50 ", Fraction(-15, 2)),
        ("1,234,567", 1234567),
        ("$1,234.50", Fraction("1234.5")),
        ("18 apples", 18),
        ("x = 5.", 5),
        ("3/4", Fraction(3, 4)),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("-\\dfrac{1}{2}", Fraction(-1, 2)),
        ("The answer is: 12 dollars.", 12),
        ("2 + 3 = 5, so \\boxed{5} (of 9)", 5),
        ("thinking 1 2 3\n#### 1,000", 1000),
        ("50\\%", 50),
        ("−3", -3),
        ("minus 590", -590),
        ("The answer is negative 3.5", Fraction(-7, 2)),
        ("(590)", 590),
        ("a total of (590)", 590),
        ("590 kg", 590),
        ("590km", 590),
        ("600 minus 10 is 590", 590),
        ("590 millimetres", 590),
        ("590 (apples)", 590),
        ("- 590", 590),
        ("Answer - 590", 590),
        ("590 - I am sure", 590),
        ("590 - that is all", 590),
        ("adds up to 590", 590),
        ("-> 590", 590),
        ("~590", 590),
        ("590 m/s", 590),
        ("590 and all", 590),
        ("Step 2: 590", 590),
        ("5 or 590", 590),
        ("(a) 590", 590),
        ("½", Fraction(1, 2)),
        ("-$590", -590),
        ("x = - 590", -590),
        ("− 590", -590),
        ("３", 3),
        (".5", Fraction(1, 2)),
        ("**590**", 590),
        ("**Answer** 590", 590),
        ("* 590", 590),
        ("US$590", 590),
        ("590 km, \\mathbf{590}", 590),
        ("600 - 10 = 590", 590),
        ("600 -10", -10),
        ("1/0", None),
        ("none", None),
        ("", None),
        ("9" * 5000, None),
    ],
)
def test_numbers(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("10-3", "10^590", "10^{590}", "10 ^ 590", "10⁵⁹⁰", "59⁰", "1e590", "1E590", "2**590", "2 ** 590", "2 * 590"),
        *("2*590", "(2)*590", "x590", "_590", "v(590)", "x_590", "2 \\times 590", "1 + 590", "x-590", "7/x/590"),
        *(
            "√590",
            "590!",
            "590k",
            "590 million",
            "not 590",
            "> 590",
            "x < 590",
            "590i",
            "log 590",
            "2(590)",
            "-(590)",
            "590 thousand",
            "590K",
            "590bn",
            "±590",
        ),
        *("\\log_{2} 590", "\\log_2 590", "\\ln 590", "\\sqrt[3]{590}", "the square root of 590", "half of 590"),
        *(
            "590/x",
            "590x",
            "590π",
            "590-x",
            "590+(2)",
            "590 squared",
            "590 factorial",
            "2((590))",
            "-" + "(" * 99 + "590",
        ),
        *("\\boxed{590!}", "$590!", "10% of 590", "divided by 590", "1 plus 590", "600 minus 590", "\\pm 590"),
        *("\\binom{600}{590}", "5 choose 590", "2 mod 590", "twice 590", "590 dozen", "≥590"),
        *("0x590", "590^2", "590^x", "590*x", "590 * x", "\\sqrt{590}", "The answer is: 10^590"),
        *(
            "590 - x",
            "590 + x",
            "590x + 590",
            "x + 590",
            "590 / x",
            "590 ⋅ x",
            "590 \\cdot x",
            "590 π",
            "590pi",
            "590\\pi",
        ),
        *("at least 590", "less than 590", ">= 590", "x != 590", "isn't 590", "∓590", "600 base 590", "|-590|"),
        *("590 and a half", "590 tenths", "590½", "590 ½", "590 1/2", "600 590", "590 000", "5,90", "1,2,590", "1:590"),
        *(
            "590\\text{ million}",
            "590 Mio",
            "590j",
            "590e",
            "²590",
            "590 ²",
            "2 (590)",
            "(2)590",
            "- (590)",
            "600 +- 590",
        ),
    ],
)
def test_part_of_an_expression_is_no_number(text):
    assert number(text) is None
    assert not same_mathematics(text, "590")


@given(st.fractions(-(10**6), 10**6, max_denominator=999))
def test_a_fraction_is_read_back(value):
    assert number(str(value)) == value
    assert number(f"\\boxed{{\\frac{{{value.numerator}}}{{{value.denominator}}}}}") == value


@given(st.integers(-(10**9), 10**9), st.sampled_from(["{:,}", "{}.0", "{} metres", "about {}", "${}", "answer is {}"]))
def test_an_integer_is_read_in_any_dress(value, form):
    assert number(form.format(value)) == value


@pytest.mark.parametrize(
    ("answer", "truth", "same"),
    [
        ("0.75", "\\frac{3}{4}", True),
        ("75", "\\frac{3}{4}", False),
        ("( 2 , 3 )", "(2,3)", True),
        ("\\boxed{\\left(2, 3\\right)}", "(2,3)", True),
        ("$x^2+1$", "x^{2} + 1", True),
        ("x^2-1", "x^2+1", False),
        ("2.5", "2.5 \\text{ hours}", True),
        ("18", "18 dollars", True),
        ("2", "2x", False),
        ("590", "590 million", False),
        ("590 million", "590 million", True),
        ("-590", "minus 590", True),
        ("590 K", "590 K", True),
        ("minus 590", "590", False),
        ("B", "\\text{B}", True),
        ("", "x", False),
    ],
)
def test_mathematics(answer, truth, same):
    assert same_mathematics(answer, truth) == same


def test_wording_and_choices():
    assert same_text("  the BLUE   whale. ", "Blue whale") and not same_text("whale", "Blue whale")
    choices = ["red", "green", "B"]
    named = {"a": 0, "(B)": 2, "b.": 2, "C) B": 2, "GREEN": 1, "D": None, "": None, "red or green": None}
    assert {text: chosen(text, choices) for text in named} == named


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_comparisons_take_any_text(text):
    number(text)
    same_mathematics(text, "(1,2)")
    same_text(text, "x")
    chosen(text, ["x", "y"])


# -- word problems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_stories_have_whole_answers_and_name_their_numbers(family, level):
    rng = np.random.default_rng(level)
    questions = set()
    for _ in range(200):
        question, answer = family(_Draw(rng, level))
        assert isinstance(answer, int) and answer >= 0 and question.endswith("?") and "-" not in question
        questions.add(question)
    assert len(questions) > 120


def test_answers_follow_from_the_text():
    import re

    checks = {
        r"^\w+ has (\d+) \w+ and gets (\d+) more from \w+\. How": lambda a, b: a + b,
        r"lower\. By how": None,
        r"One \w+ costs (\d+) dollars\. \w+ buys (\d+) of them\. \w+ pays with (\d+)": lambda p, n, paid: paid - p * n,
        r"shares (\d+) \w+ equally among (\d+) children": lambda n, people: n / people,
        r"rides at (\d+) kilometres per hour for (\d+) hours\. How": lambda v, t: v * t,
        r"saves (\d+) dollars a week\. How many dollars is that after (\d+)": lambda a, b: a * b,
        r"is (\d+) years old\. \w+ is (\d+) years older than \w+\. How old is": lambda a, b: a + b,
        r"(\d+) metres long and (\d+) metres wide\. What is its area": lambda a, b: a * b,
        r"is (\d+) dollars\. Today it is (\d+) percent lower\. By how": lambda p, off: p * off / 100,
        r"packs (\d+) \w+ an hour\. How many does \w+ pack in (\d+)": lambda a, b: a * b,
    }
    rng, used = np.random.default_rng(0), set()
    for _ in range(600):
        problem = generate(rng, 1)
        for pattern, formula in checks.items():
            match = re.search(pattern, problem.question)
            if match and formula:
                assert formula(*map(int, match.groups())) == problem.answer
                used.add(problem.family)
    assert len(used) == len(FAMILIES)


# -- MetaMathQA and GSM8K ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["MetaMathQA-v0", "GSM8K-v0", "StaticQA-v0"])
def test_contract(id):
    check_contract(id)


@pytest.mark.parametrize("wrong", range(6))
def test_reward_halves_with_every_wrong_answer(wrong):
    env = make("MetaMathQA-v0", attempts=6)
    question, _ = env.reset(seed=3)
    for k in range(wrong):
        assert not env.step("no idea").info["action_is_valid"]
        step = check_step(env, str(int(env.truth) + k + 1))
        assert step.reward == 0.0 and step.info["action_is_valid"] and not step.terminated
        assert step.observation.startswith(question) and f"so far: {k + 1}." in step.observation
    step = check_step(env, f"The answer is {env.truth} of them.")
    assert step.reward == 0.5**wrong and step.terminated and step.info["success"]


def test_attempts_are_the_budget_and_the_end():
    env = GSM8K(attempts=2)
    env.reset(seed=0)
    assert env.max_actions == 2 and make("MetaMathQA-v0").max_actions == 5
    assert not env.step("-1").terminated and env.step("-1").terminated
    assert env.step(env.truth).reward == 0.0 and env.oracle() == []


@given(st.lists(TEXTS, max_size=4), st.sampled_from(["MetaMathQA-v0", "StaticQA-v0"]))
@settings(max_examples=150, deadline=None)
def test_hostile_text(actions, id):
    env = make(id)
    env.reset(seed=9)
    for action in actions:
        check_step(env, action)


def test_generated_splits_share_no_question():
    drawn = {split: {question for question, _ in seen(GSM8K(split=split), range(400))} for split in ("train", "val")}
    assert not drawn["train"] & drawn["val"] and min(map(len, drawn.values())) > 380


def test_levels():
    lengths = [np.mean([len(q) for q, _ in seen(MetaMathQA(level=level), range(200))]) for level in (1, 2, 3)]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
def test_metamath_table(tmp_path, suffix):
    path = written(METAMATH, tmp_path / f"rows{suffix}")
    env = make("MetaMathQA-v0", dataset=path)
    assert seen(env, [4, 94]) == [("Rephrased 4 of 1?", "4")] * 2
    assert len({question for question, _ in seen(env, range(90))}) == 90
    if suffix == ".jsonl":
        check_contract("MetaMathQA-v0", dataset=path)


def test_no_original_question_is_in_both_splits(tmp_path):
    path = written(METAMATH, tmp_path / "rows.parquet")
    origins = []
    for split in ("train", "val"):
        env = MetaMathQA(dataset=path, split=split)
        origins.append({int(truth) // 3 for _, truth in seen(env, range(len(env._table)))})
        assert len(env._table) == 3 * len(origins[-1])
    assert all(origins) and not origins[0] & origins[1] and len(origins[0] | origins[1]) == 30


def test_gsm8k_reads_the_hubs_layout(tmp_path):
    card = "configs:\n- config_name: main\n  data_files:\n"
    (tmp_path / "main").mkdir()
    for split, count in (("train", 20), ("test", 5)):
        rows = [{"question": f"{split} {k}?", "answer": f"Sum <<1+1=2>>\n#### {k},000"} for k in range(count)]
        written(rows, tmp_path / "main" / f"{split}-00000-of-00001.parquet")
        card += f"  - split: {split}\n    path: main/{split}-*\n"
    (tmp_path / "README.md").write_text(f"---\n{card}---\n")
    for split, count in ((None, 20), ("train", 20), ("val", 5)):
        env = GSM8K(dataset=str(tmp_path), split=split)
        assert len(env._table) == count
        env.reset(seed=3)
        assert env.question == ("test 3?" if split == "val" else "train 3?")
        assert env.step("3000").reward == 1.0


# -- StaticQA ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("match", ["exact", "number", "choice"])
def test_builtin_table(match):
    env = StaticQA(match=match)
    for seed in range(len(QUESTIONS)):
        env.reset(seed=seed)
        assert env.step(env.oracle()[0]).reward == 1.0
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    assert {env.random_action(rng) for _ in range(100)} >= (set("ABCD") if match == "choice" else {"7"})


def test_builtin_rows_are_sound():
    assert len({row[0] for row in QUESTIONS}) == len(QUESTIONS)
    assert all(answer in choices and len(set(choices)) == 4 for _, answer, choices in QUESTIONS)


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (["red", "green", "blue"], 1),
        (["red", "green", "blue"], "B"),
        (["red", "green", "blue"], "green"),
        ({"text": ["red", "green", "blue"], "label": ["1", "2", "3"]}, "2"),
    ],
)
def test_layouts_of_choices(tmp_path, choices, answer):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Colour of grass?", "options": choices, "a": answer}) + "\n")
    env = StaticQA(dataset=str(path), question="q", answer="a", choices="options", attempts=3)
    observation, _ = env.reset(seed=7)
    assert observation == "Colour of grass?\nA. red\nB. green\nC. blue" and env.oracle() == ["B"]
    assert not env.step("D").info["action_is_valid"]
    assert env.step("red").reward == 0.0 and env.step("(b)").reward == 0.5


def test_any_characters_in_a_table(tmp_path):
    path = written([{"question": "何と言う？ \U0001f40b", "answer": "Ναί"}], tmp_path / "rows.parquet")
    env = StaticQA(dataset=path)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space and env.step("ναί!").reward == 1.0


def test_copies_share_the_rows(tmp_path):
    env = StaticQA(dataset=written([{"question": "a", "answer": "b"}], tmp_path / "rows.parquet"))
    assert copy.deepcopy(env)._table is env._table is pickle.loads(pickle.dumps(env))._table


def test_hundreds_of_instances_load_once(tmp_path, monkeypatch):
    path = written([{"question": "a", "answer": "b"}], tmp_path / "rows.parquet")
    loads, load = [], tables._load
    monkeypatch.setattr(tables, "_load", lambda *args: loads.append(args) or load(*args))
    with ThreadPoolExecutor(16) as pool:
        envs = list(pool.map(lambda _: StaticQA(dataset=path), range(200)))
    assert len(loads) == 1 and len({id(env._table) for env in envs}) == 1


def test_tables_that_cannot_be_used(tmp_path, monkeypatch):
    path = written([{"question": "a", "answer": "b", "options": ["c"]}], tmp_path / "rows.parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    for kwargs, message in [
        ({"dataset": str(tmp_path / "none.csv")}, "no file"),
        ({"dataset": str(broken)}, "cannot be read"),
        ({"dataset": path, "question": "prompt"}, "no column 'prompt': it has question, answer, options"),
    ]:
        with pytest.raises(RecipeError, match=message):
            StaticQA(**kwargs)
    with pytest.raises(RecipeError, match="none of the choices"):
        StaticQA(dataset=path, choices="options").reset(seed=0)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="pip install datasets"):
        StaticQA(dataset=str(tmp_path / "other.csv"))


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        (StaticQA, {"match": "fuzzy"}),
        (StaticQA, {"dataset": "x.csv", "match": "choice"}),
        (StaticQA, {"split": "test"}),
        (GSM8K, {"attempts": 0}),
        (GSM8K, {"level": 4}),
        (MetaMathQA, {"dataset": "x.csv", "level": 1}),
    ],
)
def test_bad_arguments(env, kwargs):
    with pytest.raises(RecipeError, match=list(kwargs)[-1].replace("match", "match|choice")):
        env(**kwargs)
