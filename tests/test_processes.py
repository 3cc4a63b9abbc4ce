"""Processes are started cheaply, and all that came of them is ended for certain."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit.loop import in_loop

from hotswap.contracts.runtime import Result
from hotswap.processes import Family, Running, carry_through, remove_folder
from hotswap.processes.kin import Kin, kin, parse_ps, proc_table, ps_table, with_descendants
from hotswap.processes.running import watch_exit_by_thread

LINUX = sys.platform == "linux"
on_linux = pytest.mark.skipif(not LINUX, reason="only Linux has subreapers and /proc")
ENV = {"PATH": os.environ["PATH"]}

DAEMON = """
import os, signal, sys
if os.fork(): os.wait(); sys.exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
os.execlp("env", "env", "-i", sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
"""
"""Leaves by every door: two forks, a session and an environment of its own, deaf to TERM. It says its pid."""

COMET = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(4): os.fork()
if os.getpgrp() != os.getpid(): os.setsid()
os.write(1, b"%d\\n" % os.getpid())
burnt_out = time.monotonic() + 20
while time.monotonic() < burnt_out:
    if os.fork(): os._exit(0)
"""
"""Sixteen processes that are each replaced by a child of theirs, as fast as they can."""

DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program, *arguments]


async def run(*argv: str, **settings: object) -> Result:
    """Run one process to its end, and end what it left."""
    family = Family("test")
    running = await family.start(argv, env=ENV, **settings)  # type: ignore[arg-type]
    try:
        return await running.wait()
    finally:
        await family.end()


async def first_line(running: Running) -> str:
    """Wait for the first line that a process says."""
    said = b""
    async for data in running.output():
        said += data
        if b"\n" in said:
            break
    return said.partition(b"\n")[0].decode()


