"""The local runtime: what it gives, what it refuses, and that nothing is left of its boxes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit.loop import in_loop

from hotswap.contracts.runtime import Command, File, Gate, Needs, PathError, Result
from hotswap.errors import Fault, UsageError
from hotswap.runtimes.local import Local, LocalBox


async def nowhere(listener: socket.socket) -> asyncio.AbstractServer:
    raise AssertionError("a local box needs no other way to the proxy")


NEEDS = Needs(rollout="r1", gate=Gate("127.0.0.1", 4321, nowhere))


async def shell(local: Local, script: str) -> Result:
    async with local.box(NEEDS) as box:
        return await box.run(Command(argv=("sh", "-c", script)))


async def variables(local: Local) -> dict[str, str]:
    lines = (await shell(local, "env")).stdout.text.splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_the_help_says_that_it_is_no_boundary() -> None:
    assert "no security boundary" in (Local.__doc__ or "")
    assert not Local.closed


@in_loop
async def test_an_environment_is_made_of_an_allow_list() -> None:
    assert {*await variables(Local())} - {"LANG", "LANGUAGE", "TZ", "OLDPWD", "_", "LD_LIBRARY_PATH"} <= {
        name
        for name in os.environ
        if name.startswith(("LC_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "NODE_EXTRA"))
    } | {"PATH", "HOME", "TMPDIR", "PWD", "SHLVL", "TERM", "NO_PROXY", "no_proxy", "GIT_CEILING_DIRECTORIES"}


@in_loop
async def test_programs_of_our_own_environment_are_found_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = str(Path(sys.prefix, "bin"))
    monkeypatch.setenv("PATH", f"{ours}:/usr/bin:/bin")
    assert (await variables(Local()))["PATH"] == f"/usr/bin:/bin:{ours}"


@in_loop
async def test_further_variables_are_set_or_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", "mine")
    found = await variables(Local(env=["PASSED_ON", "GIVEN=a=b"]))
    assert (found["PASSED_ON"], found["GIVEN"]) == ("mine", "a=b")


@pytest.mark.parametrize(
    "entry", ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN=x", "HF_TOKEN", "aws_secret_access_key=x"]
)
def test_a_providers_key_may_not_enter_a_box(entry: str) -> None:
    with pytest.raises(UsageError, match="holds a provider's key"):
        Local(env=[entry]).check()


def test_a_variable_that_is_not_set_here_is_refused() -> None:
    with pytest.raises(UsageError, match="NO_SUCH_NAME=value"):
        Local(env=["NO_SUCH_NAME"]).check()


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing is no folder"):
        Local(root=str(tmp_path / "missing")).check()
    Local(root=str(tmp_path)).check()


@in_loop
async def test_boxes_are_made_outside_of_what_programs_distrust() -> None:
    async with Local().box(NEEDS) as box:
        assert not Path(box.workdir).is_relative_to("/tmp")
        assert not Path(box.workdir).is_relative_to(Path.home())
        assert box.url == "http://127.0.0.1:4321"


@in_loop
async def test_nothing_is_left_of_a_box_however_it_was_left(tmp_path: Path) -> None:
    script = "mkdir -p a/b; echo x > a/b/c; chmod 400 a/b/c; chmod 500 a/b; chmod 000 a; sleep 1000 & echo $!"
    pid = int(bytes((await shell(Local(root=str(tmp_path)), script)).stdout))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@in_loop
async def test_nothing_is_left_of_a_box_that_is_left_by_an_error_or_a_cancellation(tmp_path: Path) -> None:
    local, inside = Local(root=str(tmp_path)), asyncio.Event()
    with pytest.raises(LookupError):
        async with local.box(NEEDS):
            raise LookupError

    async def play() -> None:
        async with local.box(NEEDS) as box:
            await box.put({"file": File(b"")})
            inside.set()
            await box.run(Command(argv=("sleep", "1000")))

    task = asyncio.create_task(play())
    await inside.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert not list(tmp_path.iterdir())


def a_process_with_a_box(root: Path, code: str) -> subprocess.Popen[str]:
    """Start a process that is guarded and runs `code`, in which `make()` opens a box below `root` and closes it."""
    return subprocess.Popen(
        [sys.executable, "-c", GUARDED + code, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


GUARDED = """
import asyncio, os, signal, sys
from pathlib import Path
from hotswap.contracts.runtime import Gate, Needs
from hotswap.processes import guard
from hotswap.runtimes.local import Local

async def make():
    async with Local(root=sys.argv[1]).box(Needs(rollout="r1", gate=Gate("127.0.0.1", 4321, None))) as box:
        return box.folder

guard()
"""


def await_wardens(process: subprocess.Popen[str]) -> None:
    """Let the process end, which waits for its input, and wait until its warden has done its work."""
    wardens = psutil.Process(process.pid).children()
    assert wardens
    process.communicate(input="")
    assert psutil.wait_procs(wardens, timeout=30)[1] == []


def test_a_kill_at_the_very_moment_a_box_is_made_leaves_no_folder(tmp_path: Path) -> None:
    code = """
def kill(frame, event, function):
    if event == "c_return" and function is os.mkdir:
        print(*os.listdir(sys.argv[1]), flush=True)
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)

sys.setprofile(kill)
asyncio.run(make())
"""
    process = a_process_with_a_box(tmp_path, code)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("hotswap-")
    await_wardens(process)
    assert process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_boxs_name_that_was_made_after_the_box_is_nobodys_to_remove(tmp_path: Path) -> None:
    code = """
folder = asyncio.run(make())
folder.mkdir()
print(folder.name, flush=True)
sys.stdin.read()
"""
    process = a_process_with_a_box(tmp_path, code)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    await_wardens(process)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@in_loop
async def test_a_box_that_cannot_be_made_leaves_no_folder(tmp_path: Path) -> None:
    class Broken(LocalBox):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            raise OSError("no room")

    class Breaking(Local):
        box_type = Broken

    with pytest.raises(OSError, match="no room"):
        async with Breaking(root=str(tmp_path)).box(NEEDS):
            pass
    assert list(tmp_path.iterdir()) == []


@in_loop
async def test_a_box_whose_folder_was_removed_is_not_alive() -> None:
    async with Local().box(NEEDS) as box:
        assert await box.alive()
        await box.run(Command(argv=("sh", "-c", 'rmdir "$PWD"')))
        assert not await box.alive()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../outside", "../..", "sub/../../..", "../../../../../etc/passwd"]
)
@in_loop
async def test_paths_of_the_machine_are_no_paths_of_a_box(path: str) -> None:
    async with Local().box(NEEDS) as box:
        with pytest.raises(PathError, match="leads outside the box"):
            await box.get([path])
        with pytest.raises(PathError, match="leads outside the box"):
            await box.put({path: File(b"")})


@in_loop
async def test_another_user_is_refused() -> None:
    async with Local().box(NEEDS) as box:
        with pytest.raises(Fault, match="not as somebody"):
            await box.run(Command(argv=("true",), user="somebody"))


@in_loop
async def test_a_root_with_a_long_and_odd_name_works(tmp_path: Path) -> None:
    root = tmp_path / "with space & 日本" / ("x" * 150)
    root.mkdir(parents=True)
    assert (await shell(Local(root=str(root)), 'cd "$HOME" && touch "$TMPDIR/x" && pwd')).exit == 0
