"""Boxes of bubblewrap: what is absent in them, what cannot be done from inside, and that nothing is left of them."""

import asyncio
import errno
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit.evals import evaluate
from _kit.loop import in_loop
from _kit.provider import Provider, Received, Reply, call_tool, say

from hotswap.contracts.environment import Environment
from hotswap.contracts.network import CLOSED, OPEN, Network
from hotswap.contracts.runtime import Box, Command, File, Gate, Kept, Needs, PathError, Process, Result
from hotswap.errors import Fault, UsageError
from hotswap.runtimes._cgroups import groups_left, make_group
from hotswap.runtimes.bwrap import Bwrap

ROOT = Path(__file__).parent.parent.parent
PYTHON = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
BASE = str(Path(sys.base_prefix).resolve())
EVERY_CAPABILITY_GONE = "0000000000000000"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


async def accept(listener: socket.socket) -> asyncio.AbstractServer:
    """What stands for the proxy, and for the way out: a word for whoever connects."""

    def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"proxy")
        writer.close()

    return await asyncio.start_server(greet, sock=listener)


NEEDS = Needs(rollout="r1", gate=Gate("127.0.0.1", 4321, accept), network=CLOSED)


@asynccontextmanager
async def opened(runtime: Bwrap | None = None, needs: Needs = NEEDS) -> AsyncIterator[Box]:
    runtime = runtime or Bwrap()
    runtime.check()
    await runtime.prepare(needs.environment, lambda _line: None)
    async with runtime.box(needs) as box:
        yield box


async def shell(box: Box, script: str, **rest: Any) -> Result:
    return await box.run(Command(argv=("sh", "-c", script), **rest))


async def said(box: Box, script: str, **rest: Any) -> str:
    result = await shell(box, script, **rest)
    assert (result.exit, result.stderr.text) == (0, "")
    return result.stdout.text


async def first_line(process: Process) -> str:
    text = b""
    async for data in process.output():
        text += data
        if b"\n" in text:
            break
    return text.partition(b"\n")[0].decode()


# What a box sees.


@in_loop
async def test_of_this_machine_only_its_system_is_there() -> None:
    async with opened() as box:
        top = set((await said(box, "ls -A /")).split())
        expected = {
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "proc",
            "run",
            "sbin",
            "tmp",
            "usr",
            "var",
            "workspace",
        }
        mounted = {Path(BASE).parts[1]}
        assert expected <= top <= expected | mounted | {"lib32", "lib64", "libx32"}
        assert await said(box, "ls -A /home /home/agent /run /var /workspace /tmp") == (
            "/home:\nagent\n\n/home/agent:\n\n/run:\nhotswap.pyc\n\n/tmp:\n\n/var:\nrun\ntmp\n\n/workspace:\n"
        )


@in_loop
async def test_nothing_of_a_home_folder_is_there_but_what_is_mounted() -> None:
    names = [str(path) for path in Path.home().iterdir() if not Path(BASE).is_relative_to(path)]
    assert names
    async with opened() as box:
        script = 'for path; do if [ -e "$path" ]; then echo "$path"; fi; done'
        result = await box.run(Command(argv=("sh", "-c", script, "sh", *names)))
        assert (result.exit, result.stdout.text) == (0, "")


@in_loop
async def test_of_etc_only_chosen_files_are_there() -> None:
    async with opened() as box:
        assert not set((await said(box, "ls -A /etc")).split()) & {
            *(
                "shadow",
                "gshadow",
                "sudoers",
                "fstab",
                "machine-id",
                "hostname",
                "ssh",
                "environment",
                "npmrc",
            ),
            *("resolv.conf", "docker", "apt", "gitconfig"),
        }
        people = [line.split(":")[0] for line in (await said(box, "cat /etc/passwd")).splitlines()]
        assert people[0] == ("root" if os.getuid() == 0 else "agent")
        assert set(people) == {people[0], "root", "nobody"}
        assert (await said(box, "id -un; hostname")).split() == [people[0], "box"]


