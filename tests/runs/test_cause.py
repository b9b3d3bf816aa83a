"""The exception that ended a run is found in tracebacks and logs as verl, Ray, Hydra and vLLM leave them."""

from __future__ import annotations

import pytest

from ragen_verl.runs.cause import cause, ending

HUB = """\
Traceback (most recent call last):
  File "transformers/utils/hub.py", line 1, in cached_file
OSError: We couldn't connect to 'https://huggingface.co' to load the files.
Check your internet connection.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "verl/trainer/main_ppo.py", line 1, in main
hydra.errors.InstantiationException: Error in call to target 'verl.workers.config.model.HFModelConfig':
OSError("We couldn't connect to 'https://huggingface.co'")
full_key: critic.model

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
WORKER = """\
\x1b[36m(TaskRunnerV1 pid=12)\x1b[0m step:1
Traceback (most recent call last):
  File "ray/_private/worker.py", line 1, in get
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::WorkerDict.update()\x1b[39m (pid=4669, ip=172.16.0.2)
  File "verl/workers/engine_workers.py", line 1, in update
ValueError: micro-batch of [/tmp] rows
"""
ENGINE = """\
(EngineCore pid=7) Traceback (most recent call last):
(EngineCore pid=7) KeyError: 'lm_head.weight'
(vLLMHttpServer pid=8) RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HUB, "OSError: We couldn't connect to 'https://huggingface.co' to load the files."),
        (WORKER, "ValueError: micro-batch of [/tmp] rows"),
        (ENGINE, "KeyError: 'lm_head.weight'"),
        ("Traceback (most recent call last):\n  File 'x'\nAssertionError\n", "AssertionError"),
        (
            "hydra.errors.InstantiationException: Error in call\nfull_key: a.b\n",
            "hydra.errors.InstantiationException: Er",
        ),
        ("something odd\n\nfull_key: critic.model\n", "something odd"),
        ("", "no message"),
    ],
)
def test_the_cause_is_the_exception_and_not_its_reporters(text: str, found: str) -> None:
    assert cause(text).startswith(found)


def test_an_exit_code_is_said_in_words() -> None:
    assert ending(1) == "exit code 1"
    assert "SIGKILL" in ending(-9) and "memory" in ending(-9)
