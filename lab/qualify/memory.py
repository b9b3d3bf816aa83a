"""The GPU memory that a recipe needs while generating, pushing weights and updating, computed from its keys.

A GB is 10^9 bytes. Per GPU; `N` GPUs share weights, gradients and moments (FSDP2), or those that share a layer do
(Megatron). The formulas, with `P` parameters of which `T` are trained, `V` vocabulary, `h` width, `i` inner width, `k`
width of keys and values, `L` blocks, `t` tokens of a micro-batch with every row at its longest:

weights             4 P (2 P where `model_dtype` is bf16); adapters come on top
Adam                8 T, from the first update on
gradients           4 T, while its model is updated
reference           on FSDP verl keeps it in main memory whatever the keys say, and brings a block at a time
gathered            2 (V h + 2 block): the embedding and two blocks in bf16, whole on every GPU; 2 P without
                    `reshard_after_forward`
activations         t * 2 (8 h + 2 k + 4 i) * L in bf16; checkpointed: t * 2 h L and one block's
logits              2 t V in bf16; an update: 2 t V more for the gradient of log-probs and 2 t V for that of an entropy
                    term; 16 bytes * 2,048 V for a chunk in float32 (`ragen_verl/patches/logits.py`)
entropy             compiled (verl's default) or chunked nothing more; else 8 t V (a softmax in float32 and its product)
fused kernels       8 V for 2,048 tokens instead of all logits
Megatron            activations and logits are divided among the GPUs that share a layer
mask                3 t^2 where packed rows go through sdpa
engine              gpu_memory_utilization * card while generating; asleep 1.5 GB (CUDA graphs, workspace); during a
                    push its weights and a bucket; nothing on the trainer's cards with devices of its own
processes           0.6 GB each for the trainer's and the engine's CUDA context

Models that wait in main memory (`param_offload`, `optimizer_offload`) count only while they are at work. Not counted:
blocks that PyTorch's allocator keeps and cannot use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from ragen_lab.qualify.shapes import Shape, shape_of

from ragen_verl.errors import RecipeError

__all__ = [
    "ASLEEP",
    "CONTEXT",
    "GB",
    "UPDATES",
    "Need",
    "Role",
    "activations",
    "cached_rows",
    "logits",
    "need",
    "passes",
    "roles",
    "tokens",
    "told",
]

GB = 1e9
CONTEXT, ASLEEP = 0.6, 1.5
UPDATES = ("update", "value")
_CHUNK = 2048


@dataclass(frozen=True)
class Role:
    """One model that is held and perhaps trained; GB per GPU.

    Attributes:
        weights: as they are stored.
        moments: Adam's.
        gradients: while it is updated.
        params_wait: weights are in main memory while others work.
        moments_wait: the same of Adam's moments.
        streamed: weights never are on the GPU as a whole.
    """

    weights: float
    moments: float
    gradients: float
    params_wait: bool
    moments_wait: bool
    streamed: bool = False

    @property
    def held(self) -> float:
        """While others work."""
        return (0.0 if self.params_wait else self.weights) + (0.0 if self.moments_wait else self.moments)

    @property
    def waiting(self) -> float:
        """In main memory meanwhile."""
        return self.weights + self.moments - self.held

    @property
    def passing(self) -> float:
        """While it computes without a gradient."""
        return (0.0 if self.streamed else self.weights) + (0.0 if self.moments_wait else self.moments)

    @property
    def updating(self) -> float:
        """While it is updated."""
        return self.weights + self.moments + self.gradients


@dataclass(frozen=True)
class Need:
    """The memory that a recipe needs on a card, GB per GPU.

    Attributes:
        generating: trainer and engine together, while the engine generates; the engine alone on devices of its own.
        pushing: while the engine receives weights.
        updating: at the worst moment of the model passes.
        engine: the engine's share of the card.
        cached: rows at their longest that the engine's KV cache holds at once; 0: not even one.
        moment: which pass is the worst.
        host: GB of main memory that wait there.
        parts: the addends of `updating`.
    """

    generating: float
    pushing: float
    updating: float
    engine: float
    cached: int
    moment: str
    host: float
    parts: dict[str, float]

    def margin(self, card: float) -> float:
        """GB that are left of a card; negative where it does not fit."""
        return card - max(self.generating, self.pushing, self.updating)

    def fits(self, card: float) -> bool:
        """Whether all moments fit, and a whole row fits into the engine's cache."""
        return self.margin(card) >= 0 and self.cached > 0


