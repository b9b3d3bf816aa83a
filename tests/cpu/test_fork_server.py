"""The fork server: the commands of Ray's workers and of verl's driver run as plainly started, with the imports done."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragen_verl.cpu import fork_client, fork_server
from ragen_verl.cpu.forked_driver import ForkedDriver

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


def test_a_forked_worker_has_the_threads_it_was_given(tmp_path, driver, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with server(tmp_path / "socket", ("torch",)):
        wait_for(tmp_path / "socket")
        assert driver(script="import sys, torch\nsys.exit(torch.get_num_threads())").wait(60) == 3


def test_without_a_server_a_plain_interpreter_runs(tmp_path):
    done = run_client(tmp_path, tmp_path / "nobody", "3")
    said = json.loads(done.stdout)
    assert done.returncode == 3
    assert not said["imported"] and said["mine"] == "a b"


def test_a_server_that_would_carry_ray_gives_up(tmp_path):
    with server(tmp_path / "socket", ("ray",)) as process:
        assert process.wait(60) == 0
    assert run_client(tmp_path, tmp_path / "socket", "0").returncode == 0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ForkedDriver]]:
    """Starts SCRIPT as a module of the folder, with its output in a file."""

    def start(*arguments: str, script: str = SCRIPT) -> ForkedDriver:
        (tmp_path / "a_module.py").write_text(script)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(fork_server.ADDRESS, str(tmp_path / "socket"))
        return ForkedDriver([sys.executable, "-m", "a_module", *arguments], output)

    with open(tmp_path / "output", "w") as output:
        yield start


def test_a_forked_driver_is_a_process_with_an_exit_code(tmp_path, driver):
    with server(tmp_path / "socket", ("colorsys",)):
        wait_for(tmp_path / "socket")
        process = driver("7", "two words")
        assert process.wait(60) == 7 and process.poll() == 7
    said, error = (tmp_path / "output").read_text().splitlines()
    said = json.loads(said)
    assert said["imported"] and said["name"] == "__main__" and error == "to stderr"
    assert Path(said["argv"][0]).samefile(tmp_path / "a_module.py") and said["argv"][1:] == ["7", "two words"]
    assert said["cwd"] == said["path"][0] == str(tmp_path)


def test_the_last_line_of_a_driver_is_its_own(tmp_path, driver):
    script = "import os, sys\nclass Noisy:\n    def __del__(self, write=os.write): write(2, b'leaked')\none = Noisy()\n"
    with server(tmp_path / "socket", ()):
        wait_for(tmp_path / "socket")
        assert driver(script=f"{script}sys.exit('the reason')").wait(60) == 1
    assert (tmp_path / "output").read_text() == "the reason\n"


def test_a_signal_to_its_group_ends_a_forked_driver(tmp_path, driver):
    with server(tmp_path / "socket", ()):
        wait_for(tmp_path / "socket")
        process = driver(script="import time\ntime.sleep(600)")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        while (leader := process.pid) is None:
            time.sleep(0.05)
        assert process.poll() is None
        os.killpg(leader, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL


def test_a_driver_given_up_before_its_server_never_runs(tmp_path, driver):
    with fork_server.listen(str(tmp_path / "socket")) as listener:
        process = driver(script="open('ran', 'w')")
        assert process.pid is None
        process.cancel()
        inherited = f"socket.socket(fileno={listener.fileno()})"
        code = f"import socket; from ragen_verl.cpu.fork_server import *; serve('', {inherited}, ())"
        with subprocess.Popen([sys.executable, "-c", code], pass_fds=[listener.fileno()]) as serving:
            done = driver("0", script=SCRIPT).wait(60)
            serving.kill()
    assert done == 0 and not (tmp_path / "ran").exists()


def test_a_driver_starts_plainly_where_the_server_gives_up(tmp_path, driver):
    listener = fork_server.listen(str(tmp_path / "socket"))
    process = driver("5")
    listener.close()
    assert process.wait(60) == 5
    assert not json.loads((tmp_path / "output").read_text().splitlines()[0])["imported"]
    with pytest.raises(OSError):
        driver("0")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
