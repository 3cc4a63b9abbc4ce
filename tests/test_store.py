"""A run directory loses nothing, counts nothing twice, and is written by one process at a time."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _kit.check import check_trace
from _kit.traces import failed, fault, full, scored

from hotswap.errors import StoreError, UsageError
from hotswap.masking import Masker
from hotswap.messages import Usage
from hotswap.metrics import tabulate
from hotswap.result import Result
from hotswap.store import RunDirectory, RunInfo, RunWriter, locate, point_latest
from hotswap.trace import Try

INFO = RunInfo("quiz--20261130-161500-k3f9", 'taskset = "quiz"\n', {"cells": ["quiz/loop/small/local"]})


def new(path: Path, masker: Masker | None = None) -> RunWriter:
    return RunDirectory.create(path, INFO, masker)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python of its own that can use the kit."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        },
    )


def test_what_was_appended_is_read_back_with_its_result(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.journal({"event": "started", "id": "01FR0"})
        kept = run.append(scored("fr"))
        run.append(failed("de"))
    back = RunDirectory.open(tmp_path / "run")
    assert back.name == INFO.name
    assert back.info["cells"] == ["quiz/loop/small/local"]
    assert (tmp_path / "run/eval.toml").read_text() == INFO.settings
    assert [event["event"] for event in back.events()] == ["started", "finished", "finished"]
    assert [result.task for result in back.results()] == ["de", "fr"]
    assert list(back.results())[1] == kept == Result.of(scored("fr"))
    assert [trace.task.id for trace in back.traces()] == ["fr", "de"]
    assert list(back.traces([kept])) == [scored("fr")]
    for line in (tmp_path / "run/traces.jsonl").read_bytes().splitlines():
        check_trace(line)


def test_no_file_of_a_run_holds_half_of_a_surrogate_pair(tmp_path: Path) -> None:
    half = "math \ud835 end"
    with new(tmp_path / "run") as run:
        run.journal({"event": "started", "id": half})
        results = [
            run.append(failed("de", error=fault(message=half))),
            run.append(scored("fr", answer=half)),
        ]
        run.conclude(tabulate(results).files())
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "run").glob("*.json*")}
    assert set(written) == {"journal.jsonl", "metrics.json", "results.jsonl", "run.json", "traces.jsonl"}
    for name, text in written.items():
        for line in text.splitlines() if name.endswith("l") else [text]:
            json.dumps(json.loads(line), ensure_ascii=False).encode()
    assert all(r"math \\ud835 end" in text for name, text in written.items() if name != "run.json")


def test_a_result_comes_back_as_it_was_written() -> None:
    result = Result.of(full(), masked=2)
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert result.tags == ("europe",)
    assert result.error is not None
    assert result.error.detail is None


def test_a_rollout_without_a_call_used_nothing_and_one_with_unknown_cost_is_unknown() -> None:
    silent = Result.of(failed())
    assert (silent.cost_usd, silent.usage.input, silent.seconds) == (0.0, 0, None)
    unknown = Result.of(scored(cost_usd=None))
    assert (unknown.cost_usd, unknown.usage.input) == (None, 10)
    assert unknown.seconds == pytest.approx(0.61)
    lost = Result.of(failed(tries=[Try(fault(), None, Usage(5, 1)), Try(fault())]))
    assert lost.cost_usd is None


def test_a_score_after_a_failed_try_is_recovered_and_one_with_a_noted_error_is_not() -> None:
    assert Result.of(scored(tries=[Try(fault()), Try()])).recovered
    assert not Result.of(scored(tries=[Try(fault("harness"))], error=fault("harness"))).recovered
    assert Result.of(scored(tries=[Try(fault()), Try()])).tries == 2


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "eval.toml", "metrics.json"])
def test_a_directory_that_holds_a_run_or_its_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="Choose another directory for --output") as refusal:
        new(tmp_path)
    assert len(refusal.value.problems) == 1
    assert (tmp_path / name).read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        new(tmp_path / "run")
    with pytest.raises(UsageError, match="cannot make the run directory"):
        new(tmp_path / "run/below")


def test_a_directory_with_other_files_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    new(tmp_path).close()


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        RunDirectory.open(tmp_path / "nothing")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        RunDirectory.open(tmp_path)


def test_two_writers_exclude_each_other_across_processes_and_readers_do_not_wait(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from hotswap.store import RunDirectory
with RunDirectory.reopen(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.read()
"""
    run = new(tmp_path / "run")
    run.append(scored())
    other = python(code, run.path)
    assert "is being written by another eval" in other.communicate(timeout=60)[1]
    assert len(list(RunDirectory.open(run.path).results())) == 1
    with pytest.raises(UsageError, match="another eval"):
        RunDirectory.reopen(run.path)
    run.close()
    with RunDirectory.reopen(run.path) as again:
        again.append(scored("it"))
    assert len(list(RunDirectory.open(run.path).results())) == 2