@in_loop
async def test_the_environment_is_made_of_an_allow_list_and_a_path_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/no/such:{os.environ['PATH']}")
    monkeypatch.setenv("SOME_TOKEN", "x")
    async with opened() as box:
        found = dict(line.split("=", 1) for line in (await said(box, "env")).splitlines())
        assert found.keys() - {name for name in os.environ if name.startswith("LC_")} <= {
            *(
                "PATH",
                "HOME",
                "TMPDIR",
                "PWD",
                "OLDPWD",
                "USER",
                "TERM",
                "NO_PROXY",
                "no_proxy",
                "SHLVL",
                "_",
            ),
            *("LANG", "LANGUAGE", "TZ"),
        }
        assert (found["HOME"], found["TMPDIR"], found["PWD"]) == ("/home/agent", "/tmp", "/workspace")
        assert "/usr/bin" in found["PATH"].split(":")
        assert (
            await said(box, 'IFS=:; for each in $PATH; do if [ ! -d "$each" ]; then echo "$each"; fi; done')
            == ""
        )


@in_loop
async def test_a_program_below_a_folder_that_is_absent_runs_where_it_is_mounted() -> None:
    async with opened() as box:
        result = await box.run(Command(argv=(box.locate(Path(PYTHON)), "-I", "-c", "print(6 * 7)")))
        assert result.stdout.text == "42\n"


@in_loop
async def test_further_folders_are_read_where_the_person_says_so(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    async with opened(Bwrap(read=[str(tmp_path)], env=["GIVEN=a=b"])) as box:
        assert await said(box, f'{tmp_path}/tool; echo "$GIVEN"') == "tool\na=b\n"
        assert (await shell(box, f"echo x > {tmp_path}/tool")).exit != 0


@in_loop
async def test_a_task_says_user_variables_and_working_directory() -> None:
    asked = Environment(user="tester", workdir="/app/src", env={"TASK": "x", "HOME": "/app"})
    async with opened(needs=replace(NEEDS, environment=asked)) as box:
        await box.put({"file": File(b"here")})
        assert await said(box, 'id -un; id -u; pwd; echo "$TASK$HOME"; cat file') == (
            "tester\n1000\n/app/src\nx/app\nhere"
        )
        with pytest.raises(Fault, match="runs as tester, not as root"):
            await box.run(Command(argv=("true",), user="root"))
        assert (await box.run(Command(argv=("true",), user="tester"))).exit == 0
    async with opened(needs=replace(NEEDS, environment=Environment(user="root"))) as box:
        assert await said(box, "id -u") == "0\n"


# What cannot be done from inside.


@in_loop
async def test_a_box_has_no_rights() -> None:
    async with opened() as box:
        status = dict(
            line.split(":\t", 1) for line in (await said(box, "cat /proc/self/status")).splitlines()
        )
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert status[name] == EVERY_CAPABILITY_GONE
        assert status["NoNewPrivs"] == "1"
        for what in ("/usr/x", "/x", "/etc/x", "/bin/x", "/var/x", "/run/x", f"{BASE}/x"):
            assert (await shell(box, f"touch {what}")).exit != 0, what
        for what in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/etc/passwd", "/usr/bin/env"):
            assert (await shell(box, f": >> {what}")).exit != 0, what


SYSTEM_CALLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (425, 250, 321), "aarch64": (425, 219, 280)}[os.uname().machine]
print([(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())[1] for number in numbers])
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_VSOCK, socket.AF_ALG, 31):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("made")
    except OSError as error:
        print(error.errno)
