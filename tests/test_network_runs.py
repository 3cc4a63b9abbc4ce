"""Whole runs with a network policy: what a box reaches, what the trace has of it, and what a person is told."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _kit.evals import evaluate
from _kit.provider import Provider, say

WITH_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
TASKSET = """
from hotswap import Task, Taskset, reward
from hotswap.contracts.environment import Environment

class Quiz(Taskset):
    def load(self):
        for id in ("a", "b"):
            yield Task(id=id, prompt="Well?", answer="42", environment=Environment({asked}))

    @reward
    def right(self, trace):
        {scoring}
"""
HARNESS = """
from pathlib import Path
from hotswap import Finish, Harness, Install, Job, Launch

class Curious(Harness):
    hosts: str = ""

    def install(self):
        return Install(script=Path(__file__).with_name("curious_program.py"))

    def launch(self, job: Job) -> Launch:
        env = {"URL": f"{job.endpoint.url}/v1/chat/completions", "KEY": job.endpoint.key}
        return Launch(argv=(*job.command, *self.hosts.split("+")), env=env)
"""
PROGRAM = """#!/usr/bin/env -S python3 -I -S
import json, os, socket, sys, urllib.request

body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["KEY"]}
urllib.request.urlopen(urllib.request.Request(os.environ["URL"], body, headers)).read()
for place in sys.argv[1:]:
    host, _, port = place.partition(":")
    way = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    with socket.create_connection((way[0], int(way[1]))) as tunnel:
        tunnel.sendall(f"CONNECT {place} HTTP/1.1\\r\\n\\r\\n".encode())
        print(place, tunnel.recv(99).decode().split()[1], flush=True)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        print(place, "directly")
    except OSError:
        pass
"""


@contextmanager
def listening() -> Iterator[int]:
    """A server on this machine that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(2)], daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(20)


def write(folder: Path, asked: str = "", scoring: str = "return 1.0") -> None:
    (folder / "quiz.py").write_text(TASKSET.format(asked=asked, scoring=scoring))
    (folder / "curious.py").write_text(HARNESS)
    (folder / "curious_program.py").write_text(PROGRAM)


@WITH_BWRAP
def test_a_box_reaches_the_hosts_that_are_named_by_the_way_out_alone_and_the_trace_has_what_was_tried(
    tmp_path: Path,
) -> None:
    scoring = "return float([each.allowed for each in trace.box.egress] == [True, False])"
    write(tmp_path, 'network="127.0.0.0/8,good.test"', scoring)
    with Provider(lambda request: say("42")) as provider, listening() as port:
        hosts = f"127.0.0.1:{port}+evil.test:443"
        words = ["-m", f"scripted@{provider.url}", "-H", f"./curious.py,hosts={hosts}", "-r", "bwrap"]
        done = evaluate(tmp_path, "./quiz.py", *words, "--runtime.network", "127.0.0.1,evil.org")
    assert done.code == 0, done.stderr
    for trace in done.traces:
        assert trace["box"]["network"] == "127.0.0.1"
        tried = [(each["host"], each["port"], each["allowed"]) for each in trace["box"]["egress"]]
        assert tried == [("127.0.0.1", port, True), ("evil.test", 443, False)]
        assert (trace["reward"], trace["metrics"]["refused_hosts"]) == (1.0, 1.0)
        said = (done.run / "logs" / trace["id"] / "stdout").read_text()
        assert said == f"127.0.0.1:{port} 200\nevil.test:443 403\n"
    assert done.stderr.count("hosts that boxes were refused, by rollouts: evil.test (2)") == 1
    shown = evaluate(tmp_path, "show").stdout
    assert f"  network 127.0.0.1 · let through: 127.0.0.1:{port} · refused: evil.test:443\n" in shown


def test_what_is_not_enforced_is_said_once_a_run_and_in_each_rollout_that_is_shown(tmp_path: Path) -> None:
    write(tmp_path, "memory_mb=64, pids=10")
    with Provider(lambda request: say("42")) as provider:
        done = evaluate(tmp_path, "./quiz.py", "-m", f"scripted@{provider.url}", "-H", "loop", "-r", "local")
    assert done.code == 0, done.stderr
    for name in ("memory_mb", "pids"):
        assert done.stderr.count(f"{name} is not enforced by runtime local\n") == 1
    assert "refused_hosts" not in done.traces[0]["metrics"]
    assert evaluate(tmp_path, "show").stdout.count("  not enforced: memory_mb, pids\n") == 2
