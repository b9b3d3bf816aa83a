"""The sandbox: what programs in it cannot do, and that nothing runs where it cannot isolate."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from ragen_envs.sandbox import SANDBOXES, Limits, SandboxError, bubblewrap, open_sandbox
from ragen_envs.sandbox.protocol import kept
from ragen_envs.sandbox.seccomp import seccomp_filter
from sandboxed import SANDBOX

from ragen_verl.errors import RecipeError

SMALL = Limits(seconds=2.0, memory=128 * 2**20, processes=24, disk=4 * 2**20, output=4096)


@pytest.fixture
def sandbox():
    with open_sandbox(limits=SMALL) as opened:
        yield opened


def python(sandbox, code: str, **kwargs):
    return sandbox.run(["python3", "-c", textwrap.dedent(code)], **kwargs)


def processes_of(sandbox) -> list[int]:
    """Processes of the machine that descend from the sandbox's bwrap, itself included."""
    found, todo = [], [sandbox._process.pid]
    while todo:
        one = todo.pop()
        children = Path(f"/proc/{one}/task/{one}/children")
        if children.exists():
            found.append(one)
            todo += map(int, children.read_text().split())
    return found


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


@SANDBOX
def test_programs_read_and_write_files_of_the_sandbox_alone(sandbox) -> None:
    sandbox.write("folder/a.py", "import sys; print(sys.stdin.read() + 'ü')")
    result = sandbox.run(["python3", "folder/a.py"], stdin="hällo ")
    assert (result.output, result.code, result.stopped) == ("hällo ü\n", 0, "")
    assert sandbox.run(["sh", "-c", "echo 7 > b; exit 3"]).code == 3
    assert sandbox.read("b") == b"7\n" and sandbox.read("folder/a.py", most=6) == b"import"
    assert sandbox.run(["no-such-program"]).code == 127
    for path in ("none", "folder", "/proc/1/environ", "a\0b"):
        with pytest.raises(OSError):
            sandbox.read(path)
    sandbox.run(["mkfifo", "pipe"])
    with pytest.raises(OSError):
        sandbox.read("pipe")
    with pytest.raises(OSError):
        sandbox.write("pipe", "x")


@SANDBOX
def test_nothing_of_the_host_is_there(sandbox, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RAGEN_SECRET", "s3cret")
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    shown = python(
        sandbox,
        f"""
        import os, socket
        print(sorted(os.listdir("/")), dict(os.environ), os.path.exists({str(secret)!r}))
        print([name for _, name in socket.if_nameindex()])
        print(len([one for one in os.listdir("/proc") if one.isdecimal()]))
        try:
            socket.create_connection(("127.0.0.1", 22), 0.2)
        except OSError as error:
            print(type(error).__name__)
        """,
    ).output
    assert "s3cret" not in shown and "RAGEN" not in shown and "False" in shown
    first, network, processes, connection = shown.splitlines()
    assert not {"home", "root", "etc/passwd", "var", "work/main"} & set(first.split("'"))
    assert (network, processes, connection) == ("['lo']", "2", "ConnectionRefusedError")
    with pytest.raises(OSError):
        sandbox.read(str(secret))


@SANDBOX
@pytest.mark.skipif(os.geteuid() != 0, reason="this process is not root")
def test_root_becomes_another_user_first(sandbox) -> None:
    for pid in processes_of(sandbox):
        status = dict(
            one.split(":\t", 1) for one in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in one
        )
        assert set(status["Uid"].split()) == {"65534"} == set(status["Gid"].split())


@SANDBOX
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/proc/sys/kernel/hostname', 'w').write('x')",
        "open('/proc/sysrq-trigger', 'w').write('b')",
        "open('/proc/1/mem', 'rb')",
        "open('/proc/1/environ', 'rb')",
        "os.listdir('/proc/1/fd')",
        "open('/x', 'w')",
        "open('/usr/x', 'w')",
        "open('/dev/x', 'w')",
        "open('/etc/x', 'w')",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "os.memfd_create('x')",
        "call('unshare', '-U', 'true')",
        "call('mount', '-t', 'tmpfs', 'x', '/tmp')",
        "call('nsenter', '-t', '1', '-m', 'true')",
        "libc(165, b'x', b'/tmp', b'tmpfs', 0, 0)",  # mount
        "libc(101, 16, 1, 0, 0)",  # ptrace
        "libc(321, 0, 0, 0)",  # bpf
        "libc(0x40000000 + 39)",  # getpid of the second numbering
    ],
)
def test_the_way_out_is_shut(sandbox, attempt) -> None:
    if attempt.startswith("libc") and os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86_64")
    result = python(
        sandbox,
        f"""
        import ctypes, os, socket, subprocess
        def call(*argv):
            subprocess.run(argv, check=True, capture_output=True)
        def libc(*values):
            if ctypes.CDLL(None, use_errno=True).syscall(*values) < 0:
                raise OSError(ctypes.get_errno(), "refused")
        try:
            {attempt}
        except (OSError, subprocess.CalledProcessError):
            print("shut")
        """,
    )
    assert result.output == "shut\n", result