"""


@in_loop
async def test_a_box_has_no_sockets_that_lead_past_its_network_and_no_keys_of_the_session() -> None:
    async with opened() as box:
        result = await box.run(Command(argv=(PYTHON, "-I", "-c", SYSTEM_CALLS)))
        refused, unknown = errno.ENOSYS, errno.EAFNOSUPPORT
        assert result.stdout.text.splitlines() == [str([refused] * 3), *["made"] * 3, *[str(unknown)] * 3]


@in_loop
async def test_a_command_inherits_no_descriptor_but_its_own() -> None:
    async with opened() as box:
        listed = await box.run(Command(argv=("ls", "/proc/self/fd"), stdin=b""))
        assert listed.stdout.text.split() == ["0", "1", "2", "3"]  # the last is the listing's own


@in_loop
async def test_a_box_makes_no_namespaces_of_its_own() -> None:
    async with opened() as box:
        result = await box.run(Command(argv=("unshare", "--user", "true")))
        assert result.exit != 0
        assert "unshare failed" in result.stderr.text


@in_loop
async def test_the_first_process_can_be_neither_ended_nor_looked_into() -> None:
    async with opened() as box:
        await shell(box, "kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -KILL -1")
        links = tuple(f"readlink /proc/1/{name}" for name in ("fd/0", "exe", "cwd", "root"))
        looks = (*links, "cat /proc/1/maps", "cat /proc/1/environ")
        for look in looks:
            assert (await shell(box, f"{look}; true")).stdout.size == 0, look
            assert (await shell(box, look.replace("/1/", "/self/"))).exit == 0, look
        assert await said(box, "echo goes on") == "goes on\n"


@in_loop
async def test_nothing_survives_the_end_of_all_processes_whatever_it_does() -> None:
    hostile = """
        import os, resource, signal, time
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for limit in (10, resource.RLIMIT_RTTIME):
            resource.setrlimit(limit, (5, 5))  # what a start is known by is wiped off
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                if os.fork():
                    os._exit(0)
                break
        print("ready", flush=True)
        while True:
            time.sleep(1)
    """
    script = "\n".join(line[8:] for line in hostile.splitlines())
    async with opened() as box:
        process = await box.start(Command(argv=(PYTHON, "-I", "-c", script)))
        assert await first_line(process) == "ready"
        await box.end_processes()
        assert (await process.wait()).ended_by == "us"
        numbers = await box.run(Command(argv=(PYTHON, "-I", "-c", "import os; print(*os.listdir('/proc'))")))
        assert sum(name.isdigit() for name in numbers.stdout.text.split()) == 2


@in_loop
async def test_links_are_followed_as_they_are_inside() -> None:
    async with opened() as box:
        await shell(
            box, "echo text > /tmp/note; ln -s /tmp/note link; ln -s /home/agent there; ln -s /etc/passwd out"
        )
        assert (await box.get(["link"]))["link"].content == b"text\n"
        await box.put({"there/file": File(b"put")})
        assert await said(box, "cat /home/agent/file") == "put"
        assert await box.get(["out"]) == {}


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../etc/passwd", "../../x", "/x/y", "/usr/bin/env", "/home/other"]
)
@in_loop
async def test_paths_beside_a_boxs_folders_are_refused(path: str) -> None:
    async with opened() as box:
        with pytest.raises(PathError, match="leads outside the box"):
            await box.get([path])
        with pytest.raises(PathError, match="leads outside the box"):
            await box.put({path: File(b"")})


@in_loop
async def test_a_link_that_changes_all_the_time_leads_no_file_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("untouched")
    swap = f"while :; do mkdir d; rmdir d; ln -s {tmp_path} d; rm d; done 2>/dev/null"
    async with opened() as box:
        running = await box.start(Command(argv=("sh", "-c", swap)))
        for number in range(300):
            found = {}
            try:
                await box.put({f"d/file-{number}": File(b"written")})
                found = dict(await box.get(["d/secret"]))
            except PathError:
                continue
            assert not found
        await running.end()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


# The network.


@in_loop
async def test_an_open_network_is_this_machines() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        needs = replace(NEEDS, network=OPEN, gate=Gate("127.0.0.1", port, accept))
        async with opened(Bwrap(network="open"), needs) as box:
            assert box.url == f"http://127.0.0.1:{port}"
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            assert (await box.run(Command(argv=(PYTHON, "-I", "-c", code)))).exit == 0
            assert await said(box, "cat /etc/resolv.conf") == Path("/etc/resolv.conf").read_text()


@in_loop
async def test_a_list_of_hosts_is_a_second_door_that_programs_are_told_of() -> None:
    reached = []

    async def out(listener: socket.socket) -> asyncio.AbstractServer:
        reached.append(listener.getsockname()[1])
        return await accept(listener)

    needs = replace(NEEDS, network=Network.parse("example.org"), egress=out)
    async with opened(Bwrap(network="example.org"), needs) as box:
        assert (
            await said(box, 'echo "$HTTPS_PROXY $http_proxy"')
            == " ".join([f"http://127.0.0.1:{reached[0]}"] * 2) + "\n"
        )
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {reached[0]})).recv(5))"
        assert (await box.run(Command(argv=(PYTHON, "-I", "-c", code)))).stdout.text == "b'proxy'\n"


@in_loop
async def test_a_list_of_hosts_without_a_way_out_is_no_box() -> None:
    with pytest.raises(Fault, match="no way out"):
        async with opened(Bwrap(), replace(NEEDS, network=Network.parse("example.org"))):
            pass


# Limits.


@in_loop
async def test_limits_are_held_or_it_is_said_that_they_are_not() -> None:
    asked = Environment(cpus=1, memory_mb=64, pids=30, storage_mb=100)
    async with opened(needs=replace(NEEDS, environment=asked)) as box:
        assert "storage_mb" in box.made.not_enforced
        if "pids" not in box.made.not_enforced:
            assert (await shell(box, "for i in $(seq 60); do sleep 60 & done")).exit != 0
            await box.end_processes()
        if "memory_mb" not in box.made.not_enforced:
            code = "x = bytearray(200 << 20)"
            assert (await box.run(Command(argv=(PYTHON, "-I", "-c", code)))).signal == 9
        assert await said(box, "echo whole") == "whole\n"
    async with opened() as box:
        assert box.made.not_enforced == ()


@in_loop
async def test_what_multiplies_is_ended_too() -> None:
    asked = Environment(pids=300)
    async with opened(needs=replace(NEEDS, environment=asked)) as box:
        if "pids" in box.made.not_enforced:
            pytest.skip(
                "without a limit of its processes this machine would be filled: no control group can be made"
            )
        bomb = "trap '' TERM HUP; bomb() { bomb & bomb & wait; }; bomb >/dev/null 2>&1 & echo lit"
        assert "lit" in (await shell(box, bomb)).stdout.text
        await box.end_processes()
        assert await said(box, "echo whole") == "whole\n"


V2 = {"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids"}


def test_a_group_of_version_2_is_made_below_the_nearest_that_hands_its_controllers_on(tmp_path: Path) -> None:
    """In folders of ours: the kernel of a machine has one version, and this is the other as a rule."""
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "user" / "app" / "shell").mkdir(parents=True)
    own.write_text("0::/user/app/shell\n")
    for name, text in V2.items():
        (root / name).write_text(text)
        (root / "user" / "app" / name).write_text(text)
    (root / "user" / "app" / "shell" / "cgroup.subtree_control").write_text("")
    group = make_group("x", Environment(cpus=1.5, memory_mb=64, pids=30), root, own)
    assert group.folders == (root / "user" / "app" / "hotswap-x",)
    assert group.held == {"cpus", "memory_mb", "pids"}
    group.add(4711, None)
    written = {path.name: path.read_text() for path in group.folders[0].iterdir()}
    assert written == {
        "cpu.max": "150000 100000",
        "memory.max": str(64 << 20),
        "pids.max": "30",
        "cgroup.procs": "4711",
    }


def test_groups_that_killed_runs_left_are_found_and_no_others(tmp_path: Path) -> None:
    for name, pids, age_s in (("left", "", 100), ("used", "4711", 100), ("young", "", 0)):
        folder = tmp_path / "pids" / f"hotswap-{name}"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(pids)
        os.utime(folder, (time.time() - age_s,) * 2)
    (tmp_path / "pids" / "others").mkdir()
    assert list(groups_left(tmp_path)) == [tmp_path / "pids" / "hotswap-left"]


def test_what_no_group_can_hold_is_not_held(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/\n")
    group = make_group("x", Environment(cpus=1, pids=30), tmp_path / "none", own)
    assert (group.folders, group.held) == ((), frozenset())
    group.add(4711)
    group.remove()


# A root file system of another kind.


def image(folder: Path) -> Path:
    """A root file system with nothing in it but one static busybox."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("there is no busybox here: apt-get install busybox-static")
    for name in ("bin", "etc", "app", "root", "tmp", "proc"):
        (folder / name).mkdir(parents=True)
    shutil.copy2(busybox, folder / "bin" / "busybox")
    for name in ("sh", "cat", "ls", "id", "pwd", "echo", "touch", "env"):
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nplayer:x:1234:1234::/:/bin/sh\n")
    (folder / "etc" / "issue").write_text("an image\n")
    (folder / "app" / "code").write_text("of the image\n")
    return folder


