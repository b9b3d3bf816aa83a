"""One vLLM server for folders that differ in their weights alone, and another one where they differ in more."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
import torch
from ragen_lab.evaluate import server
from ragen_lab.evaluate.server import NAME, Servers
from safetensors.torch import load_file, save_file

from ragen_verl.cpu import nano_model
from ragen_verl.switch import WITHOUT

NANO = Path(nano_model.__file__).parent
OPTIONS = {"dtype": "float32", "max_model_len": 400}


def model(folder: Path, seed: int, **config: int) -> Path:
    """A copy of the nano model with noise in its weights."""
    shutil.copytree(NANO, folder, ignore=shutil.ignore_patterns("tools", "__pycache__"))
    weights, noise = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(seed)
    moved = {
        name: one + (0.002 * torch.randn(one.shape, generator=noise)).to(one.dtype) for name, one in weights.items()
    }
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    (folder / "README.md").write_text(f"the model of {seed}")
    return folder


@pytest.fixture
def log(monkeypatch) -> Iterator[list[str]]:
    """What is asked of a server that answers every POST as vLLM does; `refuse` in the list lets it answer 500."""
    said: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            said.append(f"{self.path} {Path(body['kwargs']['weights_path']).name}" if body else self.path)
            self.send_response(500 if "refuse" in said else 200)
            self.end_headers()
            self.wfile.write(b'{"success": true}')

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()

    @contextmanager
    def serving(folder: Path, **_: object) -> Iterator[str]:
        said.append(f"start {folder.name}")
        yield f"http://127.0.0.1:{http.server_port}/v1"
        said.append(f"end {folder.name}")

    monkeypatch.setattr(server, "serving", serving)
    yield said
    http.shutdown()
    http.server_close()


def serve(*folders: Path, **options: int) -> None:
    with Servers() as servers:
        for folder in folders:
            with servers.serving(folder, **{**OPTIONS, **options}):
                pass


def test_other_weights_are_taken_over(log, tmp_path):
    serve(model(tmp_path / "a", 1), model(tmp_path / "b", 2))
    assert log == ["start a", "/collective_rpc b", "/reset_prefix_cache", "end a"]


@pytest.mark.parametrize("change", ["config", "tokenizer", "tensors", "patches"])
def test_another_model_has_a_server_of_its_own(log, tmp_path, monkeypatch, change):
    a, b = model(tmp_path / "a", 1), model(tmp_path / "b", 2, **({"rms_norm_eps": 1} if change == "config" else {}))
    if change == "tokenizer":
        (b / "chat_template.jinja").write_text("another")
    if change == "tensors":
        weights = load_file(b / "model.safetensors")
        save_file({**weights, "more": torch.zeros(1)}, b / "model.safetensors", metadata={"format": "pt"})
    if change == "patches":
        monkeypatch.setenv(WITHOUT, "something")
    serve(a, b)
    assert log == ["start a", "end a", "start b", "end b"]


def test_a_server_that_does_not_take_weights_is_replaced(log, tmp_path):
    log.append("refuse")
    serve(model(tmp_path / "a", 1), model(tmp_path / "b", 2))
    assert [one for one in log if one.startswith(("start", "end"))] == ["start a", "end a", "start b", "end b"]


@pytest.mark.slow
def test_answers_of_new_weights_are_those_of_a_fresh_server(tmp_path):
    a, b = model(tmp_path / "a", 1), model(tmp_path / "b", 2)
    prompts = torch.randint(0, 590, (16, 40), generator=torch.Generator().manual_seed(3)).tolist()

    def answers(url: str) -> list[tuple]:
        asked = {"model": NAME, "max_tokens": 24, "temperature": 0, "logprobs": 1, "return_token_ids": True}
        found = [httpx.post(f"{url}/completions", json={**asked, "prompt": one}, timeout=60) for one in prompts]
        choices = [one.json()["choices"][0] for one in found]
        return [(one["token_ids"], one["logprobs"]["token_logprobs"]) for one in choices]

    with Servers() as servers:
        with servers.serving(a, **OPTIONS) as first:
            old = answers(first)
        with servers.serving(b, **OPTIONS) as second:
            new = answers(second)
        assert second == first
    with server.serving(b, **OPTIONS) as url:
        assert new == answers(url) != old