@SANDBOX
def test_a_fork_bomb_ends_in_time_and_leaves_nothing(sandbox) -> None:
    result = sandbox.run(["sh", "-c", "f() { f | f & }; f; sleep 60"])
    assert result.stopped == "time" or result.code != 0
    assert python(sandbox, "import os; print(sum(one.isdecimal() for one in os.listdir('/proc')))").output == "2\n"
    result = python(sandbox, "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
    assert result.stopped == "time" and result.seconds < 10
    assert sandbox.run(["echo", "alive"]).output == "alive\n"
    assert len(processes_of(sandbox)) == 2  # bwrap and the agent


@SANDBOX
def test_output_is_bounded_while_it_is_read(sandbox) -> None:
    result = python(sandbox, "for _ in range(10_000): print('x' * 2**20)")  # 10 GB
    assert result.stopped == "output" and len(result.output) < 2 * SMALL.output
    result = python(sandbox, "print('begin' + 'x' * 20_000 + 'end')")
    assert result.stopped == "" and result.output.startswith("beginx") and result.output.endswith("xend\n")
    assert f"... {20_009 - SMALL.output} bytes left out ..." in result.output


@SANDBOX
def test_memory_and_files_are_bounded(sandbox) -> None:
    assert "MemoryError" in python(sandbox, "x = bytearray(2**30)").output
    shared = """
        import mmap, os, time
        for _ in range(8):
            if not os.fork():
                block = mmap.mmap(-1, 64 * 2**20)
                for place in range(0, len(block), 4096):
                    block[place] = 1
                time.sleep(60)
        time.sleep(60)
    """
    assert python(sandbox, shared).stopped == "memory"
    for folder, most in (("/work", SMALL.disk), ("/tmp", SMALL.disk), ("/dev/shm", 2**20)):
        shown = python(sandbox, f"open('{folder}/x', 'wb').write(bytes(2 * {most}))").output
        assert "No space left" in shown
    assert "No space left" in python(sandbox, "for i in range(9): open(f'{i}', 'wb').write(bytes(2**20))").output


@SANDBOX
def test_a_number_that_takes_for_ever_ends_in_time(sandbox) -> None:
    for code in ("print(len(str(3 ** 2 ** 30)))", "x = 2 ** 2 ** 30 * 3 ** 2 ** 26", "while True: pass"):
        result = python(sandbox, code, seconds=1.0)
        assert result.stopped in ("time", "memory") or result.code != 0, result
        assert result.seconds < 5
    assert sandbox.run(["sleep", "60"], seconds=0.2).stopped == "time"


@SANDBOX
def test_no_child_outlives_its_parent(sandbox) -> None:
    result = python(
        sandbox,
        """
        import os, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                while True:
                    time.sleep(0.05)
                    open("tick", "a").write("x")
            os._exit(0)
        time.sleep(0.3)
        """,
    )
    assert (result.code, result.stopped) == (0, "")
    ticks = len(sandbox.read("tick"))
    time.sleep(0.3)
    assert len(sandbox.read("tick")) == ticks > 0
    assert len(processes_of(sandbox)) == 2


@SANDBOX
def test_the_first_process_cannot_be_killed_from_inside(sandbox) -> None:
    assert python(sandbox, "import os\nfor one in (9, 15, 19, 11): os.kill(1, one)\nprint('on')").output == "on\n"
    assert sandbox.run(["sh", "-c", "kill -9 -1"]).code in (0, 1, -signal.SIGKILL)
    assert sandbox.run(["echo", "alive"]).output == "alive\n"


@SANDBOX
def test_a_link_shows_nothing_of_the_host(sandbox, tmp_path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    sandbox.write("secret", "mine")
    racing = f"(while :; do ln -sfn {tmp_path} d; ln -sfn . d; done) & sleep 0.2"
    assert sandbox.run(["sh", "-c", racing]).code == 0  # and nobody is left to race with the host
    assert len(processes_of(sandbox)) == 2
    for target in (tmp_path, ".", "/proc/self/root", "/proc/1/root", "/proc/1/cwd/../../.."):
        sandbox.run(["ln", "-sfn", str(target), "d"])
        with suppress(OSError):
            assert sandbox.read("d/secret") in (b"mine", b"changed")
        with suppress(OSError):
            assert sandbox.read(f"d{tmp_path}/secret") != b"s3cret"
        with suppress(OSError):
            sandbox.write("d/secret", "changed")
    assert (tmp_path / "secret").read_text() == "s3cret"


@SANDBOX
def test_a_host_that_is_killed_in_a_call_leaves_nothing() -> None:
    code = """
        import sys
        from ragen_envs.sandbox import open_sandbox
        sandbox = open_sandbox()
        print(sandbox._process.pid, flush=True)
        sandbox.run(["sh", "-c", "sleep 60 & sleep 60"], seconds=9)
    """
    host = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)

    class Seen:
        _process = type("", (), {"pid": int(host.stdout.readline())})

    deadline = time.monotonic() + 10
    while len(processes_of(Seen)) < 5 and time.monotonic() < deadline:  # bwrap, agent, sh and both sleeps
        time.sleep(0.02)
    pids = processes_of(Seen)
    assert len(pids) == 5
    host.kill()
    host.wait()
    assert gone(pids)


@SANDBOX
@pytest.mark.parametrize("which", [0, 1])
def test_a_sandbox_that_is_killed_in_a_call_says_so(which) -> None:
    with open_sandbox(limits=SMALL) as sandbox:
        pids = processes_of(sandbox)
        threading.Timer(0.3, os.kill, (pids[which], signal.SIGKILL)).start()
        with pytest.raises(SandboxError, match="has ended"):
            sandbox.run(["sleep", "60"])
        assert gone(pids[1:])
        with pytest.raises(SandboxError):
            sandbox.run(["true"])


@SANDBOX
def test_a_closed_sandbox_has_no_processes_and_runs_nothing(sandbox) -> None:
    pids = processes_of(sandbox)
    sandbox.close()
    sandbox.close()
    assert gone(pids)
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run(["true"])
    with pytest.raises(TypeError):
        pickle.dumps(sandbox)
    with pytest.raises(TypeError, match="list"):
        sandbox.run("true")  # type: ignore[arg-type]


@SANDBOX
def test_it_lives_on_when_the_thread_that_opened_it_ends() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        sandbox = pool.submit(open_sandbox).result()
    time.sleep(0.2)
    assert sandbox.run(["echo", "here"]).output == "here\n"
    sandbox.close()


@pytest.mark.parametrize(
    "body",
    [
        "exit 1",
        "sleep 60",
        "echo not json",
        "echo '" + json.dumps({"pid": 1, "capabilities": 0, "no_new_privileges": 1, "seccomp": 0}) + "'",
    ],
)
def test_it_refuses_to_start_where_it_cannot_isolate(tmp_path, monkeypatch, body) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *_, **__: str(fake))
    monkeypatch.setattr(bubblewrap, "_START_S", 0.5)
    monkeypatch.setattr(bubblewrap.os, "geteuid", lambda: 1)  # another user may not be allowed to read this folder
    with pytest.raises(SandboxError, match="isolate"):
        open_sandbox()


def test_without_bubblewrap_or_a_known_processor_nothing_starts(monkeypatch) -> None:
    monkeypatch.setattr(bubblewrap, "seccomp_filter", lambda: None)
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *_, **__: "/usr/bin/bwrap")
    with pytest.raises(SandboxError, match="x86_64"):
        open_sandbox()
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *_, **__: None)
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        open_sandbox()


def test_limits_and_kinds_are_checked() -> None:
    for bad in (0, -1, True, "1"):
        with pytest.raises(RecipeError, match="memory"):
            Limits(memory=bad)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="bubblewrap"):
        open_sandbox("buble")
    assert "bubblewrap" in SANDBOXES


def test_what_is_left_out_of_an_output_is_counted() -> None:
    assert kept(b"ab", b"cd", 4) == "abcd"
    assert kept(b"ab", b"\xff", 10) == "ab\n... 7 bytes left out ...\n�"


def test_the_jumps_of_the_filter_stay_inside() -> None:
    filter = seccomp_filter()
    assert filter is None or len(filter) % 8 == 0
    for place in range(0, len(filter or b""), 8):
        jumps = filter[place + 2], filter[place + 3]
        assert place // 8 + 1 + max(jumps) < len(filter) // 8 or filter[place] == 0x06