def is_there(pid: int) -> bool:
    """Whether a process exists, be it as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@in_loop
async def test_a_process_gives_its_outputs_and_its_exit_code() -> None:
    result = await run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.exit, result.signal, result.ended_by) == (3, None, "itself")
    assert (bytes(result.stdout), bytes(result.stderr)) == (b"out\n", b"err\n")


@in_loop
async def test_a_signal_that_ended_a_process_is_named() -> None:
    result = await run("sh", "-c", "kill -9 $$")
    assert (result.exit, result.signal, result.ended_by) == (None, 9, "itself")


@in_loop
async def test_an_environment_is_what_was_given_and_nothing_else() -> None:
    result = await Family("test").start(["/usr/bin/env"], env={"A": "é"})
    assert bytes((await result.wait()).stdout) == "A=é\n".encode()


@in_loop
async def test_bytes_that_are_no_text_go_in_and_out_unchanged() -> None:
    data = b"caf\xe9 \xff\xfe\x00 end\n\x1b[31mred\r" + bytes(range(256)) * 1000
    result = await run("cat", stdin=data)
    assert bytes(result.stdout) == data
    assert "\ufffd" in result.stdout.text


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
@in_loop
async def test_of_a_long_output_the_beginning_and_the_end_are_kept(limit: int) -> None:
    text = b"".join(b"%d\n" % number for number in range(20_000))
    output = (await run("cat", stdin=text, output_limit=limit)).stdout
    assert output.size == len(text)
    assert output.head == text[: limit // 2]
    assert output.tail == text[len(text) - (limit - limit // 2) :]


@in_loop
async def test_a_flood_of_output_costs_constant_memory() -> None:
    tracemalloc.start()
    try:
        result = await run("head", "-c", "400000000", "/dev/zero")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.stdout.size == 400_000_000
    assert peak < 8 << 20


@in_loop
async def test_a_live_stream_has_everything_and_a_slow_reader_slows_the_process() -> None:
    family = Family("test")
    running = await family.start(["head", "-c", "100000000", "/dev/zero"], env=ENV)
    stream = running.output()
    size = len(await anext(stream))
    tracemalloc.start()
    for _ in range(3000):
        await asyncio.sleep(0)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    async for data in stream:
        size += len(data)
    assert size == 100_000_000 == (await running.wait()).stdout.size


@in_loop
async def test_a_second_reader_of_a_stream_is_refused() -> None:
    family = Family("test")
    running = await family.start(python(DEAF), env=ENV)
    stream = running.output()
    assert await anext(stream)
    with pytest.raises(RuntimeError, match="a reader already"):
        await anext(running.output())
    await family.end()


@in_loop
async def test_standard_input_is_at_its_end_unless_something_is_given() -> None:
    assert bytes((await run("cat")).stdout) == b""
    assert bytes((await run("cat", stdin=b"given")).stdout) == b"given"


def test_a_program_that_reads_its_input_does_not_wait_for_ours() -> None:
    """As in `sleep 60 | eval ...`: what holds our own standard input open is no business of the program's."""
    script = """
        import asyncio, os, sys
        from hotswap.processes import Family
        async def main():
            harness = 'extra=$(cat); echo "answer: 42 (extra bytes: ${#extra})"'
            running = await Family("t").start(["sh", "-c", harness], env=dict(os.environ))
            print((await running.wait()).stdout.text, end="")
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"answer: 42 (extra bytes: 0)\n"
        assert parent.wait() == 0


@in_loop
async def test_a_conversation_goes_in_and_out_while_the_process_runs() -> None:
    family = Family("test")
    running = await family.start(["cat"], env=ENV, stdin=b"")
    stream = running.output()
    for said in (b"one", b"two"):
        await running.send(said)
        assert await anext(stream) == said
    await running.send(None)
    assert (await running.wait()).exit == 0


@in_loop
async def test_what_a_process_does_not_read_is_dropped_and_holds_nobody_up() -> None:
    assert (await run("true", stdin=b"x" * 5_000_000)).exit == 0
    family = Family("test")
    running = await family.start(["true"], env=ENV, stdin=b"")
    await running.wait()
    await running.send(b"x" * 5_000_000)


def unstartable(folder: Path) -> dict[str, tuple[list[str], int, str]]:
    (folder / "plain").write_text("no program")
    (folder / "lost").write_text("#!/no/such/interpreter\n")
    (folder / "lost").chmod(0o755)
    (folder / "garbage").write_bytes(b"\x00\x01")
    (folder / "garbage").chmod(0o755)
    return {
        "missing": (["no-such-program"], 127, "no-such-program: not found"),
        "missing path": ([str(folder / "none")], 127, "not found"),
        "no interpreter": ([str(folder / "lost")], 127, "interpreter"),
        "not executable": ([str(folder / "plain")], 126, "Permission denied"),
        "a folder": ([str(folder)], 126, "Permission denied"),
        "no program": ([str(folder / "garbage")], 126, "Exec format error"),
        "NUL": (["echo", "a\0b"], 126, "null byte"),
        "lone surrogate": (["echo", "\ud835"], 126, "surrogates not allowed"),
        "too long": (["echo", "x" * 3_000_000], 126, "too long"),
        "nothing": ([], 126, "no program was named"),
    }


UNSTARTABLE = (
    "missing",
    "missing path",
    "no interpreter",
    "not executable",
    "a folder",
    "no program",
    "NUL",
    "lone surrogate",
    "too long",
    "nothing",
)


@pytest.mark.parametrize("case", UNSTARTABLE)
@in_loop
async def test_what_cannot_be_started_exits_as_in_a_shell_and_says_why(case: str, tmp_path: Path) -> None:
    argv, code, words = unstartable(tmp_path)[case]
    result = await run(*argv)
    assert result.exit == code
    assert words in result.stderr.text


@in_loop
async def test_a_folder_to_run_in_that_is_not_there_is_named() -> None:
    result = await run("true", cwd="/no/such/folder")
    assert result.exit == 126
    assert "/no/such/folder: No such file" in result.stderr.text


@in_loop
async def test_a_time_limit_ends_the_whole_tree_and_the_result_says_so() -> None:
    family = Family("test")
    program = "setsid sleep 1000 & echo $!; wait"
    running = await family.start(["sh", "-c", program], env=ENV, timeout_s=0.5)
    child = int(await first_line(running))
    result = await running.wait()
    assert (result.exit, result.signal, result.ended_by) == (None, signal.SIGTERM, "timeout")
    assert result.elapsed_s >= 0.5
    assert not is_there(child)


@in_loop
async def test_a_time_limit_in_one_process_leaves_the_others_of_its_family() -> None:
    family = Family("test")
    other = await family.start(python(DEAF), env=ENV)
    assert await first_line(other) == "ready"
    limited = await family.start(["sleep", "1000"], env=ENV, timeout_s=0.01)
    assert (await limited.wait()).ended_by == "timeout"
    assert not other.over
    await family.end()
    assert (await other.wait()).ended_by == "us"


@in_loop
async def test_a_process_that_is_asked_to_end_may_say_good_bye() -> None:
    family = Family("test")
    program = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    running = await family.start(["sh", "-c", program], env=ENV)
    assert await first_line(running) == "ready"
    await running.end()
    result = await running.wait()
    assert (bytes(result.stdout), result.exit, result.ended_by) == (b"ready\nbye\n", 5, "us")


@in_loop
async def test_a_stopped_process_hears_that_it_is_to_end() -> None:
    family = Family("test")
    running = await family.start(
        ["sh", "-c", "trap 'exit 5' TERM; echo ready; kill -STOP $$; sleep 9"], env=ENV
    )
    assert await first_line(running) == "ready"
    os.waitid(os.P_PID, running.pid or 0, os.WSTOPPED | os.WNOWAIT)  # noqa: ASYNC222
    await family.end()
    assert (await running.wait()).exit == 5


@in_loop
async def test_a_process_that_ignores_term_is_killed() -> None:
    family = Family("test")
    running = await family.start(python(DEAF), env=ENV)
    assert await first_line(running) == "ready"
    await family.end()
    assert (await running.wait()).signal == signal.SIGKILL


@on_linux
@in_loop
async def test_a_daemon_that_left_by_every_door_is_found_and_ended() -> None:
    family = Family("test")
    running = await family.start(python(DAEMON), env=ENV)
    daemon = int(await first_line(running))
    assert (await running.wait()).exit == 0
    assert is_there(daemon)
    await family.end()
    assert not is_there(daemon)


@on_linux
@in_loop
async def test_a_daemon_outlives_the_end_of_another_family() -> None:
    mine, other = Family("mine"), Family("other")
    daemon = int(await first_line(await mine.start(python(DAEMON), env=ENV)))
    await (await other.start(["true"], env=ENV)).wait()
    await other.end()
    assert is_there(daemon)
    await mine.end()
    assert not is_there(daemon)


@on_linux
@in_loop
async def test_processes_that_multiply_while_they_are_being_killed_are_all_gone() -> None:
    reading, writing = os.pipe()  # each of them holds the one end: at the other we see when none is left
    os.set_blocking(reading, False)
    family = Family("test")
    running = await family.start(python(COMET), env=ENV, pass_fds=[writing])
    os.close(writing)
    seen = 0
    async for data in running.output():
        seen += data.count(b"\n")
        if seen >= 16:
            break
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    await family.end()
    assert os.read(reading, 1) == b""
    os.close(reading)


@on_linux
@in_loop
async def test_orphans_that_died_are_let_go_while_their_family_lives() -> None:
    family = Family("test")
    program = "for i in 1 2 3 4 5; do sh -c 'true & echo $!' ; done; echo; cat"
    running = await family.start(["sh", "-c", program], env=ENV, stdin=b"")
    said = b""
    async for data in running.output():
        said += data
        if said.endswith(b"\n\n"):
            break
    orphans = [int(pid) for pid in said.split()]
    async with asyncio.timeout(20):
        while any(is_there(pid) for pid in orphans):  # noqa: ASYNC110 (the system tells nobody)
            await asyncio.sleep(0.01)
    assert not running.over
    await family.end()


@in_loop
async def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_result() -> None:
    family = Family("test")
    running = await family.start(["sh", "-c", "sleep 1000 & echo $!"], env=ENV)
    result = await running.wait()
    child = int(bytes(result.stdout))
    assert is_there(child)
    assert not running.closed
    await family.end()
    assert not is_there(child)
    assert running.closed


@in_loop
async def test_a_child_may_write_after_its_parent_is_over(tmp_path: Path) -> None:
    family, gate, log = Family("test"), tmp_path / "gate", tmp_path / "log"
    os.mkfifo(gate)
    os.mkfifo(log)
    program = "(read word < gate; echo more && echo alive > log || echo broken > log) & echo done"
    running = await family.start(["sh", "-c", program], env=ENV, cwd=str(tmp_path))
    assert bytes((await running.wait()).stdout) == b"done\n"
    await asyncio.to_thread(gate.write_text, "go\n")
    assert await asyncio.to_thread(log.read_text) == "alive\n"
    await family.end()


@in_loop
async def test_cancelling_the_end_does_not_keep_it_from_ending_everything() -> None:
    family = Family("test")
    running = await family.start(python(DEAF), env=ENV)
    assert await first_line(running) == "ready"
    ending = asyncio.create_task(family.end())
    await asyncio.sleep(0)
    for _ in range(3):
        ending.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not is_there(running.pid or 0)


def test_an_event_loop_that_goes_away_meanwhile_does_not_either() -> None:
    async def main() -> tuple[Running, asyncio.Task[None]]:
        family = Family("test")
        running = await family.start(python(DEAF), env=ENV)
        assert await first_line(running) == "ready"
        ending = asyncio.create_task(family.end())
        await asyncio.sleep(0)
        return running, ending

    running, ending = asyncio.run(main())
    assert ending.cancelled()
    assert not kin().find([running.mark])


@in_loop
async def test_work_that_is_carried_through_passes_on_what_it_gives_and_what_it_raises() -> None:
    async def give() -> int:
        return 7

    async def fail() -> None:
        raise LookupError("lost")

    assert await carry_through(give()) == 7
    with pytest.raises(LookupError, match="lost"):
        await carry_through(fail())


@in_loop
async def test_nothing_is_left_open_after_a_family_has_ended() -> None:
    await run("true")
    before = len(list(Path("/dev/fd").iterdir()))
    family = Family("test")
    for _ in range(5):
        await (await family.start(["sh", "-c", "sleep 1000 &"], env=ENV, stdin=b"x" * 1000)).wait()
    await run("no-such-program", stdin=b"x")
    await family.end()
    assert len(list(Path("/dev/fd").iterdir())) == before


@in_loop
async def test_where_there_are_no_descriptors_of_processes_a_thread_waits() -> None:
    over = asyncio.Event()
    with subprocess.Popen(["sh", "-c", "exit 4"]) as popen:  # noqa: ASYNC220
        watch_exit_by_thread(popen, over.set)
        await over.wait()
        assert popen.returncode == 4


# Finding processes in a table, as other systems must.


@contextmanager
def family_of(record: Kin, program: str) -> Iterator[tuple[int, int, int]]:
    """A started process of `record`, with its mark and the pid that it said."""
    mark = record.next_mark()
    with record.marking(mark):
        popen = subprocess.Popen(python(program), stdout=subprocess.PIPE, env=ENV, start_new_session=True)
    record.add(popen.pid, mark)
    with popen:
        assert popen.stdout is not None
        said = int(popen.stdout.readline())
        try:
            yield popen.pid, mark, said
        finally:
            for pid in record.find([mark]):
                os.kill(pid, signal.SIGKILL)
            popen.wait()


PAIR = """
import os, signal
child = os.fork()
if not child: os.setsid(); signal.pause()
print(child, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("table", [None, *([proc_table] if LINUX else []), ps_table])
@pytest.mark.parametrize("marks", [True, False])
def test_a_process_and_its_child_are_found_in_any_table_with_marks_and_without(table, marks) -> None:  # type: ignore[no-untyped-def]
    record = Kin(table, marks=marks)
    with family_of(record, PAIR) as (pid, mark, child):
        assert sorted(record.find([mark])) == sorted([pid, child])
        assert record.find([mark])[0] == pid
        assert not record.find([mark + 1])


@on_linux
@pytest.mark.parametrize("table", [None, proc_table])
def test_an_orphan_in_a_session_of_its_own_is_found_by_its_mark(table) -> None:  # type: ignore[no-untyped-def]
    record = Kin(table)
    with family_of(record, DAEMON) as (pid, mark, daemon):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert record.find([mark]) == [daemon]


def test_an_orphan_of_the_same_group_is_found_without_marks() -> None:
    record = Kin(ps_table, marks=False)
    program = "import os, signal\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True); signal.pause()"
    with family_of(record, program) as (pid, mark, orphan):
        if LINUX:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert record.find([mark]) == [orphan]


def test_the_table_of_macos_is_read() -> None:
    rows = parse_ps(
        "    1     0     1 Ss  \n  501     1   501 S+\n  502   501   501 Z+\n  503   502   503 R\n"
    )
    assert [row.pid for row in rows if row.zombie] == [502]
    assert with_descendants([501], rows) == [501, 502, 503]


# When the eval is killed.

EVAL = """
import asyncio, os, sys
from pathlib import Path
from hotswap.processes import Family, entrust, guard, release
async def main(folder, end, *programs):
    guard()
    guard()
    (folder / "kept").mkdir(parents=True)
    (folder / "box" / "deep").mkdir(parents=True)
    (folder / "box" / "deep" / "file").write_text("x")
    (folder / "box" / "deep").chmod(0o500)
    for name in ("box", "kept"):
        entrust(folder / name)
    release(folder / "kept")
    for program in programs:
        argv = [sys.executable, "-I", "-S", "-c", program]
        running = await Family("t").start(argv, env={"PATH": os.environ["PATH"]})
        async for data in running.output():
            print(data.decode().split()[0], flush=True)
            break
    if end == "stay":
        await asyncio.Event().wait()
asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""

SAY = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


def wait_for_end(pid: int) -> None:
    """Wait until a process that is no child of ours is gone, by its descriptor."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 20)[0], f"process {pid} goes on"
    finally:
        os.close(descriptor)


def warden_of(parent: int) -> psutil.Process:
    for process in psutil.process_iter(["cmdline", "ppid"]):
        if process.info["ppid"] == parent and "warden.py" in " ".join(process.info["cmdline"] or []):
            return process
    raise LookupError(f"{parent} has no warden")


@contextmanager
def eval_like(*arguments: str, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A guarded process that has started programs, with the pids that these said; killed in the end."""
    command = [sys.executable, "-c", EVAL, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **settings) as parent:
        try:
            assert parent.stdout is not None
            yield parent, [int(parent.stdout.readline()) for _ in arguments[2:]]
        finally:
            parent.kill()


@on_linux
def test_a_killed_eval_leaves_no_process_and_no_box(tmp_path: Path) -> None:
    programs = [SAY, DAEMON, DEAF.replace('"ready"', "__import__('os').getpid()"), COMET]
    with eval_like(str(tmp_path), "stay", *programs) as (parent, pids):
        warden = warden_of(parent.pid)
        assert all(is_there(pid) for pid in pids[:3])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            warden.send_signal(number)
    for pid in [*pids, warden.pid]:
        wait_for_end(pid)
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if COMET in (process.info["cmdline"] or [])
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


@on_linux
def test_the_warden_knows_no_variable_of_ours_and_sits_in_a_session_of_its_own(tmp_path: Path) -> None:
    with eval_like(str(tmp_path), "stay", SAY, env={**os.environ, "SOME_API_KEY": "k"}) as (parent, _pids):
        warden = warden_of(parent.pid)
        assert "SOME_API_KEY" not in warden.environ()
        assert os.getsid(warden.pid) == warden.pid
    wait_for_end(warden.pid)


@on_linux
def test_an_eval_that_ends_by_itself_leaves_nothing_either(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EVAL, str(tmp_path), "go", SAY, DAEMON]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for pid in ended.stdout.split():
        wait_for_end(int(pid))


@on_linux
def test_a_guarded_process_cannot_be_looked_into() -> None:
    program = "import ctypes; from hotswap.processes import guard; guard(); print(ctypes.CDLL(None).prctl(3))"
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert ended.stdout == b"0\n"


# Folders.


def test_a_folder_is_removed_whatever_is_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    box = tmp_path / "box"
    (box / "a" / "b").mkdir(parents=True)
    (box / "a" / "b" / "file").write_text("x")
    (box / "a" / "b" / "link").symlink_to(outside)
    (box / "a" / "b" / "ü \n\udcff").write_text("x")
    os.mkfifo(box / "pipe")
    for path in (box / "a" / "b" / "file", box / "a" / "b", box / "a", box):
        path.chmod(0o000)
    assert remove_folder(str(box), 10)
    assert (outside / "file").read_text() == "stays"


def test_a_folder_is_removed_by_one_who_is_not_root() -> None:
    """Root is above all modes, so it becomes someone else for this."""
    box = Path(tempfile.mkdtemp(prefix="hotswap-test-"))
    (box / "a" / "b").mkdir(parents=True)
    (box / "a" / "b" / "file").write_text("x")
    for path in (box / "a" / "b" / "file", box / "a" / "b", box / "a"):
        if os.getuid() == 0:
            os.chown(path, 65534, 65534)
        path.chmod(0o000)
    if os.getuid() == 0:
        os.chown(box, 65534, 65534)
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setuid(65534)
        remove_folder(str(box), 10)
        os._exit(0)
    os.waitpid(child, 0)
    assert not box.exists()


def test_a_folder_that_is_deeper_than_any_path_may_be_is_removed(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    here = os.open(box, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert remove_folder(str(box), 30)


def test_removing_stops_when_its_time_is_over_and_can_be_taken_up_again(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "a").mkdir(parents=True)
    assert not remove_folder(str(box), 0)
    assert remove_folder(str(box), 10)
    assert remove_folder(str(box), 10)


@on_linux
def test_processes_are_marked_for_other_users_too() -> None:
    """The mark is read from a file that all may read, before and after a change of user."""
    if os.getuid() != 0:
        pytest.skip("takes root, to become someone else")
    record = Kin(proc_table)
    program = "import os, signal; os.setuid(65534); print(os.getpid(), flush=True); signal.pause()"
    with family_of(record, program) as (pid, mark, said):
        assert record.find([mark]) == [pid] == [said]