def test_two_that_create_at_once_make_one_run(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store import new
try:
    run = new(Path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__)
else:
    print("made")
sys.stdout.flush()
sys.stdin.read()
"""
    both = [python(code, tmp_path / "run", Path(__file__).parent) for _ in range(2)]
    said = sorted(one.communicate(timeout=60)[0].strip() for one in both)
    assert said == ["UsageError", "made"]


KILLED = """
import sys
from pathlib import Path
from _kit.traces import scored
from hotswap.store import RunDirectory, RunInfo
run = RunDirectory.create(Path(sys.argv[1]), RunInfo("quiz--1", "", {}))
task = 0
while True:
    run.append(scored(f"t{task:05}", answer="x" * 20_000))
    print(task, flush=True)
    task += 1
"""


@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_kill_loses_nothing_that_was_appended_and_the_run_goes_on(tmp_path: Path, after: int) -> None:
    with python(KILLED, tmp_path / "run") as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < after:
            pass
        writer.send_signal(signal.SIGKILL)
        said = [int(line) for line in writer.stdout]
    kept = max([after, *said]) + 1
    read = [result.task for result in RunDirectory.open(tmp_path / "run").results()]
    assert len(read) in (kept, kept + 1)  # one more may have been written and not yet said
    with RunDirectory.reopen(tmp_path / "run") as run:
        assert [result.task for result in run.results()] == read
        run.append(scored("zz"))
    assert [result.task for result in RunDirectory.open(tmp_path / "run").results()] == [*read, "zz"]
    assert len(list(RunDirectory.open(tmp_path / "run").traces())) == len(read) + 1


@pytest.mark.parametrize("left", range(1, 60, 7))
def test_a_torn_last_line_is_passed_over_in_reading_and_cut_off_once(tmp_path: Path, left: int) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored("fr"))
        run.append(scored("it"))
    journal, traces = run.path / "journal.jsonl", run.path / "traces.jsonl"
    for path in (journal, traces):
        whole = path.read_bytes()
        last = whole.rindex(b"\n", 0, -1) + 1
        path.write_bytes(whole[: last + left])
    assert [result.task for result in RunDirectory.open(run.path).results()] == ["fr"]
    assert [trace.task.id for trace in RunDirectory.open(run.path).traces()] == ["fr"]
    with RunDirectory.reopen(run.path) as again:
        again.append(scored("it"))
    assert [result.task for result in RunDirectory.open(run.path).results()] == ["fr", "it"]
    assert traces.read_bytes() == scored("fr").to_line() + scored("it").to_line()


def test_a_trace_whose_journal_line_is_missing_counts_and_is_noted_when_writing_goes_on(
    tmp_path: Path,
) -> None:
    with new(tmp_path / "run") as run:
        for task in ("a", "b", "c"):
            run.append(scored(task))
    journal = run.path / "journal.jsonl"
    first, _, third = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + third)
    assert [result.task for result in RunDirectory.open(run.path).results()] == ["a", "b", "c"]
    RunDirectory.reopen(run.path).close()
    after = journal.read_bytes()
    assert len(after.splitlines()) == 3
    RunDirectory.reopen(run.path).close()
    assert journal.read_bytes() == after


def test_a_journal_line_whose_trace_did_not_reach_the_disk_counts_for_nothing(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored("a"))
        run.append(scored("b"))
    traces = run.path / "traces.jsonl"
    traces.write_bytes(traces.read_bytes().splitlines(keepends=True)[0])
    assert [result.task for result in RunDirectory.open(run.path).results()] == ["a"]
    with RunDirectory.reopen(run.path) as again:
        again.append(scored("b", reward=0.0))
    assert [result.reward for result in RunDirectory.open(run.path).results()] == [1.0, 0.0]
    assert [trace.reward for trace in RunDirectory.open(run.path).traces()] == [1.0, 0.0]


def test_damage_in_the_middle_of_the_journal_costs_no_rollout(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        for task in ("a", "b"):
            run.append(scored(task))
    journal = run.path / "journal.jsonl"
    first, second = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"\0" * (len(first) - 1) + b"\n" + second)
    assert [result.task for result in RunDirectory.open(run.path).results()] == ["a", "b"]


def test_a_complete_run_that_is_opened_again_stays_as_it_is_to_the_byte(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored())
        run.conclude({"metrics.json": "{}\n"})
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.iterdir()}
    RunDirectory.reopen(run.path).close()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.iterdir()} == before


def test_a_later_error_never_replaces_a_score_and_a_later_score_replaces_an_error(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored("a", id="A1"))
        run.append(failed("a", id="A2"))
        run.append(failed("b", id="B1"))
        run.append(scored("b", id="B2"))
        run.append(scored("b", id="B3", reward=0.0))
        run.append(failed("c", id="C1"))
        run.append(failed("c", id="C2"))
    back = RunDirectory.open(run.path)
    assert [result.id for result in back.results()] == ["A1", "B2", "C2"]
    assert [trace.id for trace in back.traces()] == ["A1", "B2", "C2"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from _kit.traces import scored
from hotswap.errors import StoreError
from hotswap.store import RunDirectory, RunInfo
run = RunDirectory.create(Path(sys.argv[1]), RunInfo("quiz--1", "", {}))
run.append(scored("a"))
limit = run.path.joinpath("traces.jsonl").stat().st_size + 100
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    run.append(scored("b"))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run.append(scored("c"))
run.close()
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY, reason="file size is limited"
)
def test_a_line_for_which_there_is_no_room_leaves_nothing_and_the_error_says_so(tmp_path: Path) -> None:
    out, err = python(FULL_DISK, tmp_path / "run").communicate(timeout=60)
    assert out.startswith(f"cannot write {tmp_path}/run/traces.jsonl: File too large."), err
    assert out.count("\n") == 1
    assert [result.task for result in RunDirectory.open(tmp_path / "run").results()] == ["a", "c"]
    assert (tmp_path / "run/traces.jsonl").read_bytes() == scored("a").to_line() + scored("c").to_line()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    run = new(tmp_path / "run")
    run.close()
    (run.path / "traces.jsonl").unlink()
    (run.path / "traces.jsonl").symlink_to("/dev/full")
    again = RunDirectory.reopen(run.path)
    with pytest.raises(StoreError, match="No space left on device"):
        again.append(scored())
    assert list(again.results()) == []


NO_ROOM = """
import resource, sys
from pathlib import Path
from hotswap.errors import UsageError
from hotswap.store import RunDirectory, RunInfo
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    RunDirectory.create(Path(sys.argv[1]), RunInfo("quiz--1", "short", {"cells": ["long"] * 100}))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 100])
def test_a_directory_for_which_there_is_no_room_leaves_nothing_of_itself(tmp_path: Path, room: int) -> None:
    out, err = python(NO_ROOM, tmp_path / "runs/new", room).communicate(timeout=60)
    assert out == f"cannot make the run directory {tmp_path}/runs/new: File too large\n", err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.md").write_text("mine")
    assert python(NO_ROOM, tmp_path / "mine", room).communicate(timeout=60)[0].count("\n") == 1
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.md"]


