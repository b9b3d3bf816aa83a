"""The probes on verl's own worker with the nano model: cross scores, gradient norms, and a training left as it was."""

from __future__ import annotations

import json
import socket
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_queue import MemoryQueue
from recipe_composition import hydra_finds_verl
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_verl.config.probes import GradientSignal, MutualInformation
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.diagnostics.mutual_information import measure
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.training import gradient_norms as on_worker
from ragen_verl.training import probes
from ragen_verl.training.agent_loop import RECORD
from ragen_verl.training.batch import TrajectoryReader
from ragen_verl.training.probes import cross_rows, lay_out, row_sums, update_rows

KL_COEF, ENTROPY_COEFF = 0.3, 0.2
SIZES = [(5, 7), (9, 4), (3, 3), (4, 6)]  # prompt and response tokens of the rows


@settings(deadline=None)
@given(st.lists(st.integers(2, 90), min_size=1, max_size=40), st.integers(1, 5), st.none() | st.integers(1, 8))
def test_rows_are_dealt_evenly(lengths, ranks, most):
    places = lay_out(lengths, ranks, most)
    assert sorted(row for row in places.order if row >= 0) == list(range(len(lengths)))
    share = len(places.order) // ranks
    assert len(places.order) == share * ranks and share % places.micro == 0
    assert most is None or places.micro <= most
    assert share - places.micro < -(-len(lengths) // ranks)  # no pass of padding alone on every rank
    totals = [sum(lengths[r] for r in places.order[k * share : (k + 1) * share] if r >= 0) for k in range(ranks)]
    assert max(totals) - min(totals) <= max(lengths)


# -- verl's worker ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process_group():
    """A group of one process, as verl's workers find theirs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "RANK": 0,
            "WORLD_SIZE": 1,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }.items():
            environment.setenv(name, str(value))
        yield
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@cache
def recipe():
    overrides = [
        "actor_rollout_ref.actor.use_kl_loss=true",
        f"actor_rollout_ref.actor.kl_loss_coef={KL_COEF}",
        f"actor_rollout_ref.actor.entropy_coeff={ENTROPY_COEFF}",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
    ]
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        return compose("nano/frozen_lake", overrides).actor_rollout_ref


def build():
    from verl.workers.engine_workers import ActorRolloutRefWorker

    worker = ActorRolloutRefWorker(recipe().copy(), role="actor")
    worker.init_model()
    return worker


@pytest.fixture(scope="module")
def worker(process_group):
    return build()


@cache
def nano_model():
    return AutoModelForCausalLM.from_pretrained(nano_model_path(), dtype=torch.float32)


@pytest.fixture
def model():
    return nano_model()


def columns(seed: int = 0) -> dict[str, list[torch.Tensor]]:
    """Rows of an update as TransferQueue holds them, one tensor a row; old and reference policy are near the model."""
    rng = torch.Generator().manual_seed(seed)
    found: dict[str, list[torch.Tensor]] = {}
    for prompt, response in SIZES:
        ids = torch.randint(4, 300, (prompt + response,), generator=rng)
        mask = (torch.rand(response, generator=rng) < 0.8).to(torch.int64)
        mask[0] = 1
        with torch.no_grad():
            logits = nano_model()(ids[None]).logits[0, prompt - 1 : -1].log_softmax(-1)
        now = logits.gather(-1, ids[prompt:, None])[:, 0]
        for name, value in {
            "prompts": ids[:prompt],
            "responses": ids[prompt:],
            "input_ids": ids,
            "position_ids": torch.arange(prompt + response),
            "response_mask": mask,
            "loss_mask": mask,
            "old_log_probs": now + 0.2 * torch.randn(response, generator=rng),
            "ref_log_prob": now + torch.randn(response, generator=rng),
            "advantages": torch.randn(response, generator=rng),
        }.items():
            found.setdefault(name, []).append(value)
    return found


def rows(data, chosen=(0, 1, 2, 3), most=2):
    from verl.utils import tensordict_utils as tu

    places = lay_out([len(data["input_ids"][row]) for row in chosen], 1, most)
    batch = update_rows(data, chosen, places)
    tu.assign_non_tensor(batch, micro_batch_size_per_gpu=places.micro, global_batch_size=len(chosen), temperature=1.0)
    return batch


def direct_norms(model, data, chosen) -> dict[str, float]:
    """The three gradient norms from autograd on the plain model, formulas written out, mean over the masked tokens."""
    clip = (recipe().actor.clip_ratio_low, recipe().actor.clip_ratio_high)
    terms: dict[str, list[torch.Tensor]] = {"task": [], "entropy": [], "kl": []}
    for row in chosen:
        prompt, mask = len(data["prompts"][row]), data["response_mask"][row].bool()
        logits = model(data["input_ids"][row][None]).logits[0, prompt - 1 : -1].log_softmax(-1)
        log_prob = logits.gather(-1, data["responses"][row][:, None])[:, 0][mask]
        ratio, advantage = (log_prob - data["old_log_probs"][row][mask]).exp(), data["advantages"][row][mask]
        worst = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip[0], 1 + clip[1]))
        dual = torch.minimum(worst, -advantage * recipe().actor.clip_ratio_c)  # dual clip, for negative advantages
        terms["task"].append(torch.where(advantage < 0, dual, worst))
        terms["entropy"].append(-(logits.exp() * logits).sum(-1)[mask])
        difference = (data["ref_log_prob"][row][mask] - log_prob).clamp(-20, 20)
        terms["kl"].append((difference.exp() - difference - 1).clamp(-10, 10))
    norms = {}
    for name, values in terms.items():
        grads = torch.autograd.grad(torch.cat(values).mean(), list(model.parameters()), retain_graph=True)
        norms[name] = float(torch.stack([grad.norm() for grad in grads]).norm())
    return norms


@pytest.mark.parametrize(("chosen", "most"), [((0, 1, 2, 3), 2), ((0, 1, 2, 3), 4), ((3, 0, 1), 2), ((2,), 1)])
def test_norms_are_those_of_the_formulas(worker, model, chosen, most):
    """However rows are cut into passes, and with a padding row among them."""
    data = columns()
    found = on_worker.gradient_norms(worker, rows(data, chosen, most))
    assert min(found.values()) > 0.1
    assert found == pytest.approx(direct_norms(model, data, chosen), rel=1e-3)


def test_without_a_reference_model_there_is_no_kl(worker):
    data = columns()
    whole = on_worker.gradient_norms(worker, rows(data))
    del data["ref_log_prob"]
    assert on_worker.gradient_norms(worker, rows(data)) == pytest.approx(
        {name: whole[name] for name in ("task", "entropy")}
    )


def test_training_is_the_same_with_and_without_the_probe(process_group):
    """Two updates each, from the same start: metrics and weights equal to the last bit."""
    from verl.utils import tensordict_utils as tu

    def train(probed: bool) -> tuple[list, list]:
        trained, metrics = build(), []
        for seed in range(2):
            if probed:
                on_worker.gradient_norms(trained, rows(columns(seed)))
            batch = rows(columns(seed))
            tu.assign_non_tensor(batch, calculate_entropy=True, mini_batch_size=4, epochs=1, seed=1)
            found = tu.get(trained.update_actor(batch), "metrics")
            metrics.append({name: found[name] for name in ("loss", "grad_norm", "actor/pg_loss", "kl_loss")})
        return metrics, [value.full_tensor() for value in trained.actor.engine.module.state_dict().values()]

    (plain, weights), (probed, same) = train(False), train(True)
    assert str(probed) == str(plain)
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))
    start = nano_model().state_dict().values()
    assert not all(torch.equal(a, b) for a, b in zip(weights, start, strict=False))


def test_components_add_up_to_verls_own_loss(worker, model):
    """task - entropy_coeff x entropy + kl_loss_coef x kl is what verl minimises."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    data = columns()
    batch = rows(data, most=None)
    tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=int(batch["loss_mask"].values().sum()))
    outputs = {"log_probs": [], "entropy": []}
    for ids in batch["input_ids"].unbind():
        with torch.no_grad():
            logits = model(ids[None]).logits[0].log_softmax(-1)
        outputs["log_probs"].append(logits.gather(-1, ids.roll(-1)[:, None])[:, 0])
        outputs["entropy"].append(-(logits.exp() * logits).sum(-1))
    output = {name: torch.nested.as_nested_tensor(found, layout=torch.jagged) for name, found in outputs.items()}
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        actor = recipe().actor.copy()
        actor.loss_agg_mode = mode
        whole = float(ppo_loss(omega_conf_to_dataclass(actor), dict(output), batch)[0])
        actor.use_kl_loss = False
        config = omega_conf_to_dataclass(actor)
        task, entropy, kl = (
            float(loss(config, output, batch)[0])
            for loss in (on_worker._task_loss, on_worker._entropy_loss, on_worker._kl_loss)
        )
        assert whole == pytest.approx(task - ENTROPY_COEFF * entropy + KL_COEF * kl, rel=1e-4)
        assert min(abs(task), abs(entropy), abs(kl)) > 1e-3


