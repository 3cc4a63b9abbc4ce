"""What holds for every test: traces that it leaves are valid, and in CI a skipped test is a failure."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from _kit.check import check_trace

IN_CI = bool(os.environ.get("HOTSWAP_CI"))
_skipped: list[str] = []


@pytest.fixture(autouse=True)
def _every_trace_is_valid(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every whole line of every traces.jsonl that a test leaves in its folder."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    for path in folder.rglob("traces.jsonl") if folder else ():
        if (
            not path.is_file()
            or path.parent.is_symlink()
            or request.node.get_closest_marker("damages_traces")
        ):
            continue
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                check_trace(json.loads(line))


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts us in the background makes us deaf to Ctrl-C, and all that the tests start and interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "damages_traces: the test writes lines that are no traces, on purpose")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IN_CI and _skipped:
        terminalreporter.section("skipped, where nothing may be missing", red=True)
        for name in _skipped:
            terminalreporter.line(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if IN_CI and _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