def told(config: DictConfig) -> str | None:
    """A line of `train --dry-run`: GB of an H100 at each moment; None on a CPU and for a model of unknown shape."""
    from ragen_lab.qualify.cards import CARDS

    if config.trainer.device == "cpu":
        return None
    try:
        found = need(OmegaConf.to_container(config), CARDS["h100"].gb)
    except RecipeError:
        return None
    return (
        f"of an h100's {CARDS['h100'].gb:.0f}: {found.generating:.1f} generating, {found.pushing:.1f} pushing "
        f"weights, {found.updating:.1f} in the largest pass ({found.moment}), {found.host:.0f} GB in main memory. "
        "Computed; other cards, and seconds: ragen-verl qualify --estimate RECIPE --card NAME"
    )


def need(config: Mapping[str, Any], card: float) -> Need:
    """The memory that a composed and resolved recipe needs.

    Args:
        config: verl's whole configuration.
        card: GB of one GPU; the engine's share is a part of it.
    """
    part = config["actor_rollout_ref"]
    actor, rollout, model = part["actor"], part["rollout"], part["model"]
    shape = shape_of(str(model["path"]))
    found = roles(config)
    engine = rollout["gpu_memory_utilization"] * card
    split = _megatron(actor)["tensor_model_parallel_size"] if _megatron(actor) else 1
    shared = part.get("hybrid_engine", True)
    asleep = (ASLEEP if rollout["free_cache_engine"] else engine) if shared else 0.0
    processes = CONTEXT * (1 + shared)
    held = sum(role.held for role in found.values())
    bucket = rollout["checkpoint_engine"]["update_weights_bucket_megabytes"] * 2**20 / GB
    awake = 2 * shape.parameters / rollout["tensor_model_parallel_size"] / GB + ASLEEP
    length = config["data"]["max_prompt_length"] + config["data"]["max_response_length"]
    worst, parts = "", {}
    for name, (role, kind, count, settings, block) in passes(config).items():
        own = _engine(block)
        whole = own.get("reshard_after_forward") is False
        one = {
            "held by the others": sum(other.held for key, other in found.items() if key != role),
            "weights, moments, gradients": found[role].updating if kind in UPDATES else found[role].passing,
            "gathered": 2 * (shape.parameters if whole else shape.embedding + 2 * shape.block) / GB,
            "activations": activations(shape, count, kind, bool(settings.get("enable_gradient_checkpointing"))) / split,
            "logits": 0.0 if role == "critic" else logits(shape, count, kind, block, settings) / split,
            "mask": 3 * count**2 / GB if _packed_sdpa(settings) else 0.0,
            "engine asleep, processes": asleep + processes,
        }
        if sum(one.values()) > sum(parts.values()):
            worst, parts = name, one
    return Need(
        generating=engine + (held if shared else 0.0) + processes,
        pushing=held
        + found["actor"].weights * found["actor"].params_wait
        + processes
        + bucket
        + (max(awake, asleep) if shared else 0.0),
        updating=sum(parts.values()),
        engine=engine,
        cached=cached_rows(shape, engine, length, rollout["tensor_model_parallel_size"]),
        moment=worst,
        host=sum(role.waiting for role in found.values()),
        parts=parts,
    )


def passes(config: Mapping[str, Any]) -> dict[str, tuple[str, str, int, Mapping[str, Any], Mapping[str, Any]]]:
    """The model passes of a step: name -> role, kind, tokens of a micro-batch at most, settings of model and of role.

    A kind is "update", "forward", "value" (the critic's update) or "values" (its forward pass).
    """
    part, critic = config["actor_rollout_ref"], config["critic"]
    actor, rollout, model = part["actor"], part["rollout"], part["model"]
    length = config["data"]["max_prompt_length"] + config["data"]["max_response_length"]
    found: dict[str, tuple[str, str, int, Mapping[str, Any], Mapping[str, Any]]] = {}
    found |= {
        "old log-probs": ("actor", "forward", tokens(rollout, "log_prob", length), model, {**actor, "entropy": 1})
    }
    with_models = roles(config)
    if "ref" in with_models or (_lora_rank(model) and _wants_reference(config)):
        role = "ref" if "ref" in with_models else "actor"
        found["reference"] = (role, "forward", tokens(part["ref"], "log_prob", length), model, part["ref"])
    if "critic" in with_models:
        found["values"] = ("critic", "values", tokens(critic, "forward", length), critic["model"], critic)
        found["critic update"] = ("critic", "value", tokens(critic, "ppo", length), critic["model"], critic)
    found["actor update"] = ("actor", "update", tokens(actor, "ppo", length), model, actor)
    return found


