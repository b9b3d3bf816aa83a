"""RAGEN-2's mutual-information proxies: formulas, what is scored, what it may cost."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from ragen_verl.config.probes import MutualInformation
from ragen_verl.config.schema import parse
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.diagnostics.mutual_information import (
    EMA_DECAY,
    STD_EPS,
    Pair,
    RunningStd,
    budget,
    due,
    marginal,
    measure,
    plan,
    retrieval,
    sampled_turns,
    step_tokens,
    thought_of,
    turns_of,
)
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import Trajectory, Turn

# -- matrices ---------------------------------------------------------------------------------------------------------


@st.composite
def matrices(draw):
    """Cross scores whose every column is some row's own, with lengths."""
    columns = draw(st.integers(2, 6))
    rows = columns + draw(st.integers(0, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    own = rng.permutation(np.r_[np.arange(columns), rng.integers(columns, size=rows - columns)])
    lengths = rng.integers(1, 30, size=rows)
    scores = -rng.exponential(3.0, size=(rows, columns)) * lengths[:, None]
    return scores, own, lengths


def slow(scores, own, lengths) -> dict[str, float]:
    """The proxies written down with loops over Python floats."""
    rows, columns = len(scores), len(scores[0])
    frequency = Counter(int(j) for j in own)
    given, mixed, code = [], [], []
    for i in range(rows):
        terms = [frequency[j] / rows * math.exp(scores[i][j]) for j in range(columns)]
        normalised = [frequency[j] / rows * math.exp(scores[i][j] / lengths[i]) for j in range(columns)]
        given.append(scores[i][own[i]])
        mixed.append(math.log(math.fsum(terms)))
        code.append(scores[i][own[i]] / lengths[i] - math.log(math.fsum(normalised)))
    per_token = [m / n for m, n in zip(mixed, lengths, strict=True)]
    std = math.sqrt(math.fsum((m - math.fsum(per_token) / rows) ** 2 for m in per_token) / rows)
    estimate = math.fsum((g - m) / n for g, m, n in zip(given, mixed, lengths, strict=True)) / rows
    first = [sorted(range(columns), key=lambda j: -scores[i][j]) for i in range(rows)]
    return {
        "estimate": estimate,
        "estimate_per_sequence": math.fsum(g - m for g, m in zip(given, mixed, strict=True)) / rows,
        "estimate_code": math.fsum(code) / rows,
        "conditional_entropy": -math.fsum(g / n for g, n in zip(given, lengths, strict=True)) / rows,
        "marginal_entropy_per_sequence": -math.fsum(mixed) / rows,
        "marginal_std": std,
        "z_score": estimate / (std + STD_EPS),
        "retrieval_accuracy": sum(first[i][0] == own[i] for i in range(rows)) / rows,
        **({"retrieval_accuracy_at_2": sum(own[i] in first[i][:2] for i in range(rows)) / rows} if columns > 2 else {}),
    }


@settings(deadline=None, max_examples=100)
@given(matrices())
def test_agrees_with_loops(matrix):
    scores, own, lengths = matrix
    scores = np.maximum(scores, -600.0)  # where math.exp is still above 0
    found = measure(scores, own, lengths)
    for name, value in slow(scores, own, lengths).items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@settings(deadline=None, max_examples=100)
@given(matrices(), st.integers(0, 2**32 - 1))
def test_neither_order_nor_a_common_shift_matters(matrix, seed):
    scores, own, lengths = matrix
    rng = np.random.default_rng(seed)
    found = measure(scores, own, lengths)
    columns, rows = rng.permutation(scores.shape[1]), rng.permutation(len(scores))
    place = np.argsort(columns)
    shuffled = measure(scores[rows][:, columns], place[own[rows]], lengths[rows])
    assert shuffled == pytest.approx(found, rel=1e-9, abs=1e-9)
    # a reasoning that is likelier under every prompt alike says no more about the prompt
    shifted = measure(scores + rng.normal(size=(len(scores), 1)), own, lengths)
    for name in ("estimate", "estimate_per_sequence", "retrieval_accuracy"):
        assert shifted[name] == pytest.approx(found[name], rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=100)
@given(matrices())
def test_bounds(matrix):
    found = measure(*matrix)
    assert found["estimate_per_sequence"] <= found["upper_bound"] + 1e-9
    assert found["upper_bound"] <= math.log(found["prompts"]) + 1e-9
    for suffix in ("", "_per_sequence"):
        entropies = found[f"marginal_entropy{suffix}"] - found[f"conditional_entropy{suffix}"]
        assert found[f"estimate{suffix}"] == pytest.approx(entropies, abs=1e-9)
    accuracies = [found[name] for name in found if name.startswith("retrieval_accuracy")]
    assert accuracies == sorted(accuracies) and accuracies[0] >= 0 and accuracies[-1] <= 1


@pytest.mark.parametrize(("prompts", "each"), [(2, 1), (4, 3), (9, 2)])
def test_each_prompt_has_its_own_reasoning(prompts, each):
    own = np.repeat(np.arange(prompts), each)
    scores = np.full((len(own), prompts), -500.0)
    scores[np.arange(len(own)), own] = -10.0
    found = measure(scores, own, np.full(len(own), 5))
    assert found["estimate_per_sequence"] == pytest.approx(math.log(prompts))
    assert found["estimate"] == pytest.approx(math.log(prompts) / 5)
    assert found["retrieval_accuracy"] == 1
    assert found["retrieval_above_chance"] == pytest.approx(1 - 1 / prompts)
    assert found["conditional_entropy"] == 2


@pytest.mark.parametrize("prompts", [2, 5, 16])
def test_template_collapse(prompts):
    """One and the same reasoning whatever the prompt: nothing is learnt from it, and retrieval is chance."""
    found = measure(np.full((prompts, prompts), -30.0), np.arange(prompts), np.full(prompts, 3))
    assert found["estimate"] == pytest.approx(0)
    assert found["estimate_code"] == pytest.approx(0)
    for k in (k for k in (2, 4, 8) if k < prompts):
        assert found[f"retrieval_accuracy_at_{k}"] == pytest.approx(k / prompts)
        assert found[f"retrieval_above_chance_at_{k}"] == pytest.approx(0)
    assert "retrieval_accuracy_at_2" not in measure(np.zeros((2, 2)), np.arange(2), np.ones(2))


def test_a_known_joint_distribution_has_its_mutual_information():
    """p(z|x) in eighths, every z as often in the sample as its probability says: the estimate is I(X;Z) itself."""
    eighths = np.array([[4, 2, 1, 1], [1, 1, 2, 4], [2, 2, 2, 2]])
    frequencies = np.array([2, 1, 1])  # of the prompts, in quarters
    table, p_x = eighths / 8, frequencies / 4
    rows = [(x, z) for x in range(3) for z in range(4) for _ in range(eighths[x, z] * frequencies[x])]
    own = np.array([x for x, _ in rows])
    scores = np.log(table[:, [z for _, z in rows]]).T
    p_z = p_x @ table
    information = sum(p_x[x] * table[x, z] * math.log(table[x, z] / p_z[z]) for x in range(3) for z in range(4))
    found = measure(scores, own, np.ones(len(rows)))
    assert found["estimate"] == found["estimate_per_sequence"] == pytest.approx(information)
    assert found["marginal_entropy"] == pytest.approx(-(p_z * np.log(p_z)).sum())
    assert found["conditional_entropy"] == pytest.approx(-(p_x[:, None] * table * np.log(table)).sum())
    assert found["upper_bound"] == pytest.approx(-(p_x * np.log(p_x)).sum())
    # with one token a reasoning there is nothing to normalise, and the code's formula is the paper's
    assert found["estimate_code"] == pytest.approx(information)


def test_the_codes_formula_is_not_the_papers():
    """Normalising before mixing hides a long reasoning's evidence: 8 nats over 16 tokens become half a nat."""
    scores = np.array([[-16.0, -24.0], [-24.0, -16.0]])
    found = measure(scores, np.arange(2), np.full(2, 16))
    assert found["estimate_per_sequence"] == pytest.approx(math.log(2) - math.log1p(math.exp(-8)))
    assert found["estimate"] == pytest.approx(found["estimate_per_sequence"] / 16)
    assert found["estimate_code"] == pytest.approx(math.log(2) - math.log1p(math.exp(-0.5)))


@settings(deadline=None, max_examples=60)
@given(matrices())
def test_identical_prompts_count_as_one(matrix):
    """Merged by weight: the same marginal as with the prompt's column once for each of its rows."""
    scores, own, _ = matrix
    weights = np.bincount(own, minlength=scores.shape[1]) / len(own)
    every = np.full(len(own), 1 / len(own))
    assert marginal(scores[:, own], every) == pytest.approx(marginal(scores, weights), rel=1e-9)


def test_scores_far_below_zero_do_not_underflow():
    found = measure(np.array([[-5000.0, -5010.0], [-9010.0, -9000.0]]), np.arange(2), np.full(2, 100))
    assert found["estimate_per_sequence"] == pytest.approx(math.log(2), abs=1e-4)


def test_z_score_and_its_average():
    own, lengths, ema = np.arange(2), np.full(2, 2), RunningStd()
    wide = np.array([[-2.0, -40.0], [-90.0, -50.0]])
    narrow = np.array([[-20.0, -40.0], [-62.0, -22.0]])
    first = measure(wide, own, lengths, ema, "a")
    assert first["z_score_ema"] == pytest.approx(first["z_score"])
    assert first["marginal_std"] == pytest.approx(12.0)  # per token -1 and -25
    second = measure(narrow, own, lengths, ema, "a")
    average = EMA_DECAY * first["marginal_std"] + (1 - EMA_DECAY) * second["marginal_std"]
    assert second["z_score_ema"] == pytest.approx(second["estimate"] / (average + STD_EPS))
    assert measure(narrow, own, lengths, ema, "b")["z_score_ema"] == pytest.approx(second["z_score"])
    assert "z_score_ema" not in measure(narrow, own, lengths)


@pytest.mark.parametrize(
    ("scores", "own", "lengths"),
    [
        ([[0.0, 1.0]], [0], [1]),  # no row for the second prompt
        ([[0.0, 1.0], [0.0, 1.0]], [0, 2], [1, 1]),
        ([[0.0, math.nan], [0.0, 1.0]], [0, 1], [1, 1]),
        ([[0.0, 1.0], [0.0, 1.0]], [0, 1], [1, 0]),
        ([[0.0, 1.0], [0.0, 1.0]], [0, 1], [1]),
    ],
)
def test_what_is_no_matrix_of_scores_is_refused(scores, own, lengths):
    with pytest.raises(ValueError):
        measure(np.array(scores), np.array(own), np.array(lengths))


def test_retrieval_by_rank():
    scores = np.array([[3.0, 2.0, 1.0, 0.0]] * 4)
    assert [retrieval(scores, np.arange(4), k) for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]


# -- what is scored ---------------------------------------------------------------------------------------------------


def test_turns_of_a_row():
    turns = turns_of([1, 2], [10, 11, 3, 4, 12, 5], [(2, 2), (2, 1)])
    assert turns == [Pair((1, 2), (10, 11)), Pair((1, 2, 10, 11, 3, 4), (12,))]
    assert turns_of([1, 2], [9], []) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=6), st.integers(1, 9))
