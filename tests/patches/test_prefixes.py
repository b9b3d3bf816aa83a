"""Rows that share prefixes against verl's own passes over each row in whole: outputs, loss and gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import verl  # noqa: F401  verl loads the plugin, which registers the attention
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, LlamaConfig
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp import transformer_impl as verls

from ragen_verl.patches import prefixes, varlen

WORDS = 40
Row = tuple[list[int], list[int], list[int]]  # prompt, response, mask


def config(**changes: Any) -> LlamaConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaConfig(
        **{
            "vocab_size": WORDS,
            "num_key_value_heads": 2,
            "num_labels": 1,
            "classifier_dropout": 0.0,
            **sizes,
            **changes,
        }
    )


def engine(critic: bool = False, adapter: bool = False, checkpointed: bool = False, **changes: Any) -> Any:
    """verl's engine with a small model, without the processes that its constructor wants."""
    torch.manual_seed(0)
    auto, kind = (
        (AutoModelForTokenClassification, verls.FSDPEngineWithValueHead)
        if critic
        else (AutoModelForCausalLM, verls.FSDPEngineWithLMHead)
    )
    found = object.__new__(kind)
    found.module = auto.from_config(config(**changes), attn_implementation=varlen.NAME).train()
    if adapter:
        settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        found.module = get_peft_model(found.module, settings)
    if checkpointed:
        found.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found.use_ulysses_sp = found.pad_to_length = False
    found.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
    found.compute_entropy_from_logits = verls.verl_F.entropy_from_logits
    found._autocast_dtype = torch.float32
    found.get_data_parallel_group = lambda: None
    return found


def batch(rows: list[Row], temperature: float = 0.7, **flags: Any) -> TensorDict:
    """Rows in the form of verl's engines."""

    def ragged(values: list[list[int]]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(one) for one in values], layout=torch.jagged)

    fields = {
        "prompts": ragged([prompt for prompt, _, _ in rows]),
        "responses": ragged([response for _, response, _ in rows]),
        "response_mask": ragged([mask for _, _, mask in rows]),
        "input_ids": ragged([prompt + response for prompt, response, _ in rows]),
        "position_ids": ragged([list(range(len(prompt + response))) for prompt, response, _ in rows]),
    }
    data = tu.get_tensordict({**fields, "multi_modal_inputs": [{} for _ in rows]})  # as of texts in a training
    told = {"temperature": temperature, "calculate_entropy": True, "use_remove_padding": False, **flags}
    tu.assign_non_tensor(data, **told)
    return data


def outcome(one: Any, rows: list[Row], critic: bool, **flags: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What the loss reads at trained tokens, and all gradients of a loss made of it."""
    seen: dict[str, torch.Tensor] = {}
    mask = torch.tensor([value for _, _, mask in rows for value in mask]).bool()

    def loss(model_output: dict, data: TensorDict, dp_group: Any) -> tuple[torch.Tensor, dict]:
        found = torch.zeros(())
        for name, values in model_output.items():
            assert torch.equal(values.offsets(), data["input_ids"].offsets())
            rest = zip(values.unbind(), rows, strict=True)
            seen[name] = torch.cat([value[-len(row[1]) - 1 : -1] for value, row in rest])[mask]
            found = found + (seen[name] * torch.linspace(-1, 2, len(seen[name]))).sum()
        return found, {}

    one.module.zero_grad()
    result, _ = one.forward_step(batch(rows, **flags), loss, forward_only=False)
    result.backward()
    assert set(seen) == ({"values"} if critic else {"log_probs", "entropy"})
    return seen, torch.cat([w.grad.flatten() for w in one.module.parameters() if w.grad is not None])


def check(one: Any, rows: list[Row], critic: bool = False, **flags: Any) -> None:
    ours, own = outcome(one, rows, critic, **flags, **{prefixes.ASKED: True})
    theirs, verls_own = outcome(one, rows, critic, **flags)
    for name, values in theirs.items():
        assert torch.allclose(ours[name], values, atol=1e-6)
    assert torch.allclose(own, verls_own, atol=1e-6 * max(1.0, float(verls_own.abs().max())))


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    """Ragged rows, some of which repeat the beginning of another one, or all of it; observations between answers."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 5))):
        start: list[int] = []
        if rows and draw(st.booleans()):
            prompt, response, _ = draw(st.sampled_from(rows))
            whole = prompt + response
            start = whole[: draw(st.integers(1, len(whole)))]
        ids = start + draw(st.lists(st.integers(0, WORDS - 1), min_size=max(0, 2 - len(start)), max_size=7))
        cut = draw(st.integers(1, len(ids) - 1))
        mask = draw(st.lists(st.integers(0, 1), min_size=len(ids) - cut, max_size=len(ids) - cut))
        rows.append((ids[:cut], ids[cut:], mask))
    if not any(any(mask) for _, _, mask in rows):
        rows[0][2][0] = 1
    return rows


@settings(deadline=None, max_examples=30)
@given(rows=trees(), critic=st.booleans(), packed=st.booleans())
def test_an_engine_gives_the_same_with_shared_prefixes(rows, critic, packed) -> None:
    check(engine(critic), rows, critic, use_remove_padding=packed)


GROUP = [([1, 2, 3, 4, 5], [6, 7, end, 9, end], [1, 1, 0, 0, 1]) for end in (8, 8, 10, 11)] + [([1, 2, 30], [4], [1])]


@pytest.mark.parametrize("kind", ["adapter", "checkpointed"])
def test_adapters_and_checkpointing_change_nothing(kind: str) -> None:
    check(engine(**{kind: True}), GROUP)


def packed_ids(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = batch(rows)["input_ids"]
    return ids.values(), ids.offsets()


@settings(deadline=None, max_examples=50)
@given(rows=trees())
def test_a_tree_has_each_beginning_once(rows: list[Row]) -> None:
    ids = [prompt + response for prompt, response, _ in rows]
    tree = prefixes.Tree(*packed_ids(rows))
    beginnings = [tuple(one[: place + 1]) for one in ids for place in range(len(one))]
    assert len(tree.tokens) == len(set(beginnings))
    stands = [beginnings[token] for token in tree.tokens]
    assert [stands[place] for place in tree.place] == beginnings


@settings(deadline=None, max_examples=50)
@given(rows=trees(), most=st.integers(1, 30))
def test_micro_batches_are_neighbours_and_keep_to_their_tokens(rows: list[Row], most: int) -> None:
    costs = prefixes.new_tokens(*packed_ids(rows))
    parts = prefixes.neighbours(costs, most)
    assert [row for part in parts for row in part] == list(range(len(rows)))
    assert all(len(part) == 1 or sum(costs[row] for row in part) <= most for part in parts)


def test_where_it_would_not_be_exact_it_is_off() -> None:
    assert prefixes.fits(engine())
    assert not prefixes.fits(engine(attention_dropout=0.1))
    spread = engine()
    spread.use_ulysses_sp = True
    assert not prefixes.fits(spread)
    other = engine()
    other.module.set_attn_implementation("sdpa")
    assert not prefixes.fits(other)
    check(other, GROUP, **{"use_remove_padding": False})


def test_layers_that_do_not_attend_to_the_tree_end_the_pass() -> None:
    one = engine()
    one.module.model.layers[1].forward = lambda hidden, **rest: hidden
    with pytest.raises(RuntimeError, match=r"1 of the model's 2 layers .* set ragen\.share_prefixes to false"):
        outcome(one, GROUP, False, **{prefixes.ASKED: True})
