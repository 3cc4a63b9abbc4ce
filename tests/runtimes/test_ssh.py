"""Boxes on another machine: how it is reached, what is carried, what is left there. Against a real sshd on loopback."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit.evals import evaluate
from _kit.loop import in_loop
from _kit.provider import Provider, Received, call_tool, say
from _kit.sshd import SSHD, Sshd

from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Box, Command, File, Gate, Needs, PathError
from hotswap.errors import Fault, UsageError
from hotswap.runtimes.ssh import Ssh

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
KIT = Path(__file__).parent.parent


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "far") as started:
        yield started


def runtime(sshd: Sshd, **more: Any) -> Ssh:
    made = Ssh(**{**sshd.settings, **more})
    made.check()
    return made


@asynccontextmanager
async def gate() -> AsyncIterator[Gate]:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def accept(listener: Any) -> asyncio.AbstractServer:
        return await asyncio.start_server(answer, sock=listener)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield Gate("127.0.0.1", server.sockets[0].getsockname()[1], accept)


@asynccontextmanager
async def opened(ssh: Ssh, *mounts: Path, rollout: str = "r1") -> AsyncIterator[Box]:
    async with gate() as proxy, ssh.box(Needs(rollout=rollout, gate=proxy, mounts=mounts)) as box:
        yield box


async def said(box: Box, script: str) -> str:
    result = await box.run(Command(argv=("sh", "-c", script)))
    assert (result.exit, result.stderr.text) == (0, "")
    return result.stdout.text


async def pids_of(box: Box) -> list[int]:
    """The far processes of a box: its supervisor, the program that made it, and the one that waits for that."""
    supervisor = psutil.Process(int(await said(box, "echo $PPID")))
    program = supervisor.parent()
    assert program is not None
    waiting = program.parent()
    assert waiting is not None
    return [supervisor.pid, program.pid, waiting.pid]


def gone(*pids: int) -> bool:
    """Whether processes are gone, or go."""
    living = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(living, timeout=60)[1]


# Reaching the machine.


def refused(ssh: Ssh) -> str:
    """What a run is told before it begins."""

    async def begin_run() -> None:
        async with ssh.running(lambda _line: None):
            raise AssertionError("it connected")

    with pytest.raises(UsageError) as caught:
        asyncio.run(begin_run())
    (line,) = str(caught.value).splitlines()
    return line


def test_a_machine_whose_key_is_not_known_is_refused_with_what_makes_it_known(sshd: Sshd) -> None:
    (sshd.folder / "known").write_text("")
    line = refused(runtime(sshd))
    assert "cannot use far by ssh: its key is not known here" in line
    assert f"ssh -F {sshd.config} -- far" in line


def test_a_machine_with_another_key_than_the_known_one_is_refused(sshd: Sshd) -> None:
    sshd.know((sshd.folder / "key.pub").read_text())
    assert "its key is not the one that was known" in refused(runtime(sshd))


def test_a_login_that_wants_another_key_is_refused_with_what_must_work(sshd: Sshd) -> None:
    (sshd.folder / "authorized").write_text("")
    assert "it lets you in by no key; load one by ssh-add" in refused(runtime(sshd))


def test_a_machine_that_does_not_listen_is_refused(sshd: Sshd) -> None:
    with Sshd(sshd.folder / "other") as other:
        ssh = runtime(other)
    assert "nothing listens there" in refused(ssh)


def test_a_folder_there_that_boxes_cannot_be_made_in_is_refused(sshd: Sshd) -> None:
    assert "cannot make boxes in /no/such on far" in refused(runtime(sshd, root="/no/such"))


def test_an_option_that_ssh_does_not_know_is_refused(sshd: Sshd) -> None:
    assert "ssh does not know an option" in refused(runtime(sshd, options=("NoSuch=yes",)))


def test_a_machine_that_forbids_forwarding_is_blamed_on_the_runtime(tmp_path: Path) -> None:
    async def play() -> None:
        with Sshd(tmp_path / "far", "AllowTcpForwarding no") as sshd:
            with pytest.raises(Fault, match="forbids to forward ports") as caught:
                async with opened(runtime(sshd)):
                    raise AssertionError("it was forwarded")
            assert caught.value.record.blame == "runtime"
            assert list(sshd.root.iterdir()) == []

    asyncio.run(play())


def test_a_machine_without_ssh_is_refused(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(sshd.folder))
    with pytest.raises(UsageError, match="there is no ssh program here"):
        runtime(sshd)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": None}, "no machine is named"),
        ({"host": "-oProxyCommand=x"}, "expected a name"),
        ({"network": "closed"}, "ssh cannot hold it"),
        ({"network": "example.org"}, "ssh cannot hold it"),
        ({"config": "no-such-file"}, "no-such-file is no file"),
        ({"options": "Compression"}, "expected NAME=value"),
        ({"env": "OPENAI_API_KEY=sk"}, "holds a provider's key"),
        ({"connect_s": 0}, "expected seconds"),
    ],
)
def test_settings_that_cannot_work_are_refused(sshd: Sshd, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        runtime(sshd, **settings)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [({"image": "x"}, "image"), ({"network": "closed"}, "network"), ({"workdir": "/app"}, "work in /app")],
)
def test_tasks_that_ask_for_what_a_folder_cannot_be_are_refused(asked: dict[str, Any], reason: str) -> None:
    assert reason in (Ssh(host="far").refuses(Environment(**asked)) or "")
    assert Ssh(host="far").refuses(Environment()) is None


@in_loop
async def test_what_a_login_shell_prints_and_a_persons_configuration_changes_nothing(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        '#!/bin/sh\necho "Welcome! hotswap"\necho "news" >&2\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    noisy.chmod(0o755)
    with Sshd(tmp_path / "far", f"ForceCommand {noisy}") as sshd:
        with sshd.config.open("a") as file:
            file.write("  ControlMaster auto\n  ControlPath ~/%C\n  ControlPersist 60\n  RemoteCommand cat\n")
            file.write(
                "  RequestTTY force\n  RemoteForward 1 127.0.0.1:1\n  ForwardAgent yes\n  LogLevel QUIET\n"
            )
        async with opened(runtime(sshd)) as box:
            assert await said(box, "echo here; echo ${SSH_AUTH_SOCK:-none}") == "here\nnone\n"


@in_loop
async def test_many_boxes_share_one_connection(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with ssh.running(lambda _line: None):

        async def play(number: int) -> str:
            async with opened(ssh, rollout=f"r{number}") as box:
                await box.put({"file": File(b"%d" % number)})
                return await said(box, "cat file")

        assert await asyncio.gather(*map(play, range(20))) == [str(number) for number in range(20)]
        assert len(sshd.connections()) == 1


# What is there, and what is not.


@in_loop
async def test_a_box_has_the_far_machines_variables_and_those_that_are_given_and_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDED", "on")
    monkeypatch.setenv("OURS", "x")
    with Sshd(tmp_path / "far", environment={"TZ": "Asia/Tokyo", "FAR_SECRET": "x"}) as sshd:
        async with opened(runtime(sshd, env=("HANDED", "SET=1"))) as box:
            script = (
                'echo "$TZ,$HANDED,$SET,${OURS-},${FAR_SECRET-},${SSH_CONNECTION-}"; echo "$HOME" "$TMPDIR"'
            )
            first, second = (await said(box, script)).splitlines()
    assert first == "Asia/Tokyo,on,1,,,"
    assert second == f"{box.home} {box.home.removesuffix('home')}tmp"


@in_loop
async def test_limits_that_are_not_held_are_said(sshd: Sshd) -> None:
    async with gate() as proxy:
        needs = Needs(rollout="r", gate=proxy, environment=Environment(cpus=1, memory_mb=100))
        async with runtime(sshd).box(needs) as box:
            assert box.made.not_enforced == ("cpus", "memory_mb")


@in_loop
async def test_another_user_is_refused(sshd: Sshd) -> None:
    async with opened(runtime(sshd)) as box:
        with pytest.raises(Fault, match="everything on far runs as") as caught:
            await box.start(Command(argv=("true",), user="nobody"))
    assert caught.value.record.blame == "taskset"


@in_loop
async def test_a_path_that_leads_outside_is_refused_on_the_far_machine(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    async with opened(runtime(sshd)) as box:
        await said(box, f"ln -s {tmp_path} out; ln -s {tmp_path}/secret link")
        for path in ("out/secret", "link", f"{tmp_path}/secret", "../../x", "/etc/passwd"):
            with pytest.raises(PathError, match="leads outside"):
                await box.get([path])
        for path in ("out/new", f"{tmp_path}/new", "../x"):
            with pytest.raises(PathError, match="leads outside"):
                await box.put({path: File(b"x")})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "secret"]


# What is carried.


@in_loop
async def test_a_folder_is_carried_once_for_its_content_and_again_where_it_was_changed(
    sshd: Sshd, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder é"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "run").write_text("#!/bin/sh\necho ran\n")
    (folder / "deep" / "run").chmod(0o755)
    (folder / "link").symlink_to("deep/run")
    lines: list[str] = []

    async def play() -> Path:
        ssh = runtime(sshd)
        async with ssh.running(lines.append), opened(ssh, folder) as box:
            inside = box.locate(folder / "link")
            assert (await box.run(Command(argv=(inside,)))).stdout.text == "ran\n"
            return Path(inside)

    first = await play()
    assert first.is_relative_to(sshd.cache)
    assert len(lines) == 1
    assert "carrying a folder é to far, once" in lines[0]
    assert await play() == first
    assert len(lines) == 1
    (first.parent / "deep" / "run").write_text("#!/bin/sh\necho spoilt\n")
    assert await play() == first
    assert len(lines) == 2


@in_loop
async def test_two_evals_that_carry_the_same_at_once_find_it_whole(sshd: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "data").write_bytes(os.urandom(1 << 22))

    async def play() -> str:
        async with opened(runtime(sshd), folder) as box:
            return await said(box, f"cksum < '{box.locate(folder / 'data')}'")

    first, second = await asyncio.gather(play(), play())
    assert first == second
    (there,) = (path for path in (sshd.cache / "hotswap" / "carried").iterdir() if path.suffix != ".lock")
    assert (there / "tree" / "data").read_bytes() == (folder / "data").read_bytes()


APPLETS = ("sh", "cat", "echo", "mkdir", "mv", "pwd", "rm", "tar", "test", "uname")


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Sshd]:
    """A machine that has one static program, and no Python, no library and no loader."""
    if not shutil.which("bwrap") or not shutil.which("busybox"):
        pytest.skip("bubblewrap or a static busybox is not installed")
    root = tmp_path / "root"
    for name in ("bin", "etc", "proc", "dev", "tmp", "var/tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc" / "passwd").write_text(f"me:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/sh\n")
    enter = tmp_path / "enter"
    enter.write_text(
        f"#!/bin/sh\nexec bwrap --bind {root} / --proc /proc --dev /dev --setenv HOME /tmp --setenv PATH /bin"
        ' --unsetenv XDG_CACHE_HOME -- /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    enter.chmod(0o755)
    with Sshd(tmp_path / "far", f"ForceCommand {enter}") as sshd:
        yield sshd


@in_loop
async def test_a_machine_without_a_python_is_given_ours_once(bare: Sshd) -> None:
    lines: list[str] = []
    for _ in range(2):
        ssh = runtime(bare, root="/var/tmp")
        async with ssh.running(lines.append), opened(ssh) as box:
            assert await said(box, "echo *; echo $HOME") == f"*\n{box.home}\n"
            await box.put({"file": File(b"there")})
            assert (await box.get(["file"]))["file"].content == b"there"
    assert [line for line in lines if "carrying a Python to far, which has none, once" in line] == lines[-1:]


# What is left.


@in_loop
async def test_nothing_stays_behind_after_a_normal_end(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with ssh.running(lambda _line: None):
        async with opened(ssh) as box:
            far = await pids_of(box)
            left = int(await said(box, "(trap '' TERM HUP; sleep 1000) >/dev/null 2>&1 & echo $!"))
            folder = Path(box.workdir).parent
            assert folder.is_dir()
            await said(box, "mkdir locked; touch locked/file; chmod 0 locked")
        assert not folder.exists()
        assert gone(left)
    assert gone(*far)
    assert list(sshd.root.iterdir()) == []


EVAL = """
import asyncio, sys
sys.path[:0] = sys.argv[1:2] + [sys.argv[1] + "/runtimes"]
from hotswap.runtimes.ssh import Ssh
from hotswap.contracts.runtime import Command
from hotswap.processes import guard
from test_ssh import opened, pids_of
import json
async def main():
    async with opened(Ssh(**json.loads(sys.argv[2]))) as box:
        far = await pids_of(box)
        process = await box.start(Command(argv=("sh", "-c", "trap '' TERM HUP; echo $$; while :; do sleep 1; done")))
        async for data in process.output():
            print(*far, data.decode(), flush=True)
