"""Containers: what holds beyond the contract of all runtimes. An engine, and HOTSWAP_TEST_IMAGE in it, are needed."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import begin, evaluate, finish
from _kit.loop import in_loop
from _kit.provider import Provider, call_tool, say

from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Box, Command, File, Gate, Kept, Needs
from hotswap.errors import Fault, UsageError
from hotswap.runtimes.docker import Docker

IMAGE = os.environ.get("HOTSWAP_TEST_IMAGE", "")
BUSYBOX = shutil.which("busybox")
GONE_S = 60


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    if not IMAGE:
        pytest.skip("no image to test with: HOTSWAP_TEST_IMAGE names one")
    try:
        Docker().check()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """The folder of a Dockerfile whose image has nothing but one static program; what is built of it is removed."""
    if BUSYBOX is None:
        pytest.skip("there is no static busybox")
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(BUSYBOX, folder / "busybox")
    (folder / "salt").write_text(os.urandom(8).hex())
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY busybox /bin/sh\nCOPY salt /salt\n")
    before = images()
    yield folder
    for image in images() - before:
        docker("image", "rm", "-f", image)


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()


def images() -> set[str]:
    return set(docker("image", "ls", "-q", "--filter", "label=hotswap").split())


def containers(label: str) -> list[str]:
    return docker("ps", "-aq", "--filter", f"label={label}").split()


async def accept(listener: socket.socket) -> asyncio.AbstractServer:
    return await asyncio.start_server(lambda _reader, writer: writer.close(), sock=listener)


@asynccontextmanager
async def opened(runtime: Docker | None = None, **asked: Any) -> AsyncIterator[Box]:
    runtime, environment = runtime or Docker(image=IMAGE), Environment(**asked)
    await runtime.prepare(environment, lambda _line: None)
    network = runtime.policy(environment)
    gate = Gate("127.0.0.1", 1, accept)
    needs = Needs(rollout=os.urandom(6).hex(), gate=gate, network=network, environment=environment)
    async with runtime.box(needs) as box:
        yield box


async def said(box: Box, script: str, **rest: Any) -> str:
    result = await box.run(Command(argv=("sh", "-c", script), **rest))
    assert (result.exit, result.stderr.text) == (0, "")
    return result.stdout.text


def until(what: Callable[[], Any], seconds: float = GONE_S) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@in_loop
async def test_a_container_has_no_privileges_and_few_capabilities_and_gets_those_that_are_asked_for() -> None:
    show = "grep -E 'NoNewPrivs|CapBnd' /proc/self/status | tr -d '\\t\\n'"
    async with opened() as box:
        assert await said(box, show) == "CapBnd:00000000000004fbNoNewPrivs:1"
    async with opened(capabilities=("NET_RAW",)) as box:
        assert await said(box, show) == "CapBnd:00000000000024fbNoNewPrivs:1"


@in_loop
async def test_limits_are_those_of_the_engine_and_what_it_cannot_hold_is_said() -> None:
    async with opened(memory_mb=200, pids=20, cpus=0.5, storage_mb=10) as box:
        name = (await said(box, "cat /etc/hostname")).strip()
        host = json.loads(docker("inspect", name))[0]["HostConfig"]
        assert (host["Memory"], host["PidsLimit"], host["NanoCpus"]) == (200 << 20, 21, 500_000_000)
        assert (host["Privileged"], host["SecurityOpt"]) == (False, ["no-new-privileges"])
        assert box.made.not_enforced == ("storage_mb",)


@in_loop
async def test_commands_and_files_belong_to_the_user_that_is_asked_for() -> None:
    async with opened(user="nobody", workdir="/work/here") as box:
        await box.put({"file": File(b"x", 0o600)})
        assert (
            await said(box, "id -un; pwd; cat file; touch new; stat -c %U file")
            == "nobody\n/work/here\nxnobody\n"
        )
        assert await said(box, "id -u", user="root") == "0\n"
        with pytest.raises(Fault, match="no user no-such") as fault:
            await box.run(Command(argv=("true",), user="no-such"))
        assert fault.value.record.blame == "taskset"


@in_loop
async def test_a_read_only_root_has_folders_that_can_be_written() -> None:
    async with opened(Docker(image=IMAGE, read_only=True)) as box:
        assert (
            await said(box, 'touch "$HOME/x" /tmp/x x; touch /usr/x 2>/dev/null || echo refused')
            == "refused\n"
        )


@in_loop
async def test_an_image_that_contains_nothing_is_built_once_and_works(empty: Path) -> None:
    lines: list[str] = []
    asked = Environment(dockerfile=str(empty))
    await asyncio.gather(*(Docker().prepare(asked, lines.append) for _ in range(2)))
    assert sum("Step 1/" in line for line in lines) == 1
    async with opened(dockerfile=str(empty), network="closed") as box:
        await box.put({"deep/file": File(b"in", 0o640)})
        assert await said(box, "cat deep/file; echo out > made") == "in"
        assert (await box.get(["made"]))["made"].content == b"out\n"
        assert (box.made.image or "").startswith("sha256:")


def test_a_program_runs_in_an_image_that_contains_nothing(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from hotswap import Task, Taskset, reward\n"
        "from hotswap.contracts.environment import Environment\n"
        "class Tasks(Taskset):\n"
        "    def load(self):\n"
        f"        asked = Environment(dockerfile={str(empty)!r}, network='closed')\n"
        "        yield Task(id='q', prompt='Well?', answer='42', environment=asked)\n"
        "    @reward\n"
        "    def right(self, task, trace):\n"
        "        return float(trace.answer == task.answer)\n"
    )
    with Provider(lambda request: say("42")) as provider:
        done = evaluate(
            tmp_path, "./tasks.py", "-m", f"scripted@{provider.url}", "-r", "docker", env=engine()
        )
    assert (done.code, done.traces[0]["outcome"]) == (0, "scored"), done.stderr
    assert done.traces[0]["box"]["network"] == "closed"


@in_loop
async def test_an_entrypoint_has_done_its_part_before_the_first_command(empty: Path) -> None:
    (empty / "entry").write_text('#!/bin/sh\necho ready > /tmp-entry\nexec "$@"\n')
    (empty / "entry").chmod(0o755)
    with (empty / "Dockerfile").open("a") as file:
        file.write('COPY entry /entry\nENTRYPOINT ["/entry"]\n')
    async with opened(dockerfile=str(empty)) as box:
        assert await said(box, "cat /tmp-entry") == "ready\n"


@in_loop
async def test_a_build_that_fails_shows_the_end_of_its_log(empty: Path) -> None:
    with (empty / "Dockerfile").open("a") as file:
        file.write("RUN echo last words; exit 3\n")
    before = set(docker("image", "ls", "-aq").split())
    with pytest.raises(Fault, match="cannot be built") as fault:
        await Docker().prepare(Environment(dockerfile=str(empty)), lambda _line: None)
    assert (fault.value.record.blame, fault.value.record.type) == ("taskset", "build")
    assert "last words" in (fault.value.record.detail or "")
    assert set(docker("image", "ls", "-aq").split()) == before


@in_loop
async def test_an_image_that_is_mapped_is_another_also_in_a_dockerfile(empty: Path) -> None:
    (empty / "Dockerfile").write_text("FROM no-such.test/image:1 AS base\nCOPY salt /salt\n")
    mapped = Docker(image="no-such.test/image:1", image_map=(f"no-such.test/image:1={IMAGE}",))
    async with opened(mapped) as box:
        assert await said(box, "echo here") == "here\n"
    await mapped.prepare(Environment(dockerfile=str(empty)), lambda _line: None)


@in_loop
async def test_an_image_that_cannot_be_had_is_named_with_who_wants_it() -> None:
    with pytest.raises(Fault, match=r"127.0.0.1:1/no-such:1 cannot be had \(the task asks for it\)") as fault:
        await Docker().prepare(Environment(image="127.0.0.1:1/no-such:1"), lambda _line: None)
    assert fault.value.record.blame == "runtime"


def test_without_an_engine_the_refusal_names_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    with pytest.raises(
        UsageError, match=r"no engine answers at unix:///no/such/docker.sock.*apt-get install docker.io"
    ):
        Docker().check()
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(UsageError, match="not on this machine"):
        Docker().check()


@pytest.mark.parametrize("settings", [{"image_map": ["wrong"]}, {"starting": 0}, {"root": "/no/such"}])
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"runtime\.docker\.{next(iter(settings))}"):
        Docker(**settings).check()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Debian's registry, on loopback; get its address."""
    if shutil.which("docker-registry") is None:
        pytest.skip("there is no docker-registry (apt-get install docker-registry)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/images}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    with subprocess.Popen(
        ["docker-registry", "serve", tmp_path / "registry.yml"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        host, port = address.split(":")
        until(lambda: answers(host, port))
        yield address
        process.terminate()


def answers(host: str, port: str) -> bool:
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_an_image_that_is_not_here_is_pulled_once_with_a_line_that_says_so(
    registry: str, empty: Path
) -> None:
    name = f"{registry}/empty:1"
    docker("build", "-q", "-t", name, "--label", "hotswap=test", str(empty))
    docker("push", name)
    docker("image", "rm", "-f", name)
    lines: list[str] = []
    asked = Environment(image=name)

    async def play() -> None:
        await asyncio.gather(*(Docker().prepare(asked, lines.append) for _ in range(2)))
        async with opened(image=name) as box:
            assert (box.made.image or "").startswith(f"{registry}/empty@sha256:")
            assert await said(box, "echo pulled") == "pulled\n"

    asyncio.run(play())
    assert [line for line in lines if line == f"pulling the image {name}"] == [f"pulling the image {name}"]


def test_the_engine_is_that_of_the_docker_context_where_no_variable_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    where = "host=unix:///no/such/of-context.sock"
    docker("context", "create", "elsewhere", "--docker", where)
    docker("context", "use", "elsewhere")
    code = "from hotswap.runtimes.docker import Docker; Docker().check()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "no engine answers at unix:///no/such/of-context.sock" in done.stderr


def engine() -> dict[str, str]:
    return {name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ}


def of_run(folder: Path) -> str:
    return f"hotswap.run={(folder / 'runs' / 'latest').resolve().name}"


def tool_call(request: Any) -> Any:
    return call_tool("bash", {"command": "echo one > file; echo $((6 * 7)) >> file; cat file"})


def test_the_loop_leaves_the_same_trace_as_on_local_but_for_the_name_of_the_runtime(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        asked = any(message.get("role") == "tool" for message in request.json["messages"])
        return say("Paris") if asked else tool_call(request)

    found = []
    for runtime, more in (("local", ()), ("docker", ("--runtime.docker.image", IMAGE))):
        folder = tmp_path / runtime
        folder.mkdir()
        with Provider(answer) as provider:
            words = ("-H", "loop,tools=bash", "-m", f"scripted@{provider.url}", "-n", "1", "-r", runtime)
            done = evaluate(folder, "capitals", *words, *more, env=engine())
        assert done.code == 0, done.stderr
        trace = done.traces[0]
        messages = [(message["role"], message["content"]) for message in trace["messages"]]
        found.append((messages, trace["outcome"], trace["answer"], trace["stop"], trace["metrics"].keys()))
    assert found[0] == found[1]
    assert containers(of_run(tmp_path / "docker")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_eval_that_is_ended_in_whatever_way_leaves_no_container_that_runs(
    number: int, tmp_path: Path
) -> None:
    command = {"command": "sleep 601 & sleep 602"}
    with Provider(lambda request: call_tool("bash", command)) as provider:
        words = ("-H", "loop,tools=bash", "-m", f"scripted@{provider.url}", "-n", "1", "-r", "docker")
        process = begin(tmp_path, "capitals", *words, "--runtime.docker.image", IMAGE, env=engine())
        until(lambda: (tmp_path / "runs" / "latest").exists() and sleeping(tmp_path))
        process.send_signal(number)
        finish(process, tmp_path)
    label = of_run(tmp_path)
    if number == signal.SIGKILL:
        until(lambda: not docker("ps", "-q", "--filter", f"label={label}"))
        cleaned = asyncio.run(Docker().clean())
        assert any("container" in line for line in cleaned)
    assert containers(label) == []


def sleeping(folder: Path) -> bool:
    return any("sleep 602" in docker("top", name) for name in docker_running(folder))


def docker_running(folder: Path) -> list[str]:
    return docker("ps", "-q", "--filter", f"label={of_run(folder)}").split()


def test_a_box_that_is_kept_can_be_entered_and_removed_as_it_says() -> None:
    async def play() -> Kept | None:
        async with opened() as box:
            await box.put({"left": File(b"behind")})
            await box.start(Command(argv=("sleep", "604")))
            return box.keep()

    kept = asyncio.run(play())
    assert kept is not None
    inside = kept.enter.replace("-it ", "") + " -c 'cat left; cat /proc/[0-9]*/cmdline'"
    found = subprocess.check_output(["sh", "-c", inside], text=True)
    assert found.startswith("behind")
    assert "604" not in found
    subprocess.run(["sh", "-c", kept.remove], check=True, capture_output=True)
    assert subprocess.run(["sh", "-c", inside], capture_output=True, check=False).returncode != 0


@in_loop
async def test_containers_of_an_eval_that_lives_are_not_cleaned_away() -> None:
    async with opened() as box:
        code = (
            "import asyncio; from hotswap.runtimes.docker import Docker; print(asyncio.run(Docker().clean()))"
        )
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        assert await other.wait() == 0
        assert await said(box, "echo alive") == "alive\n"
