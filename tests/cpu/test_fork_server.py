"""The fork server and its client: a worker's command runs as with the plain interpreter, with the imports done."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from ragen_verl.cpu import fork_client, fork_server

SCRIPT = """
import json, os, sys
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "mine": os.environ.get("MINE"), "name": __name__,
                  "home": "HOME" in os.environ, "imported": "colorsys" in sys.modules, "path": sys.path,
                  "parent": os.getppid()}))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@contextmanager
def server(path: Path, modules: tuple):
    code = f"from ragen_verl.cpu.fork_server import *; serve({str(path)!r}, listen({str(path)!r}), {modules!r})"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_client(tmp_path: Path, address: Path, *arguments: str) -> subprocess.CompletedProcess:
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-I", "-S", fork_client.__file__, str(script), *arguments]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/a/site:",
        "MINE": "a b",
        fork_server.ADDRESS: str(address),
    }
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)


def test_a_forked_worker_has_everything_of_its_client(tmp_path):
    with server(tmp_path / "socket", ("colorsys", "a_module_that_is_not_there")) as process:
        wait_for(tmp_path / "socket")
        done = run_client(tmp_path, tmp_path / "socket", "0", "two words")
    said = json.loads(done.stdout)  # whole: it ends when the worker closes it
    assert said["imported"] and said["parent"] == process.pid
    assert said["argv"] == [str(tmp_path / "worker.py"), "0", "two words"]
    assert said["cwd"] == str(tmp_path) and said["mine"] == "a b" and not said["home"]
    assert said["name"] == "__main__"
    assert said["path"][:2] == [str(tmp_path), "/a/site"] and "" not in said["path"]
    assert "to stderr" in done.stderr


def test_without_a_server_a_plain_interpreter_runs(tmp_path):
    done = run_client(tmp_path, tmp_path / "nobody", "3")
    said = json.loads(done.stdout)
    assert done.returncode == 3
    assert not said["imported"] and said["mine"] == "a b"


def test_a_server_that_would_carry_ray_gives_up(tmp_path):
    with server(tmp_path / "socket", ("ray",)) as process:
        assert process.wait(60) == 0
    assert run_client(tmp_path, tmp_path / "socket", "0").returncode == 0


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
