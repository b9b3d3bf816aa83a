"""A server that forks Ray workers from one process with all imports, so that they need not import again.

A run has nine Python processes, and each would spend 7 to 12 s of processor time on the same imports (torch, verl,
transformers, vLLM), one after the other. This server imports once and then forks a ready child for verl's driver
(`ForkedDriver`) and for each worker that Ray asks for. Ray's own setting for that is `runtime_env.py_executable`: in
recipes/hardware/cpu.yaml it is the variable `PYTHON`, and `fork_client.py` replaces the interpreter.

    python -m ragen_verl.cpu.fork_server SOCKET DESCRIPTOR   # by `start`, in `ragen-verl train` or the driver
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np

from ragen_verl.cpu.fork_client import ADDRESS, PYTHON
from ragen_verl.switch import left_out

__all__ = ["ADDRESS", "PYTHON", "listen", "serve", "start"]

_MODULES = (
    "torch._dynamo",
    "tensordict",
    "transformers.models.qwen2.modeling_qwen2",
    "torchdata.stateful_dataloader",
    "datasets",
    "hydra",
    "gymnasium",
    "peft",
    "matplotlib.pyplot",
    "openai.types.responses",
    "fastapi",
    "uvicorn",
    "aiohttp",
    "grpc",
    "opentelemetry.sdk.trace",
    "xgrammar",
    "compressed_tensors",
    "cv2",
    "vllm.v1.worker.cpu_worker",
)
"""The workers' slow imports, without Ray. Ray reads its environment while it is imported, so each worker imports Ray
itself, and everything that needs it (verl too). That is 1 s of the 12."""

_PR_SET_PDEATHSIG = 1


def start() -> subprocess.Popen | None:
    """Start the server beside this process, once per process tree; it ends with this process."""
    if ADDRESS in os.environ or "fork_server" in left_out():
        return None
    folder = tempfile.mkdtemp(prefix="ragen-verl-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[ADDRESS] = f"{folder}/socket"
    os.environ[PYTHON] = f"{sys.executable} -I -S {Path(__file__).with_name('fork_client.py')}"
    with listen(os.environ[ADDRESS]) as listener:  # before the process starts, so that no client is too early
        command = [sys.executable, "-m", "ragen_verl.cpu.fork_server", os.environ[ADDRESS], str(listener.fileno())]
        none, fds = subprocess.DEVNULL, [listener.fileno()]
        return subprocess.Popen(command, stdin=none, stdout=none, stderr=none, pass_fds=fds, start_new_session=True)


def listen(path: str) -> socket.socket:
    """The server's socket, on which clients wait until it has imported everything."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    return listener


def serve(path: str, listener: socket.socket, modules: Iterable[str] = _MODULES) -> None:
    """Import `modules` and fork a child for each client, until the parent process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    atexit.register(_quiet)  # before all others, so that a child calls it after them
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "ray" in sys.modules:  # some version of a module needs it: the clients start plain interpreters instead
        os.unlink(path)
        return
    gc.collect()
    gc.freeze()  # so that shared pages stay shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(connection)
        connection.close()


def _become(connection: socket.socket) -> NoReturn:
    """In the child: take over the client's environment, folder, standard streams and arguments, and run its command."""
    os.setpgid(0, 0)  # Ray ends a worker's whole process group, which must not be this server's
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rb") as stream:
        _, fds, _, _ = socket.recv_fds(connection, 1, 3)
        wanted = json.loads(stream.readline())
        connection.sendall(b"1")
        if wanted.get("waits"):
            _attend(connection)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS")):
        sys.modules["torch"].set_num_threads(int(threads))  # torch has read the server's variable
    np.random.seed()  # else every fork repeats the server's numbers; Python reseeds its own generator
    script, *arguments = wanted["argv"]
    module = script == "-m"
    if module:
        script, *arguments = arguments
    sys.argv = [script, *arguments]
    sys.path[0] = wanted["cwd"] if module else os.path.dirname(script)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in own if folder and folder not in sys.path]
    if module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")
    sys.exit()


def _quiet() -> None:
    """Silence C++ libraries at the end of a process (nanobind reports leaks), since a log's last line is the cause."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)


def _attend(connection: socket.socket) -> None:
    """Fork the process that runs the command, as leader of a process group, and return in it.

    The other one tells the client the new process's number and, at the end, its exit code.
    """
    leader = os.fork()
    if leader == 0:
        os.setpgid(0, 0)
        return
    os.setpgid(leader, leader)  # before the number is known to others; the process's own call may come later
    with contextlib.suppress(OSError):  # the client may be gone
        connection.sendall(f"{leader}\n".encode())
    _, status = os.waitpid(leader, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
