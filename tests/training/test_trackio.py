"""trackio, one of the trackers that verl knows: its database in the run's folder has the metrics under their names."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LACKING = ("trackio", "gradio-client", "orjson", "brotli", "python-multipart")
LOGGED = {0: {"val-env/success": 0.25, "train/return": 1.5}, 1: {"val-env/success": 0.5}}
CODE = """
import sys
from pathlib import Path
from ragen_verl.training.trackers import write_inside
write_inside(Path(sys.argv[1]), 0, ["trackio"])
from verl.utils.tracking import Tracking
tracking = Tracking("project", "experiment", ["trackio"], {})
for step, metrics in %r.items():
    tracking.log(metrics, step)
tracking.finish()
"""


def test_trackio_has_the_metrics_under_their_names(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), *LACKING]
    subprocess.run(pip, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "VERL_PLATFORM": "cpu"}
    command = [sys.executable, "-c", CODE % LOGGED, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    (database,) = (tmp_path / "run").rglob("*.db")
    with sqlite3.connect(database) as found:
        rows = found.execute("select step, metrics from metrics order by step").fetchall()
    assert {step: json.loads(metrics) for step, metrics in rows} == LOGGED