def test_nothing_can_be_added_after_the_end(tmp_path: Path) -> None:
    run = new(tmp_path / "run")
    run.close()
    run.close()
    with pytest.raises(StoreError, match="closed"):
        run.append(scored())


def test_the_final_view_is_sorted_and_replaced_whole(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored("b", 1))
        run.append(scored("b", 0))
        run.append(failed("a"))
        run.conclude({"metrics.md": "| é |\n"})
        first = (run.path / "results.jsonl").read_bytes()
        run.conclude({})
        assert (run.path / "results.jsonl").read_bytes() == first
    rows = [json.loads(line) for line in first.splitlines()]
    assert [(row["task"], row["attempt"]) for row in rows] == [("a", 0), ("b", 0), ("b", 1)]
    assert [Result.from_json(row) for row in rows] == list(run.results())
    assert (run.path / "metrics.md").read_bytes() == "| é |\n".encode()
    assert not [path.name for path in run.path.iterdir() if path.name.startswith(".")]


def test_a_rollout_is_found_by_the_beginning_or_the_end_of_its_id(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.append(scored("a", id="01AAQX"))
        run.append(scored("b", id="01BBQY"))
    back = RunDirectory.open(run.path)
    assert [result.id for result in back.find("01b")] == ["01BBQY"]
    assert [result.id for result in back.find("qx")] == ["01AAQX"]
    assert len(back.find("01")) == 2
    assert back.find("zz") == []


def test_latest_leads_to_the_newest_run_and_moves_at_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("one", "two"):
        new(runs / name).close()
        point_latest(runs, runs / name)
        assert locate(runs) == runs / name
        assert (runs / "latest/run.json").exists()
    new(tmp_path / "elsewhere").close()
    point_latest(runs, tmp_path / "elsewhere")
    assert locate(runs) == tmp_path / "elsewhere"


def test_where_there_are_no_links_a_file_names_the_latest(tmp_path: Path) -> None:
    new(tmp_path / "one").close()
    (tmp_path / "latest").write_text("one")
    assert locate(tmp_path) == tmp_path / "one"


def test_a_folder_of_the_users_called_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    with pytest.raises(UsageError, match="Move it away"):
        point_latest(tmp_path, tmp_path / "one")


def test_a_run_is_located_by_path_name_or_the_beginning_of_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run in"):
        locate(tmp_path / "runs")
    for name in ("quiz--1-aa", "quiz--1-ab"):
        new(tmp_path / name).close()
    assert (
        locate(tmp_path, "quiz--1-aa")
        == locate(Path("runs"), str(tmp_path / "quiz--1-aa"))
        == tmp_path / "quiz--1-aa"
    )
    assert locate(tmp_path, "quiz--1-ab") == tmp_path / "quiz--1-ab"
    with pytest.raises(UsageError, match="may be any of quiz--1-aa, quiz--1-ab"):
        locate(tmp_path, "quiz")
    with pytest.raises(UsageError, match="no run 'other'"):
        locate(tmp_path, "other")


def test_reading_costs_no_more_memory_for_more_traces(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from hotswap.store import RunDirectory
run = RunDirectory.open(Path(sys.argv[1]))
count = sum(1 for _ in run.results()) + sum(1 for _ in run.traces())
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for name, count in (("few", 5), ("many", 150)):
        with new(tmp_path / name) as run:
            for task in range(count):
                run.append(scored(f"t{task}", answer="x" * 200_000))
        out, err = python(code, run.path).communicate(timeout=60)
        assert int(out.split()[0]) == 2 * count, err
        peaks.append(int(out.split()[1]))
    assert peaks[1] < peaks[0] * 1.25


def test_importing_the_store_loads_the_standard_library_only() -> None:
    code = (
        "import sys; bare = set(sys.modules); "  # Debian's own Python loads a module of its own at each start
        "import hotswap.store, hotswap.metrics; print(*sorted(set(sys.modules) - bare))"
    )
    loaded: Any = python(code).communicate(timeout=60)[0].split()
    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"hotswap", "__main__"}
    assert {name for name in outside if "editable" not in name and not name.startswith("_")} == set()
    assert "asyncio" not in loaded
