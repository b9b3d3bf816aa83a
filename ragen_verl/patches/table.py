"""The table of all patches: what they change in verl and vLLM, why, and when each one is dead."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PATCHES", "Patch"]

_NONE = "none found (2026-11-23)"


@dataclass(frozen=True)
class Patch:
    """One change of verl, vLLM or their process.

    Attributes:
        name: `RAGEN_VERL_WITHOUT=NAME` leaves it out.
        module: what it changes, once a process has imported it; "" for what is done at once.
        function: `module:name`; called with the imported module, or without arguments.
        why: what fails or is lost without it.
        upstream: issues and pull requests on it.
        dead: from when it is not needed.
        line: (file, text in it) of the tested versions that makes it necessary; None where none does.
        test: `file::test` of what it does.
        cpu: whether it is only for processes without an accelerator.
        loader: which of the two loads it in its processes: verl or vllm.
    """

    name: str
    module: str
    function: str
    why: str
    upstream: str
    dead: str
    line: tuple[str, str] | None
    test: str
    cpu: bool = False
    loader: str = "verl"


_TRANSFER = "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer"
_TRANSFER_FILE = "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
_OURS = "it is no fault of theirs"

PATCHES = (
    Patch(
        "critic",
        "verl.utils.model",
        "ragen_verl.patches.critic:critic_without_flash_attention",
        "The critic asks for flash-attention 2, whatever the recipe says.",
        "verl#5210 (open), verl#6495 (closed)",
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/utils/model.py", 'attn_implementation="flash_attention_2"'),
        "tests/test_plugin.py::test_the_critic_patch_leaves_a_mended_verl_alone",
    ),
    Patch(
        "logits",
        "verl.utils.torch_functional",
        "ragen_verl.patches.logits:apply",
        "Without flash-attention verl computes log-probabilities token by token in Python, and keeps a float32 row of "
        "the vocabulary for each.",
        "verl#220 (merged; brought the loop), verl#3852 (open)",
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/utils/torch_functional.py", "torch.logsumexp(logit, dim=-1) for logit in logits"),
        "tests/patches/test_logits.py::test_log_probs_and_gradients_are_verls_bit_by_bit",
    ),
    Patch(
        "varlen",
        "transformers.modeling_utils",
        "ragen_verl.patches.varlen:apply",
        "Without flash-attention packed rows go through sdpa with a mask of T x T elements. Adds the attention `varlen`, "
        "which a recipe names.",
        _NONE,
        "a transformers with torch's varlen_attn",
        None,
        "tests/patches/test_varlen.py::test_a_model_gives_what_sdpa_gives_for_packed_rows",
    ),
    Patch(
        "push_failure",
        "verl.workers.rollout.vllm_rollout.vllm_rollout",
        "ragen_verl.patches.weights:keep_the_answer",
        "A push of weights waits for ever for an engine that has failed: it never looks at the engine's answer.",
        "verl#7366 (open)",
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        (_TRANSFER_FILE, "self.socket.recv()"),
        "tests/patches/test_weights.py::test_an_engine_that_raised_ends_the_push",
    ),
    Patch(
        "push_watch",
        _TRANSFER,
        "ragen_verl.patches.weights:watch_the_engine",
        "The other half of push_failure. And the engine's own error is hidden by a BufferError of its clean-up.",
        "verl#7366 (open), verl#7136 (closed)",
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        (_TRANSFER_FILE, "self.socket.recv()"),
        "tests/patches/test_weights.py::test_what_the_engine_raised_is_not_hidden_by_its_cleanup",
    ),
    Patch(
        "push_sockets",
        _TRANSFER,
        "ragen_verl.patches.weights:own_sockets",
        "Two trainings on a machine push their weights into each other's engines: the socket is named after Ray's job, "
        "whose number is 1 in every local cluster.",
        "verl#6233 (closed), verl#6246 (merged; brought the number of the job)",
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/workers/rollout/vllm_rollout/utils.py", "rl-colocate-zmq-{job_id}"),
        "tests/patches/test_weights.py::test_both_sides_of_a_push_name_their_cluster_in_the_socket",
    ),
    Patch(
        "tied_weights",
        "vllm.model_executor.models.utils",
        "ragen_verl.patches.weights:load_in_pieces",
        "verl loads weights in buckets; vLLM 0.31 and later refuses a bucket with a tied weight and not its original.",
        "vllm#51665 (merged; loads aliases of tied weights once)",
        "vLLM below 0.31 has no such check; no later one without it yet",
        ("vllm/model_executor/models/utils.py", "def _check_skipped_aliases"),
        "tests/patches/test_weights.py::test_both_generations_of_vllm_are_complete",
    ),
    Patch(
        "lora_names",
        "vllm.model_executor.models.utils",
        "ragen_verl.patches.weights:name_the_mapper",
        "verl asks vLLM for a mapper of adapters' names that has another name from vLLM 0.29 on.",
        "vllm#53106 (merged; renamed it), vllm#53224 (closed), verl#7453 (merged; asks for the old name)",
        "vLLM below 0.29; a verl that asks for both names",
        ("verl/utils/vllm/utils.py", "get_unstacked_mapper()"),
        "tests/patches/test_weights.py::test_both_generations_of_vllm_are_complete",
    ),
    Patch(
        "pause",
        "vllm.v1.engine.async_llm",
        "ragen_verl.patches.pause:pause_as_verl_asks",
        "The asynchronous trainers pause the engine with an argument that vLLM 0.32 has no more.",
        "vllm#32351 (merged; brought `mode` in its place)",
        "vLLM below 0.32; a verl that says `mode` (0.10.0.dev of 2026-08-22 does not)",
        ("verl/workers/rollout/vllm_rollout/vllm_async_server.py", "wait_for_inflight_requests=False"),
        "tests/patches/test_pause.py::test_newer_engine_is_told_in_its_own_words",
    ),
    Patch(
        "separate_log",
        "verl.trainer.ppo.v1.trainer_separate_async",
        "ragen_verl.patches.separate:log_as_verl_asks",
        "With hybrid_engine=false verl gives a logger an argument of print's, which ends the run.",
        "verl#7884 (merged; brought the line)",
        "no verl yet",
        ("verl/trainer/ppo/v1/trainer_separate_async.py", "flush=True"),
        "tests/patches/test_separate.py::test_the_log_takes_an_argument_of_print",
    ),
    Patch(
        "platform",
        "",
        "ragen_verl.cpu.patches:register_platform",
        "verl takes a machine without an accelerator for one with CUDA. A platform is registered, and torch.cpu "
        "gets the methods that verl calls on every device.",
        "verl#6086 (merged; brought the registry, without a CPU)",
        "a verl with a CPU platform of its own is left alone",
        ("verl/plugin/platform/platform_manager.py", "Falling back to 'nvidia'"),
        "tests/test_plugin.py::test_importing_verl_is_enough",
        cpu=True,
    ),
    Patch(
        "own_cluster",
        "",
        "ragen_verl.cpu.patches:stay_alone",
        "Ray would join a cluster that runs on this machine, and CUDA_VISIBLE_DEVICES would limit the logical devices. "
        "The driver sets RAY_ADDRESS to local, and unsets the other.",
        _OURS,
        "never",
        None,
        "tests/test_plugin.py::test_ray_counts_no_devices_that_are_hidden_on_the_cpu",
        cpu=True,
    ),
    Patch(
        "fork_server",
        "",
        "ragen_verl.cpu.patches:start_fork_server",
        "Nine processes of a run would import torch, verl and vLLM one after the other: 7 to 12 s of a core each.",
        _OURS,
        "never",
        None,
        "tests/cpu/test_fork_server.py::test_a_forked_worker_has_everything_of_its_client",
        cpu=True,
    ),
    Patch(
        "cpu_environment",
        "",
        "ragen_verl.cpu.patches:set_environment",
        "VERL_ENGINE_DEVICE, OMP_NUM_THREADS, RAGEN_VERL_PYTHON, RAY_prestart_worker_first_driver, "
        "VLLM_ENABLE_V1_MULTIPROCESSING and VLLM_CPU_OMP_THREADS_BIND get values for few cores; the user's own stay.",
        _OURS,
        "never",
        ("verl/workers/engine/base.py", "VERL_ENGINE_DEVICE"),
        "tests/test_plugin.py::test_settings_of_the_user_stay",
        cpu=True,
    ),
    Patch(
        "vllm_version",
        "",
        "ragen_verl.cpu.patches:answer_for_vllm",
        "verl asks for the version of vllm, and the CPU build's package is called vllm-cpu; importlib.metadata.version "
        "answers for both names.",
        _NONE,
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/third_party/vllm/__init__.py", 'package_name = "vllm"'),
        "tests/patches/test_table.py::test_each_patch_has_a_switch",
        cpu=True,
    ),
    Patch(
        "gloo",
        "verl.utils.distributed",
        "ragen_verl.cpu.patches:one_gloo_backend",
        "verl names the backend of the device `cpu` twice, which torch refuses.",
        _NONE,
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/utils/distributed.py", "cpu:gloo,{get_device_name()}"),
        "tests/trainings/test_training.py::test_every_step_is_logged_with_ragens_names",
        cpu=True,
    ),
    Patch(
        "fsdp",
        "verl.workers.engine.fsdp.transformer_impl",
        "ragen_verl.cpu.patches:fsdp_engine",
        "The reference model is offloaded with pinned memory, which needs a GPU; a small model gets one thread.",
        _NONE,
        "no verl yet (0.10.0.dev of 2026-08-22 has the line)",
        ("verl/workers/engine/fsdp/transformer_impl.py", "CPUOffloadPolicy(pin_memory=True)"),
        "tests/trainings/test_training.py::test_every_step_is_logged_with_ragens_names",
        cpu=True,
    ),
    Patch(
        "engine_threads",
        "vllm.v1.worker.cpu_worker",
        "ragen_verl.cpu.patches:engine_threads",
        "vLLM takes all cores for a model whose matrix products are shorter than the meeting of the threads.",
        _OURS,
        "never",
        ("vllm/v1/worker/cpu_worker.py", "torch.set_num_threads = skip_set_num_threads"),
        "tests/trainings/test_training.py::test_every_step_is_logged_with_ragens_names",
        cpu=True,
    ),
    Patch(
        "fork_engine",
        "vllm.platforms.cpu",
        "ragen_verl.cpu.patches:fork_engine",
        "vLLM spawns the engine's process on CPUs, which imports everything anew (14 s).",
        _NONE,
        "no vLLM yet (0.32 has the line)",
        ("vllm/platforms/cpu.py", 'os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"'),
        "tests/patches/test_table.py::test_each_patch_has_a_switch",
        cpu=True,
    ),
    Patch(
        "fork_in_actor",
        "vllm.utils.system_utils",
        "ragen_verl.cpu.patches:not_in_ray_actor",
        "The other half of fork_engine: inside a Ray actor vLLM overrules the choice of a fork.",
        _NONE,
        "no vLLM yet (0.32 has the line)",
        ("vllm/utils/system_utils.py", "if is_in_ray_actor():"),
        "tests/patches/test_table.py::test_each_patch_has_a_switch",
        cpu=True,
    ),
    Patch(
        "linear_weights",
        "vllm.model_executor.layers.utils",
        "ragen_verl.vllm_plugin:keep_linear_weights",
        "vLLM's CPU build packs linear weights and drops the originals, so that the second push of weights fails.",
        _NONE,
        "no vLLM yet (0.32 has the line)",
        ("vllm/model_executor/layers/utils.py", "remove_weight: bool"),
        "tests/test_plugin.py::test_linear_patch_leaves_a_vllm_that_keeps_weights_alone",
        loader="vllm",
    ),
    Patch(
        "sampled_ranks",
        "vllm.v1.sample.sampler",
        "ragen_verl.vllm_plugin:compile_no_ranks",
        "vLLM compiles one line, whatever enforce_eager says: 16 s before the first step on a machine. CPU build only.",
        _NONE,
        "no vLLM yet (0.32 has the line)",
        ("vllm/v1/sample/ops/logprobs.py", "@torch.compile(backend=current_platform.simple_compile_backend)"),
        "tests/test_plugin.py::test_ranks_are_counted_without_a_compiler_on_the_cpu",
        loader="vllm",
    ),
)
"""In the order in which they are applied."""