def test_turns_are_what_the_engine_was_given_and_sampled(sizes, size):
    """Against the trajectory's own row: ids before each response, and the response."""
    ids = iter(range(10_000))
    turns = [
        Turn("", [next(ids) for _ in range(new if number else size)], [next(ids) for _ in range(sampled)])
        for number, (new, sampled) in enumerate(sizes)
    ]
    trajectory = Trajectory("Env", 0, 0, prompt_ids=turns[0].prompt_ids, turns=turns)
    row = rows_of(trajectory)[0]
    record = trajectory.record()["turns"]
    counts = [(turn["prompt_tokens"], turn["response_tokens"]) for turn in record]
    whole = (*row.prompt_ids, *row.response_ids)
    for pair, turn in zip(turns_of(row.prompt_ids, row.response_ids, counts), turns, strict=True):
        assert pair.thought == tuple(turn.response_ids)
        assert pair.context == whole[: whole.index(turn.response_ids[0])]


@cache
def nano_tokenizer():
    return AutoTokenizer.from_pretrained(nano_model_path())


PIECES = ["a", "go up", " left", "</", "</think", "</think>", "think>", "<answer>", "é", "\n", "</think></think>"]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.booleans())
def test_a_thought_ends_before_its_tag(pieces, by_character):
    """With one token a character and with the nano tokenizer, whose tag is one token."""
    text = "".join(pieces)
    decode = (lambda ids: "".join(map(chr, ids))) if by_character else nano_tokenizer().decode
    ids = list(map(ord, text)) if by_character else nano_tokenizer().encode(text, add_special_tokens=False)
    thought = thought_of(ids, decode)
    assert thought == ids[: len(thought)]
    before, tag, _ = text.partition("</think>")
    assert decode(thought) == (before if tag else "") or not by_character
    assert before.startswith(decode(thought)) and "</think>" not in decode(thought)
    if not tag or not before:
        assert thought == []
    assert thought_of(ids, decode, end=None) == ids


