"""The notebook of examples/trajectories runs from the first cell to the last."""

from __future__ import annotations

import json
import subprocess
import sys

from paths import ROOT


def test_the_notebook_on_trajectories_runs(tmp_path) -> None:
    notebook = json.loads((ROOT / "examples/trajectories/trajectories.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4 and not any(cell.get("outputs") for cell in notebook["cells"])
    code = "\n\n".join(cells)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mean standard deviation inside groups" in done.stdout
    assert "--- user" in done.stdout and "--- assistant" in done.stdout