@in_loop
async def test_a_root_file_system_stands_in_the_place_of_this_machines(tmp_path: Path) -> None:
    runtime = Bwrap(rootfs=str(image(tmp_path / "image")))
    assert runtime.portable
    async with opened(runtime, replace(NEEDS, environment=Environment(workdir="/app", image="any"))) as box:
        top = set((await said(box, "ls -A /")).split())
        assert {"app", "bin", "etc", "home"} <= top
        assert not top & {"usr", "lib", "sbin"}
        assert await said(box, "id -u; pwd; cat code") == "0\n/app\nof the image\n"
        assert await said(box, "echo more > code; cat code") == "more\n"
        assert (await box.get(["code"]))["code"].content == b"more\n"
        assert (await box.get(["/etc/issue"]))["/etc/issue"].content == b"an image\n"
        assert (await shell(box, "touch /bin/x")).exit != 0
    assert (tmp_path / "image" / "app" / "code").read_text() == "of the image\n"


@in_loop
async def test_an_images_user_is_found_in_its_own_list(tmp_path: Path) -> None:
    runtime = Bwrap(rootfs=str(image(tmp_path / "image")))
    async with opened(runtime, replace(NEEDS, environment=Environment(user="player"))) as box:
        assert await said(box, "id -u") == "1234\n"
    with pytest.raises(Fault, match="no user stranger; it has root, player"):
        async with opened(runtime, replace(NEEDS, environment=Environment(user="stranger"))):
            pass


