"""WebShop: the paper's score, pages, the original's files, hostile names."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from environment_contract import check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.common import shared
from ragen_envs.webshop import WebShop, catalogue
from ragen_envs.webshop.catalogue import BUTTONS, Goal, Product, clickable_options, price_limit, typable
from ragen_envs.webshop.reward import common_subsequence, score, token_set_ratio, type_score
from ragen_lab.checker.texts import HOSTILE
from random_play import random_plan

from ragen_verl import make
from ragen_verl.errors import MissingExtra, RecipeError

MUG = Product(
    asin="B000000001",
    title="Acme Stoneware Mug with Handle",
    description="A mug that is dishwasher safe.",
    features=("keeps drinks warm",),
    attributes=("heat resistant", "hand painted"),
    options={"color": ("navy blue", "red"), "size": ("10 ounce", "16 ounce")},
    price=12.5,
    query="mug",
    product_category="Home › Kitchen › Mugs",
)
GOAL = Goal(MUG, "a mug", ("heat resistant", "dishwasher safe"), ("blue", "16 ounce"), 20.0)
CHOSEN = {"color": "navy blue", "size": "16 ounce"}


def test_contract():
    check_contract("WebShop-v0")
    check_contract("WebShop-v0", reward="binary", split="test", show_attributes=True, products=40)


def test_the_shop_is_large_and_the_same_everywhere():
    shop = make("WebShop-v0").catalogue
    assert len(shop.products) >= 1000 and len(shop.by_asin) == len(shop.products)
    assert all(product.attributes and product.options and product.price > 0 for product in shop.products)
    assert len(shop.goals) == 3000 and len({goal.instruction for goal in shop.goals}) > 2900
    first = "from ragen_verl import make; print([make('WebShop-v0').reset(seed=s)[0] for s in range(20)])"
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str([make("WebShop-v0").reset(seed=seed)[0] for seed in range(20)])


def test_splits_are_those_of_the_reference_and_share_no_goal():
    shop = make("WebShop-v0").catalogue
    spans = {split: set(shop.span(split)) for split in ("train", "val", "test")}
    assert [len(spans[split]) for split in ("test", "val", "train")] == [500, 1000, 1500]
    assert set.union(*spans.values()) == set(range(3000))
    env = make("WebShop-v0", split="val")
    for seed in range(50):
        env.reset(seed=seed)
        assert shop.goals.index(env.goal) in spans["val"]


def test_one_shop_for_all_instances_also_from_many_threads():
    shared.forget()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: WebShop(products=60).catalogue, range(32)))
    assert len(set(map(id, found))) == 1
    index = found[0].index
    words = ["mug", "red", "hoodie", "lip balm", "steel"]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda word: index.search(word, 9), words * 40))
    assert found == [index.search(word, 9) for word in words] * 40


def test_the_oracle_buys_what_is_wanted_chance_does_not():
    env, lengths, by_chance = make("WebShop-v0"), [], []
    rng = np.random.default_rng(0)
    for seed in range(60):
        env.reset(seed=seed)
        steps, reward = play_oracle(env)
        assert reward == 1.0 and steps[-1].info["success"] and steps[-1].info["purchase"] == 1.0
        lengths.append(len(steps))
        env.reset(seed=seed)
        by_chance.append(sum(env.step(env.random_action(rng)).reward for _ in range(env.max_actions)))
    assert max(lengths) <= env.max_actions
    assert 0.0 < np.mean(by_chance) < 0.4


def test_from_anywhere_the_oracle_finds_back():
    env = make("WebShop-v0")
    rng = np.random.default_rng(3)
    for seed in range(30):
        env.reset(seed=seed)
        for _ in range(4):
            action = env.random_action(rng)
            if "buy now" not in action:
                check_step(env, action)
        assert play_oracle(env)[1] == 1.0


# -- pages ------------------------------------------------------------------------------------------------------------


def shop_with(*products: Product, goal: Goal | None = None, **kwargs) -> WebShop:
    """An environment that sells these products."""
    goals = [goal or replace(GOAL, product=products[0])] * 6
    env = WebShop(**kwargs)
    env._shop = shared.Shared((catalogue.Catalogue.of, products, goals))
    env.reset(seed=0)
    return env


def test_pages_and_what_they_offer():
    env = shop_with(MUG, show_attributes=True)
    assert env.render() == "Instruction: a mug\nSearch page\nAvailable actions: search[<words>]"
    assert not check_step(env, "click[back to search]").info["action_is_valid"]
    page = check_step(env, "SEARCH[Stoneware Mugs]").observation.splitlines()
    assert page[1:3] == ["Page 1 (Total results: 1)", "[b000000001] Acme Stoneware Mug with Handle, $12.50"]
    assert page[3] == "Available actions: click[back to search], click[b000000001]"
    assert not check_step(env, "search[mug]").info["action_is_valid"]  # only the search page has a search bar
    page = check_step(env, "click[B000000001]").observation
    assert "Price: $12.50\ncolor: navy blue, red\nsize: 10 ounce, 16 ounce\n" in page
    assert page.endswith(
        "click[back to search], click[< prev], click[description], click[features], click[attributes], click[buy now], "
        "click[navy blue], click[red], click[10 ounce], click[16 ounce]"
    )
    for button, text in (
        ("description", "dishwasher safe"),
        ("features", "drinks warm"),
        ("attributes", "hand painted"),
    ):
        page = check_step(env, f"click[{button}]").observation
        assert text in page and page.endswith("Available actions: click[back to search], click[< prev]")
        assert check_step(env, "click[< prev]").observation.count("click[buy now]") == 1
    assert "color: navy blue, red (chosen: red)" in check_step(env, "click[red]").observation
    again = check_step(env, "click[red]")
    assert again.info["action_is_valid"] and not again.info["action_is_effective"]
    assert "(chosen: navy blue)" in check_step(env, "click[Navy Blue]").observation
    assert "Page 1" in check_step(env, "click[< prev]").observation
    assert "chosen" not in check_step(env, "click[b000000001]").observation
    assert "Search page" in check_step(env, "click[back to search]").observation


def test_results_come_in_pages_of_ten_and_at_most_fifty():
    env = shop_with(*(replace(MUG, asin=f"A{number:03d}") for number in range(64)))
    env.step("search[mug]")
    seen = []
    for page in range(5):
        shown = [name for name in env.clickables() if name not in BUTTONS]
        seen += shown
        assert len(shown) == 10
        assert ("next >" in env.clickables()) == (page < 4) and ("< prev" in env.clickables()) == (page > 0)
        env.step("click[next >]")
    assert seen == [f"a{number:03d}" for number in range(50)]
    assert "Page 4" in check_step(env, "click[< prev]").observation
    assert "Total results: 0" in check_step(shop_with(MUG), "search[zzz]").observation


def test_the_attributes_page_is_an_option():
    env = shop_with(MUG)
    env.step("search[mug]")
    assert "click[attributes]" not in env.step("click[b000000001]").observation


def test_buying_ends_the_episode_and_pays_dense_or_binary():
    for clicks, dense in (((), 3 / 5), (("red",), 3 / 5), (("16 ounce",), 4 / 5), (("navy blue", "16 ounce"), 1.0)):
        for kind, paid in (("dense", dense), ("binary", float(dense == 1.0))):
            env = shop_with(MUG, reward=kind)
            for action in ("search[mug]", "click[b000000001]", *(f"click[{name}]" for name in clicks)):
                assert check_step(env, action).reward == 0.0
            step = check_step(env, "click[buy now]")
            assert (step.reward, step.terminated, step.info["success"]) == (paid, True, dense == 1.0)
            assert (step.info["score"], step.info["purchase"]) == (dense, 1.0)
            assert check_step(env, "search[mug]").reward == 0.0


def test_the_prompt_names_no_budget_and_the_budget_is_30():
    env = make("WebShop-v0")
    assert env.max_actions == 9 and not any(sign.isdigit() for sign in env.instruction.replace("up to 1,", ""))


def test_long_sessions_are_truncated():
    env = shop_with(MUG)
    steps = [env.step(("search[mug]", "click[back to search]")[k % 2]) for k in range(100)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


# -- the score --------------------------------------------------------------------------------------------------------


def test_the_score_adds_attributes_options_and_price():
    assert score(MUG, CHOSEN, GOAL) == 1.0
    assert score(MUG, {}, GOAL) == 3 / 5
    assert score(replace(MUG, price=20.01), CHOSEN, GOAL) == 4 / 5
    assert score(replace(MUG, attributes=(), description=""), CHOSEN, GOAL) == 3 / 5
    assert score(MUG, {"color": "red", "size": "16 ounce"}, GOAL) == 4 / 5
    assert score(MUG, CHOSEN, replace(GOAL, options=())) == 1.0  # options nobody asked for add nothing
    assert score(MUG, CHOSEN, replace(GOAL, attributes=("vegan",))) == 3 / 4


def test_options_match_by_their_words_alone():
    wide = replace(MUG, options={"size": ("16 ounce wide",), "style": ("tall handle",)})
    goal = replace(GOAL, attributes=("hand painted",), options=("16 ounce", "handle tall"))
    assert score(wide, {"size": "16 ounce wide"}, goal) == 3 / 4
    assert score(wide, {"style": "tall handle"}, goal) == 3 / 4
    assert score(wide, {"style": "tall handle", "material": "handle tall"}, goal) == 3 / 4  # each counts once


def test_wrong_colour_in_the_products_text_earns_nothing():
    shirt = replace(MUG, title="Black Shirt", features=("black, s to xl",), attributes=("slim fit", "cotton"))
    goal = Goal(shirt, "a shirt", ("slim fit", "cotton"), ("s", "charcoal"), 20.0)
    assert score(shirt, {"size": "s", "color": "black"}, goal) == 0.8
    assert score(shirt, {"size": "s", "color": "charcoal"}, goal) == 1.0


def test_type_falls_with_the_titles_nouns():
    assert type_score(replace(MUG, title="Other Mug"), MUG) == 1.0
    other = replace(MUG, query="lamp", product_category="Tools › Light")
    assert type_score(replace(other, title="Desk Lamp"), MUG) == 0.0
    long = replace(MUG, title="one two three four five six seven eight nine ten mug")
    assert type_score(replace(other, title="Big Mug Lamp"), long) == 0.1
    shorter = replace(MUG, title="one two three four five six mug")
    assert type_score(replace(other, title="Big Mug Lamp"), shorter) == 0.5
    assert type_score(replace(MUG, title="Big Mug Lamp"), shorter) == 1.0
    kitchen = replace(other, title="Big Mug Lamp", product_category="Kitchen › Home")
    assert type_score(kitchen, shorter) == 1.0


@settings(max_examples=60, deadline=None)
@given(one=st.text("abc", max_size=9), other=st.text("abc", max_size=9))
def test_the_common_subsequence_is_the_longest(one, other):
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    assert common_subsequence(one, other) == table[-1][-1]


@settings(max_examples=60, deadline=None)
@given(one=st.text(max_size=30), other=st.text(max_size=30))
def test_likeness_is_symmetric_and_bounded(one, other):
    assert 0 <= token_set_ratio(one, other) == token_set_ratio(other, one) <= 100


def test_likeness_of_words():
    assert token_set_ratio("Hand painted", "painted hand") == 100
    assert token_set_ratio("machine washable", "machine wash") > 85
    assert token_set_ratio("gluten free", "sugar low") < 50 and token_set_ratio("", "x") == 0


def test_price_limits_are_tens_above_the_price():
    rng = np.random.default_rng(0)
    limits = {price_limit(12.5, rng) for _ in range(200)}
    assert limits == {30.0, 40.0, 50.0}
    assert price_limit(985.0, rng) == float("inf") == price_limit(5000.0, rng)


# -- the original's files ---------------------------------------------------------------------------------------------


def item(asin: str, **changes) -> dict:
    """One entry of items_shuffle.json."""
    base = {
        "asin": asin,
        "name": "Soft Cotton Socks, 3 Pairs",
        "category": "fashion",
        "query": " Socks ",
        "product_category": "Clothing › Men › Socks",
        "full_description": "Warm socks.\nNice.",
        "small_description": ["100% cotton", "machine wash"],
        "pricing": "$9.99",
        "customization_options": {"Size": [{"value": "S/M", "image": None}, {"value": "L"}], "Color": None},
        "images": ["x.jpg"],
        "average_rating": 4.5,
    }
    return {**base, **changes}


@pytest.fixture
def files(tmp_path):
    items = [
        item("B1"),
        item("B1", name="a copy is left out"),
        item("nan"),
        item("B2", pricing="$10.00 to $20.00", customization_options={}, small_description="one line"),
        item("B3", pricing=None),
        item("B4", pricing="$1,234.50", name="Evil ] [ <b>&amp;</b>\n\x00‮"),
    ]
    made = {
        asin: {"attributes": ["cotton", "warm"], "instruction": "i want socks", "instruction_attributes": ["cotton"]}
        for asin in ("B1", "B2", "B4")
    }
    human = {
        "B1": [
            {"asin": "B1", "instruction": "i need warm socks.", "instruction_attributes": ["warm"],
             "instruction_options": {"size": "l"}},
            {"asin": "B1", "instruction": "no attributes", "instruction_attributes": [], "instruction_options": {}},
        ],
        "B2": [{"instruction": "cotton socks", "instruction_attributes": ["Cotton"], "instruction_options": []}] * 5,
    }  # fmt: skip
    for name, content in (("items_shuffle", items), ("items_ins_v2", made), ("items_human_ins", human)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_the_originals_files_are_read(files):
    env = make("WebShop-v0", data_dir=str(files))
    shop = env.catalogue
    assert list(shop.by_asin) == ["b1", "b2", "b3", "b4"]
    socks = shop.by_asin["b1"]
    assert socks.options == {"size": ("s | m", "l")} and socks.query == "socks" and socks.price == 9.99
    assert socks.description == "Warm socks. Nice." and socks.attributes == ("cotton", "warm")
    assert 10 <= shop.by_asin["b2"].price <= 20 and shop.by_asin["b2"].features == ("one line",)
    assert shop.by_asin["b3"].price == 100.0 and shop.by_asin["b4"].price == 1234.5
    texts = sorted({goal.instruction for goal in shop.goals})
    assert len(shop.goals) == 6 and texts[0].startswith("cotton socks, and price lower than ")
    assert texts[-1].startswith("i need warm socks, and price lower than ")
    for seed in range(6):
        env.reset(seed=seed)
        assert play_oracle(env)[1] == 1.0


def test_every_combination_is_a_goal_without_peoples_goals(files):
    (files / "items_human_ins.json").unlink()
    env = make("WebShop-v0", data_dir=str(files), products=4)  # of the entries, two of which are no products
    assert len(env.catalogue.products) == 2
    texts = {goal.instruction.partition(", and price")[0] for goal in env.catalogue.goals}
    assert texts == {"i want socks with size: s | m", "i want socks with size: l", "i want socks"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("items_shuffle", None, "has no items_shuffle.json"),
        ("items_shuffle", "{", "no JSON"),
        ("items_shuffle", "{}", "must hold a JSON array"),
        ("items_shuffle", '[{"asin": "B1"}]', "not in the original format"),
        ("items_shuffle", "[3]", "not in the original format"),
        ("items_shuffle", "[]", "gives no goal"),
        ("items_ins_v2", "[]", "must hold a JSON object"),
        ("items_human_ins", "{}", "gives no goal"),
    ],
)
def test_files_that_cannot_work_are_named(files, name, content, message):
    path = files / f"{name}.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(RecipeError, match=message):
        make("WebShop-v0", data_dir=str(files))


# -- hostile input ----------------------------------------------------------------------------------------------------

NAMES = st.text(max_size=25) | st.sampled_from([*BUTTONS, *(text[:500] for text in HOSTILE), "a]b", "[x]", "</answer>"])


@settings(max_examples=40, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_whatever_options_are_called_they_can_be_clicked(names):
    options = clickable_options({names[0]: names})
    product = replace(MUG, title=typable(f"mug {names[0]}"), options=options)
    env = shop_with(product, goal=replace(GOAL, product=product, options=tuple(v for o in options.values() for v in o)))
    for action in ("search[mug]", "click[b000000001]"):
        check_step(env, action)
    for values in options.values():
        for value in values:
            assert "\n" not in value and value not in BUTTONS
            assert check_step(env, f"click[{value}]").info["action_is_valid"]
    assert check_step(env, "click[buy now]").terminated


def test_what_an_answer_could_not_hold_is_left_out_of_names():
    assert typable("a <answer>b</answer> || c | | d <|im_end|>") == "a b | c | d"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 99), actions=st.lists(st.text(max_size=30) | st.sampled_from(HOSTILE[:9]), max_size=6))
def test_no_text_breaks_a_step(seed, actions):
    env = make("WebShop-v0", products=60)
    env.reset(seed=seed)
    for text in actions:
        for action in (text, f"search[{text}]", f"click[{text}]", f"<click>{text}</click>"):
            check_step(env, action)
        check_step(env, random_plan(env, np.random.default_rng(seed), 1)[0])


def test_a_missing_library_is_named(monkeypatch):
    shared.forget()
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtra, match=r'pip install "ragen-verl\[search\]"'):
        make("WebShop-v0")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"reward": "sparse"},
        {"split": "all"},
        {"products": 0},
        {"products": True},
        {"data_dir": 3},
        {"show_attributes": "no"},
        {"products": 1, "split": "val"},
    ],
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=list(kwargs)[-1]):
        make("WebShop-v0", **kwargs)


def test_a_shop_without_end_is_not_made_up():
    with pytest.raises(RecipeError, match="products must be an integer from 1 to 20000, not 3000000"):
        make("WebShop", products=3_000_000)