def roles(config: Mapping[str, Any]) -> dict[str, Role]:
    """The models of a recipe: actor, and reference model and critic where it has them."""
    part = config["actor_rollout_ref"]
    devices = config["trainer"]["n_gpus_per_node"] * config["trainer"]["nnodes"]
    shape = shape_of(str(part["model"]["path"]))
    lora = _lora_rank(part["model"])
    found = {"actor": _role(shape, part["actor"], devices, lora)}
    if _wants_reference(config):
        # with adapters the frozen weights are the reference model
        found |= {} if lora else {"ref": _role(shape, part["ref"], devices, 0, trained=False)}
    if config["critic"]["enable"] or config["algorithm"]["adv_estimator"] == "gae":
        found["critic"] = _role(replace(shape, tied=True), config["critic"], devices, 0)  # no output layer
    return found


def _wants_reference(config: Mapping[str, Any]) -> bool:
    return bool(config["algorithm"]["use_kl_in_reward"] or config["actor_rollout_ref"]["actor"]["use_kl_loss"])


def _role(shape: Shape, block: Mapping[str, Any], devices: int, lora: int, trained: bool = True) -> Role:
    if own := _megatron(block):
        shared = own["tensor_model_parallel_size"] * own["pipeline_model_parallel_size"]
        # bf16 weights; the distributed optimiser has float32 weights and moments; gradients stay allocated
        weights, moments, gradients = 2, 12 + 4, 0
        streamed = False
    else:
        own, shared = _engine(block), devices
        weights, moments, gradients = 2 if "bf" in str(own.get("model_dtype")) else 4, 8, 4
        streamed = not trained
    train = shape.adapter(lora) if lora else shape.parameters
    frozen = shape.parameters + (train if lora else 0)
    scale = 1 / shared / GB
    return Role(
        weights=weights * frozen * scale,
        moments=moments * train * scale if trained else 0.0,
        gradients=gradients * train * scale if trained else 0.0,
        params_wait=streamed or bool(own.get("param_offload")),
        moments_wait=bool(own.get("optimizer_offload")),
        streamed=streamed,
    )


def _engine(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """FSDP's settings of an actor, a reference model or a critic."""
    return block.get("fsdp_config") or block.get("fsdp") or {}


def _megatron(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its settings, empty where the model is on FSDP2."""
    return block.get("megatron") or {} if block.get("strategy", "megatron") == "megatron" else {}


def tokens(block: Mapping[str, Any], prefix: str, length: int) -> int:
    """Tokens of a micro-batch on one GPU at most.

    Args:
        block: verl's actor, rollout or critic.
        prefix: of its keys, "ppo", "log_prob" or "forward".
        length: of the longest row.
    """
    if block.get("log_prob_use_dynamic_bsz" if prefix == "log_prob" else "use_dynamic_bsz"):
        return max(length, int(block[f"{prefix}_max_token_len_per_gpu"]))
    return length * int(block.get(f"{prefix}_micro_batch_size_per_gpu") or block["ppo_micro_batch_size_per_gpu"])


def activations(shape: Shape, count: int, kind: str, checkpointed: bool) -> float:
    """GB of what a pass keeps of all blocks, or of one where nothing is kept for a gradient."""
    keys = shape.kv_heads * shape.head
    block = 2 * (8 * shape.hidden + 2 * keys + 4 * shape.inner)
    if kind not in UPDATES:
        return count * block / GB
    if checkpointed:
        return count * (2 * shape.hidden * shape.layers + block) / GB
    return count * block * shape.layers / GB


def logits(shape: Shape, count: int, kind: str, block: Mapping[str, Any], model: Mapping[str, Any]) -> float:
    """GB of logits and what is computed of them."""
    if model.get("use_fused_kernels"):
        return 8 * shape.vocabulary * _CHUNK / GB
    engine = _engine(block)
    chunked = engine.get("entropy_from_logits_with_chunking") or block.get("entropy_from_logits_with_chunking")
    compiled = engine.get("use_torch_compile", False)
    entropy = block.get("entropy") or block.get("entropy_coeff", 0.0) or block.get("calculate_entropy", False)
    if kind not in UPDATES:
        entropy = block.get("entropy")
    whole = 8 * bool(entropy and not chunked and not compiled)
    gradients = (2 + 2 * bool(entropy)) * (kind in UPDATES)
    return shape.vocabulary * (count * (2 + gradients + whole) + 16 * _CHUNK) / GB


def cached_rows(shape: Shape, engine: float, length: int, shared: int = 1) -> int:
    """Rows of a length that the engine's KV cache holds, after its bf16 weights and 1.5 GB for itself."""
    row = length * shape.layers * 2 * shape.kv_heads * shape.head * 2 / shared
    left = engine * GB - 2 * shape.parameters / shared - ASLEEP * GB
    return max(0, int(left // row))


def _packed_sdpa(model: Mapping[str, Any]) -> bool:
    attention = (model.get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    return bool(model.get("use_remove_padding")) and attention == "sdpa"


def _lora_rank(model: Mapping[str, Any]) -> int:
    return int(model.get("lora_rank") or (model.get("lora") or {}).get("rank") or 0)