def test_cross_scores_are_the_models_log_probs(worker, model):
    """Through verl's log-prob pass, dealt to two ranks and with padding rows, back in the order that was asked for."""
    from verl.utils import tensordict_utils as tu

    rng = np.random.default_rng(0)
    cells = [tuple(rng.integers(4, 300, size=n).tolist() for n in sizes) for sizes in rng.integers(1, 30, (7, 2))]
    places = lay_out([len(x) + len(z) for x, z in cells], ranks=2, most=3)
    batch = cross_rows(cells, places)
    assert batch.batch_size[0] == len(places.order) > len(cells)
    assert int(batch["loss_mask"].values().sum()) == sum(len(z) for _, z in cells)
    tu.assign_non_tensor(
        batch, micro_batch_size_per_gpu=2, calculate_entropy=False, compute_loss=False, temperature=1.0
    )
    found = row_sums(worker.compute_log_prob(batch)["log_probs"], cells, places)
    for (prompt, response), value in zip(cells, found, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *response]])).logits[0].log_softmax(-1)
        direct = sum(float(logits[len(prompt) + place - 1, token]) for place, token in enumerate(response))
        assert value == pytest.approx(direct, rel=1e-4)


def test_an_error_in_the_pass_gives_everything_back(worker):
    training = worker.actor
    loss, step = training.loss_fn, training.engine.optimizer.step

    def broken(**_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), on_worker._no_step(training), on_worker._loss(training, broken):
        training.train_batch(rows(columns()))
    assert training.loss_fn is loss and training.engine.optimizer.step == step