# What is refused.


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Environment(image="python:3.12"), "choose -r docker"),
        (Environment(capabilities=("NET_RAW",)), "NET_RAW, which bwrap does not give"),
        (Environment(workdir="/usr/src/app"), "this machine's own"),
        (Environment(workdir="relative"), "absolute path"),
    ],
)
def test_what_cannot_be_given_is_refused_before_a_run(asked: Environment, words: str) -> None:
    assert words in (Bwrap().refuses(asked) or "")
    assert Bwrap().refuses(Environment(workdir="/app", network="open", memory_mb=10)) is None


def test_without_bubblewrap_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    with pytest.raises(UsageError, match="apt-get install bubblewrap"):
        Bwrap().check()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"root": "/no/such"}, "no folder that can be written"),
        ({"rootfs": "/no/such"}, "no root file system"),
        ({"read": ["/no/such"]}, "does not exist"),
        ({"env": ["OPENAI_API_KEY=x"]}, "holds a provider's key"),
        ({"network": "Nonsense!"}, "is no host"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Bwrap(**settings).check()


@in_loop
async def test_where_namespaces_are_forbidden_the_setting_that_allows_them_is_named() -> None:
    """In a box there are none: that is such a place."""
    code = "from hotswap.runtimes.bwrap import Bwrap; Bwrap().check()"
    needs = replace(NEEDS, mounts=(ROOT, Path(sys.prefix), Path(BASE)))
    async with opened(needs=needs) as box:
        result = await box.run(Command(argv=(sys.executable, "-c", code)))
        assert result.exit == 1
        assert "runtime bwrap: a box cannot be made here" in result.stderr.text


# What is left.


@in_loop
async def test_nothing_is_left_of_a_box(tmp_path: Path) -> None:
    async with opened(Bwrap(root=str(tmp_path))) as box:
        await shell(box, "mkdir -p a/b; echo x > a/b/c; chmod 000 a; sleep 1000 & sleep 1000 &")
        held = psutil.Process().children(recursive=True)
        assert any(process.name() == "bwrap" for process in held)
    assert list(tmp_path.iterdir()) == []
    assert not [process for process in psutil.Process().children(recursive=True) if process.name() == "bwrap"]


KILLED = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[2])
from test_bwrap import NEEDS, Bwrap, shell
from hotswap.processes import guard
guard()
async def main():
    async with Bwrap(root=sys.argv[1]).box(NEEDS) as box:
        await shell(box, "setsid sleep 123454321 >/dev/null 2>&1 &")
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_killed_eval_leaves_neither_processes_nor_folders(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("123454321" in each.cmdline() for each in family)
        process.kill()
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_a_kept_box_is_entered_and_removed_by_the_commands_that_it_names(tmp_path: Path) -> None:
    async def play() -> Kept | None:
        async with opened(Bwrap(root=str(tmp_path))) as box:
            await box.put({"file": File(b"left")})
            await shell(box, "sleep 1000 >/dev/null 2>&1 &")
            return box.keep()

    kept = asyncio.run(play())
    assert kept is not None
    assert not [each for each in psutil.Process().children(recursive=True) if each.name() == "bwrap"]
    look = "pwd; cat file; exit\n"
    entered = subprocess.run(shlex.split(kept.enter), input=look, capture_output=True, text=True, check=True)
    assert entered.stdout == "/workspace\nleft"
    subprocess.run(shlex.split(kept.remove), check=True)
    assert list(tmp_path.iterdir()) == []


# As somebody who is not root.

AS_NOBODY = """
import asyncio, os, sys
sys.path[:0] = sys.argv[1:]
from hotswap.contracts.network import CLOSED
from hotswap.contracts.runtime import Command, File, Gate, Needs
from hotswap.runtimes._cgroups import groups_left, make_group
from hotswap.runtimes.bwrap import Bwrap

async def accept(listener):
    def greet(_reader, writer):
        writer.write(b"proxy")
        writer.close()
    return await asyncio.start_server(greet, sock=listener)

async def main():
    runtime = Bwrap()
    runtime.check()
    needs = Needs(rollout="r1", gate=Gate("127.0.0.1", 1, accept), network=CLOSED)
    async with runtime.box(needs) as box:
        await box.put({"file": File(b"content", 0o640)})
        result = await box.run(Command(argv=("sh", "-c", "id -un; cat file; sleep 1000 & touch made")))
        await box.end_processes()
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {box.url.split(':')[2]})).recv(9))"
        reached = await box.run(Command(argv=("python3", "-I", "-c", code)))
        found = await box.get(["made", "file"])
        print(os.getuid(), result.stdout.text, reached.stdout.text, sorted(found), found["file"].mode == 0o640)
asyncio.run(main())
"""


def test_no_root_is_needed(tmp_path: Path) -> None:
    """Played by the system's own Python as nobody, from a copy that nobody may read."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if os.getuid() != 0 or python is None:
        pytest.skip("this test is for root, who becomes somebody else")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shutil.copytree(ROOT / "hotswap", f"{folder}/hotswap")
        shutil.copytree(ROOT / "runtimes", f"{folder}/hotswap/runtimes")
        Path(folder).chmod(0o755)
        become = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        Path(folder, "cache").mkdir()
        Path(folder, "cache").chmod(0o777)
        env = {"PATH": os.defpath, "HOTSWAP_CACHE": f"{folder}/cache"}
        argv = [*become, python, "-I", "-c", AS_NOBODY, folder]
        done = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=env, check=False)
    assert done.stderr == ""
    assert done.stdout == "65534 agent\ncontent b'proxy'\n ['file', 'made'] True\n"


# A whole run.


def test_a_run_gives_the_same_trace_as_on_the_local_runtime(tmp_path: Path) -> None:
    def answer(request: Received) -> Reply:
        if request.json["messages"][-1]["role"] == "tool":
            return say("Paris")
        return call_tool("bash", {"command": 'echo "$((6 * 7))" > file; cat file; ls -A'})

    traces = {}
    for name in ("local", "bwrap"):
        (tmp_path / name).mkdir()
        with Provider(answer) as provider:
            words = ("-m", f"scripted@{provider.url}", "-n", "2", "-r", name, "--harness.loop.tools", "bash")
            done = evaluate(tmp_path / name, "capitals", *words)
        assert (done.code, len(done.traces)) == (0, 2), done.stderr
        traces[name] = {trace["task"]["id"]: plain(trace) for trace in done.traces}
        network = {trace["box"]["network"] for trace in done.traces}
        assert network == {"closed" if name == "bwrap" else "open"}
    assert traces["local"] == traces["bwrap"]


def test_a_run_in_an_images_file_system_brings_its_program_along(tmp_path: Path) -> None:
    rootfs = image(tmp_path / "image")
    with Provider(lambda request: say("Paris")) as provider:
        words = (
            "-m",
            f"scripted@{provider.url}",
            "-n",
            "1",
            "-r",
            "bwrap",
            "--runtime.bwrap.rootfs",
            str(rootfs),
        )
        done = evaluate(tmp_path, "capitals", *words)
    assert (done.code, done.traces[0]["error"]) == (0, None), done.stderr
    assert done.traces[0]["answer"] == "Paris"


def plain(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace without what differs from rollout to rollout, and without the runtime's name."""
    kept = {
        name: trace[name]
        for name in ("task", "outcome", "reward", "rewards", "answer", "stop", "error", "tools")
    }
    messages = [{key: value for key, value in each.items() if key != "at"} for each in trace["messages"]]
    calls = [
        (call["dialect"], call["usage"], call["outcome"]) for call in trace["calls"] if "outcome" in call
    ]
    return {
        **kept,
        "messages": messages,
        "calls": calls,
        "branches": trace["branches"],
        "launches": trace["launches"],
    }