guard()
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_stays_behind_when_the_eval_is_killed(sshd: Sshd, number: int) -> None:
    argv = [sys.executable, "-c", EVAL, str(KIT), json.dumps(sshd.settings)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        far = [int(word) for word in process.stdout.readline().split()]
        assert len(far) == 4
        assert all(map(psutil.pid_exists, far))
        process.send_signal(number)
    assert gone(*far)
    assert list(sshd.root.iterdir()) == []


def master() -> psutil.Process:
    """The process here that holds the connection."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "-M" in process.cmdline():
                return process
    raise AssertionError("there is no connection")


@pytest.mark.parametrize("what", ["sshd", "ssh"])
@in_loop
async def test_a_lost_connection_is_noticed_at_once_and_the_next_box_has_a_new_one(
    sshd: Sshd, what: str
) -> None:
    ssh = runtime(sshd)
    async with ssh.running(lambda _line: None):
        async with opened(ssh) as box:
            far = await pids_of(box)
            waiting = await box.start(Command(argv=("sleep", "1000")))
            if what == "sshd":
                sshd.cut()
            else:
                master().kill()
            with pytest.raises(Fault, match="the connection to far is lost") as caught:
                await waiting.wait()
            assert (caught.value.record.blame, caught.value.record.type) == ("runtime", "connection_lost")
            assert not await box.alive()
            with pytest.raises(Fault, match="is lost"):
                await box.run(Command(argv=("true",)))
            with pytest.raises(Fault, match="is lost"):
                await box.put({"file": File(b"")})
        async with opened(ssh) as box:
            assert await said(box, "echo again") == "again\n"
        assert gone(*far)
    assert list(sshd.root.iterdir()) == []


@in_loop
async def test_a_box_that_is_killed_is_blamed_on_the_runtime_and_the_others_go_on(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with ssh.running(lambda _line: None), opened(ssh) as one, opened(ssh, rollout="r2") as two:
        supervisor, *_ = await pids_of(one)
        waiting = await one.start(Command(argv=("sleep", "1000")))
        psutil.Process(supervisor).kill()
        with pytest.raises(Fault, match="the box ended while it was in use"):
            await waiting.wait()
        with pytest.raises(Fault, match="the box ended"):
            await one.run(Command(argv=("true",)))
        assert not await one.alive()
        assert await said(two, "echo here") == "here\n"
    assert list(sshd.root.iterdir()) == []


@in_loop
async def test_when_the_far_program_is_killed_the_one_that_waits_for_it_leaves_nothing(sshd: Sshd) -> None:
    async with opened(runtime(sshd)) as box:
        supervisor, program, waiting = await pids_of(box)
        running = await box.start(Command(argv=("sleep", "1000")))
        psutil.Process(program).kill()
        with pytest.raises(Fault, match="the connection to far is lost"):
            await running.wait()
    assert gone(supervisor, waiting)
    assert list(sshd.root.iterdir()) == []


@in_loop
async def test_what_a_crash_there_left_is_removed_by_clean_and_nothing_else_is(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with opened(runtime(sshd)) as living:
        async with opened(runtime(sshd)) as box:
            _, program, waiting = await pids_of(box)
            left = psutil.Process(int(await said(box, "sleep 1000 >/dev/null 2>&1 & echo $!")))
            for pid in (waiting, program):
                psutil.Process(pid).kill()
            folder = Path(box.workdir).parent
        assert folder.is_dir()
        (sshd.root / "hotswap.ssh-notes").mkdir()
        (sshd.root / "other").mkdir()
        assert await ssh.clean() == [f"{folder} on far"]
        assert gone(left.pid)
        assert await said(living, "echo living") == "living\n"
        assert not folder.exists()
    assert sorted(path.name for path in sshd.root.iterdir()) == ["hotswap.ssh-notes", "other"]


def by_hand(line: str, typed: str = "") -> str:
    return subprocess.run(["sh", "-c", line], input=typed, capture_output=True, text=True, check=True).stdout


@in_loop
async def test_a_kept_box_can_be_entered_and_removed_by_the_lines_that_are_said(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with opened(ssh) as box:
        await box.put({"file": File(b"kept")})
        process = await box.start(Command(argv=("sleep", "1000")))
        kept = box.keep()
        folder = Path(box.workdir).parent
    assert kept is not None
    assert (await process.wait()).ended_by == "us"
    assert "kept" in by_hand(kept.enter, "cat file; exit\n")
    by_hand(kept.remove)
    assert not folder.exists()


@in_loop
async def test_a_kept_box_is_removed_by_clean(sshd: Sshd) -> None:
    ssh = runtime(sshd)
    async with opened(ssh) as box:
        box.keep()
    folder = Path(box.workdir).parent
    assert folder.is_dir()
    assert await ssh.clean() == [f"{folder} on far"]
    assert list(sshd.root.iterdir()) == []


# Whole evals.


def without_the_moment(value: Any) -> Any:
    """A trace as it is on every runtime: without ids, times, and what the runtime is called."""
    if isinstance(value, dict):
        left_out = {"id", "run", "started", "timing", "runtime", "name", "box", "key"}
        return {
            name: without_the_moment(each)
            for name, each in value.items()
            if name not in left_out and not name.endswith("_s")
        }
    return [without_the_moment(each) for each in value] if isinstance(value, list) else value


def turn(request: Received) -> Any:
    """Have a command run, and then answer."""
    if request.json["messages"][-1]["role"] == "tool":
        return say("42")
    return call_tool("bash", {"command": "echo $((6 * 7)); ls -A; cat in"})


def play(folder: Path, url: str, *words: str) -> Any:
    folder.mkdir()
    rows = ("jsonl", "--taskset.path", "../rows.jsonl")
    done = evaluate(folder, *rows, *words, "-m", f"s@{url}", "-H", "loop,tools=bash")
    assert done.code == 0, done.stderr
    (trace,) = done.traces
    return trace


def test_the_loop_over_ssh_gives_the_trace_that_it_gives_here(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "What?", "answer": "42", "files": {"in": "given"}}\n')
    with Provider(turn) as provider:
        here = play(tmp_path / "here", provider.url, "-r", "local")
        there = play(tmp_path / "there", provider.url, *sshd.flags)
        asked = [request.json for request in provider.requests]
    assert (here["cell"]["runtime"], there["cell"]["runtime"]) == ("local", "ssh")
    assert without_the_moment(here) == without_the_moment(there)
    assert asked[:2] == asked[2:]
    assert list(sshd.root.iterdir()) == []


def test_a_rollout_whose_connection_is_lost_is_tried_again_over_a_new_one(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "What?", "answer": "42"}\n')
    calls = []

    def answer(_request: object) -> Any:
        calls.append(1)
        if len(calls) == 1:
            sshd.cut()
        return say("42")

    with Provider(answer) as provider:
        done = evaluate(
            tmp_path,
            "jsonl",
            "--taskset.path",
            "rows.jsonl",
            *sshd.flags,
            "-m",
            f"s@{provider.url}",
            "--retries",
            "1",
        )
    assert done.code == 0, done.stderr
    (trace,) = done.traces
    assert trace["outcome"] == "scored"
    assert [each["error"] and each["error"]["type"] for each in trace["tries"]] == ["connection_lost", None]
    assert list(sshd.root.iterdir()) == []


def test_an_eval_that_cannot_connect_says_why_before_anything_runs(sshd: Sshd, tmp_path: Path) -> None:
    (sshd.folder / "known").write_text("")
    with Provider(lambda _request: say("42")) as provider:
        done = evaluate(tmp_path, "reverse_text", "-n", "1", *sshd.flags, "-m", f"s@{provider.url}")
    assert done.code == 2
    assert "its key is not known here" in done.stderr
    assert provider.requests == []