def test_the_probe_leaves_the_random_numbers_as_they_were():
    before = torch.get_rng_state()
    with on_worker._same_random_numbers():
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_optimizer_that_is_none_of_torchs_is_refused():
    training = SimpleNamespace(engine=SimpleNamespace(optimizer=object()))
    with pytest.raises(RecipeError, match="fsdp"), on_worker._no_step(training):
        pass


# -- a whole measurement ----------------------------------------------------------------------------------------------
# Real worker and records; in the place of TransferQueue and of verl's dispatch to several workers stand a dict and one
# direct call.

TEXTS = ["go up</think><answer>Up</answer>", "left</think><answer>Left</answer>", "no tag", "down</think><answer>"]


def tokens(text: str) -> list[int]:
    return nano_tokenizer().encode(text, add_special_tokens=False)


@cache
def nano_tokenizer():
    return AutoTokenizer.from_pretrained(nano_model_path())


def played(row_per_turn: bool) -> dict[str, dict]:
    """Key -> row of five groups of two; the first two start alike, the last failed. Some have two turns."""
    found = {}
    for group in range(5):
        for rollout_index in range(2):
            prompt = tokens(f"State: {'GOX_'[max(0, group - 1)]} _ P<think>")
            turns = [Turn("", prompt, tokens(TEXTS[(group + rollout_index) % 4]), reward=float(rollout_index * group))]
            if rollout_index:
                between = tokens("Reward: 0 State: P<think>")
                history = prompt + turns[0].response_ids + between if row_per_turn else between
                turns.append(Turn("", history, tokens(TEXTS[group % 4])))
            trajectory = Trajectory(
                "Env", group, rollout_index, prompt_ids=prompt, turns=turns, row_per_turn=row_per_turn
            )
            if group == 4:
                trajectory.stop_reason = StopReason.ENV_ERROR
            for index, row in enumerate(rows_of(trajectory)):
                ids, size = torch.tensor(row.prompt_ids + row.response_ids), len(row.response_ids)
                rng = torch.Generator().manual_seed(group)
                found[f"u{group}_{rollout_index}_{index}"] = {
                    "prompts": torch.tensor(row.prompt_ids),
                    "responses": torch.tensor(row.response_ids),
                    "input_ids": ids,
                    "position_ids": torch.arange(len(ids)),
                    "response_mask": torch.tensor(row.response_mask),
                    "loss_mask": torch.tensor(row.response_mask),
                    "old_log_probs": -torch.rand(size, generator=rng),
                    "advantages": torch.randn(size, generator=rng),
                    "extra_fields": {
                        RECORD: "" if index else json.dumps(trajectory.record()),
                        "turns": row.turns,
                        "turn_ends": row.ends,
                    },
                }
    return found


@pytest.fixture(params=[False, True], ids=["row", "row_per_turn"])
def step(request, worker, monkeypatch):
    """A trainer, a batch with one padding row, its trajectories and the queue's rows, as the probes meet them."""
    queue = MemoryQueue(played(request.param))
    monkeypatch.setattr("transfer_queue.kv_batch_get", queue.kv_batch_get)
    monkeypatch.setattr(probes, "_on_workers", lambda trainer, function, data: function(worker, data))
    trainer = SimpleNamespace(
        config=SimpleNamespace(actor_rollout_ref=recipe()),
        tokenizer=nano_tokenizer(),
        global_steps=1,
        actor_rollout_wg=SimpleNamespace(_dispatch_info={"actor": [0]}, compute_log_prob=worker.compute_log_prob),
    )
    found = TrajectoryReader().read(queue.batch())
    queue.rows["pad_0_0"] = {}
    batch = queue.batch()
    del queue.rows["pad_0_0"]
    return trainer, batch, found, queue.rows


