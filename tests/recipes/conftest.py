"""What recipes name and no test may download: a model and tables."""

from __future__ import annotations

import json

import pytest
from small_qwen import save_model_folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with config and tokenizer in Qwen2's form, because no test may download the real ones."""
    folder = tmp_path_factory.mktemp("tiny-qwen2")
    save_model_folder(folder)
    return str(folder)


@pytest.fixture(scope="session")
def local_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Recipe -> overrides that put a small table of the same form in the place of the hub's."""
    rows = {
        "metamathqa": [
            {"query": f"{n} + 1?", "original_question": f"{n}?", "response": f"The answer is: {n + 1}"}
            for n in range(40)
        ],
        "countdown": [{"target": n + 3, "nums": [n, 1, 2]} for n in range(1, 41)],
    }
    found = {}
    for name, table in rows.items():
        file = tmp_path_factory.mktemp(name) / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in table))
        found[name] = [f"ragen.{split}.envs.0.kwargs.dataset={file}" for split in ("train", "val")]
    return found