def test_a_token_that_opens_the_tag_belongs_to_it():
    words = ["go", " up.</", "think", "><answer>"]
    assert thought_of([0, 1, 2, 3], lambda ids: "".join(words[k] for k in ids)) == [0]


def test_one_turn_of_each_trajectory():
    trajectories = [[Pair((t,), (turn,)) for turn in range(count)] for t, count in enumerate([1, 4, 0, 2])]
    rng = np.random.default_rng(0)
    drawn = [sampled_turns(trajectories, rng) for _ in range(400)]
    assert all([pair.context for pair in one] == [(0,), (1,), (3,)] for one in drawn)
    seen = Counter(one[1].thought[0] for one in drawn)
    assert set(seen) == {0, 1, 2, 3} and min(seen.values()) > 60


# -- what it may cost -------------------------------------------------------------------------------------------------


@st.composite
def candidates(draw):
    """Pairs over a few prompts of different lengths; some without a thought."""
    contexts = [tuple(range(n * 100, n * 100 + draw(st.integers(1, 40)))) for n in range(draw(st.integers(1, 7)))]
    count = draw(st.integers(1, 24))
    return [Pair(draw(st.sampled_from(contexts)), tuple(range(draw(st.integers(0, 20))))) for _ in range(count)]


@settings(deadline=None, max_examples=200)
@given(candidates(), st.integers(8, 4000), st.integers(0, 99))
def test_a_plan_stays_within_its_budget(pairs, tokens, seed):
    prompts = {pair.context for pair in pairs if pair.thought}
    try:
        chosen = plan(pairs, tokens, np.random.default_rng(seed))
    except RecipeError as error:
        assert f" {tokens} forward tokens" in str(error)
        return
    if chosen is None:
        assert len(prompts) < 2
        return
    cost = sum(len(context) + len(pairs[row].thought) for row in chosen.rows for context in chosen.contexts)
    assert cost == chosen.tokens <= tokens
    assert len(chosen.contexts) >= 2 and len(chosen.rows) >= 2
    assert len(set(chosen.contexts)) == len(chosen.contexts) and len(set(chosen.rows)) == len(chosen.rows)
    assert [chosen.contexts[column] for column in chosen.own] == [pairs[row].context for row in chosen.rows]
    assert set(chosen.own) == set(range(len(chosen.contexts)))
    assert all(pairs[row].thought for row in chosen.rows)
    whole = len(prompts) * sum(len(pair.thought) for pair in pairs)
    whole += sum(map(len, prompts)) * sum(bool(pair.thought) for pair in pairs)
    if tokens >= whole:
        assert chosen.tokens == whole