def cross_scores(pairs) -> tuple[np.ndarray, list[int], list[int]]:
    """All thoughts under all distinct contexts by the plain model."""
    contexts = list(dict.fromkeys(context for context, _ in pairs))
    scores = np.zeros((len(pairs), len(contexts)))
    for i, (_, thought) in enumerate(pairs):
        for j, context in enumerate(contexts):
            with torch.no_grad():
                logits = nano_model()(torch.tensor([[*context, *thought]])).logits[0].log_softmax(-1)
            scores[i, j] = sum(float(logits[len(context) + t - 1, token]) for t, token in enumerate(thought))
    return scores, [contexts.index(context) for context, _ in pairs], [len(thought) for _, thought in pairs]


def test_mutual_information_of_a_step(step):
    trainer, batch, trajectories, queue = step
    probe = probes.MutualInformationProbe(MutualInformation(enabled=True, every=5, share=1.0), 0, kept=1.0, think=True)
    found = probe(trainer, batch, trajectories)
    size = sum(len(row["input_ids"]) for row in queue.values())
    assert found["mi/forward_budget"] == 5 * 4 * size
    assert found["mi/forward_tokens"] <= found["mi/forward_budget"]
    # four groups that did not fail, two of them alike; every answer but one in four has a thought
    pairs = []
    for group in range(4):
        for rollout_index in range(2):
            text, _, rest = TEXTS[(group + rollout_index) % 4].partition("</think>")
            if rest:
                pairs.append((tuple(queue[f"u{group}_{rollout_index}_0"]["prompts"].tolist()), tuple(tokens(text))))
    direct = measure(*cross_scores(pairs))
    assert direct["prompts"] == 3 and direct["responses"] == 6
    for name, value in direct.items():
        assert found[f"mi/first_turn/{name}"] == found[f"mi/{name}"] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    assert found["mi/sampled_turns/responses"] >= 2
    turns = [text for group in range(4) for text in (*(TEXTS[(group + m) % 4] for m in range(2)), TEXTS[group % 4])]
    assert found["mi/valid_ratio"] == pytest.approx(sum("</think>" in text for text in turns) / len(turns))
    assert "mi/skipped" not in found
    trainer.global_steps = 2
    assert probe(trainer, batch, trajectories) == {}


def test_mutual_information_of_so_many_samples(step):
    trainer, batch, trajectories, _ = step
    config = MutualInformation(enabled=True, every=5, share=1.0, samples=3)
    found = probes.MutualInformationProbe(config, 0, kept=1.0, think=True)(trainer, batch, trajectories)
    assert found["mi/first_turn/responses"] == 3 and found["mi/sampled_turns/responses"] <= 3


def test_a_budget_that_is_too_small(step):
    trainer, batch, trajectories, _ = step
    small = MutualInformation(enabled=True, every=1, share=1e-4)
    probe = probes.MutualInformationProbe(small, 0, kept=1.0, think=True)
    with pytest.raises(RecipeError, match="two prompts by two responses"):
        probe(trainer, batch, trajectories)
    probe.measured = True  # an earlier measurement fitted
    assert probe(trainer, batch, trajectories) == {"mi/skipped": 1.0}


def test_gradient_signal_of_a_step(step, worker):
    trainer, batch, trajectories, queue = step
    found = probes.gradient_signal(trainer, batch, trajectories, GradientSignal(enabled=True, every=3, buckets=2))
    keys = list(queue)
    stds = {key: int(key[1]) / np.sqrt(2) for key in keys}  # returns are 0 and the group's number
    for bucket, low, high in (("all", 0, 4), ("bucket_1", 0, 2), ("bucket_2", 3, 4)):
        chosen = [key for key in keys if low <= int(key[1]) <= high]
        assert found[f"grad_norm/{bucket}/sample_count"] == len(chosen)
        assert found[f"grad_norm/{bucket}/reward_std_max"] == pytest.approx(max(stds[key] for key in chosen))
        data = {name: [queue[key][name] for key in chosen] for name in queue[keys[0]] if name != "extra_fields"}
        direct = on_worker.gradient_norms(worker, rows(data, tuple(range(len(chosen))), most=4))
        assert set(direct) == {"task", "entropy"}
        for component, norm in direct.items():
            assert found[f"grad_norm/{bucket}/{component}"] == pytest.approx(norm, rel=1e-3)
    assert found["grad_norm/all/signal_to_noise"] == pytest.approx(
        found["grad_norm/all/task"] / (ENTROPY_COEFF * found["grad_norm/all/entropy"])
    )
    trainer.global_steps = 3
    assert probes.gradient_signal(trainer, batch, trajectories, GradientSignal(enabled=True, every=3, buckets=2)) == {}