def test_the_smallest_matrix_and_one_token_less():
    pairs = [Pair((1, 2, 3), (4, 5)), Pair((6,), (7, 8, 9)), Pair((6,), (7,)), Pair((1, 2, 3), ())]
    costs = set()
    for seed in range(20):
        needed = next(n for n in range(200) if _fits(pairs, n, seed))
        assert not _fits(pairs, needed - 1, seed)
        costs.add(needed)
    assert costs == {2 * (3 + 2 + 1 + 3), 2 * (3 + 2 + 1 + 1)}  # whichever answer to the second prompt is drawn


def _fits(pairs, tokens, seed) -> bool:
    try:
        return plan(pairs, tokens, np.random.default_rng(seed)) is not None
    except RecipeError:
        return False


@settings(deadline=None)
@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.001, 1), st.integers(1, 50), st.integers(1, 9))
def test_the_average_stays_below_the_share(generated, kept, share, every, periods):
    tokens = step_tokens(generated, kept)
    assert tokens >= generated
    steps = every * periods
    spent = sum(budget(tokens, share, every) for step in range(1, steps + 1) if due(step, every))
    assert spent <= share * tokens * steps


def test_measured_steps():
    assert [step for step in range(1, 12) if due(step, 5)] == [1, 6, 11]


def test_config():
    assert parse(MutualInformation, {"every": 5}, "ragen.x") == MutualInformation(every=5)
    for bad in ({"every": 0}, {"share": 0}, {"share": 1.5}, {"samples": 1}, {"k": 1}):
        with pytest.raises(RecipeError, match=r"ragen\.x\."):
            parse(MutualInformation, bad, "ragen.x")
