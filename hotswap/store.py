"""The run directory: what a run leaves behind, written so that nothing is lost and nothing is counted twice.

    runs/gsm8k--20261130-161500-k3f9/
      eval.toml       the settings
      run.json        what ran
      journal.jsonl   started / tried / finished, with each trace's place and result: counting needs no traces
      traces.jsonl    one line a finished rollout
      results.jsonl   one small line a rollout, written at the end
      metrics.json  metrics.csv  metrics.md
      exchanges/ROLLOUT.zst   the raw requests and answers
      logs/ROLLOUT/   what the program printed
      tokens/ROLLOUT.bin   ids of tokens, where they are captured (`capture`)

A rollout is finished when its whole line stands in traces.jsonl. The journal's line comes after it; where a
kill came between the two, the result is read from the trace. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hotswap.errors import StoreError, UsageError
from hotswap.lines import Line, Lines, cannot_write, read_lines
from hotswap.masking import Masker
from hotswap.records import to_text
from hotswap.result import Result
from hotswap.trace import Trace

SETTINGS, INFO, JOURNAL, TRACES, RESULTS = (
    "eval.toml",
    "run.json",
    "journal.jsonl",
    "traces.jsonl",
    "results.jsonl",
)
SUMMARIES = ("metrics.json", "metrics.csv", "metrics.md")
LATEST = "latest"
NAMED = 3
"""Runs that are named where one is not found."""
EXCHANGES = "exchanges"
"""The folder of the raw requests and answers."""


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run before it begins."""

    name: str
    settings: str
    """The text of eval.toml."""
    record: Mapping[str, Any]
    """The rest of run.json, as JSON values: cells, tasks, versions, command line."""


Key = tuple[str, str, int]
"""Cell, task, attempt."""


class Place(NamedTuple):
    """Where a rollout that counts stands in the files."""

    offset: int
    """Of its trace."""
    length: int
    scored: bool
    journal: int
    """Offset of its journal line; -1 where it has none."""


class Spans:
    """Parts of a file, by where they begin and end: sixteen bytes each, as there may be a hundred thousand."""

    def __init__(self) -> None:
        self._starts, self._ends = array("Q"), array("Q")

    def add(self, offset: int, length: int) -> None:
        self._starts.append(offset)
        self._ends.append(offset + length)

    def sorted(self) -> Iterator[tuple[int, int]]:
        """Iterate over start and end, by start."""
        pairs = zip(self._starts, self._ends, strict=True)
        in_order = all(a <= b for a, b in pairwise(self._starts))
        return pairs if in_order else iter(sorted(pairs))


class NoRun(UsageError):
    """There is no run of the name that was given."""


class RunDirectory:
    """A run, to be read. `create` makes one to be written, `reopen` opens one to go on writing."""

    def __init__(self, path: Path, info: Mapping[str, Any]) -> None:
        self.path = path
        self.info = info
        """run.json."""

    @staticmethod
    def create(path: Path, info: RunInfo, masker: Masker | None = None) -> RunWriter:
        """Make a new run's directory.

        Raises UsageError where files of these names are there already, and where it cannot be made: then
        nothing of it is left.
        """
        refuse_taken(path)
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        record = {"schema": 1, "name": info.name, "created": time.time(), **info.record}
        try:
            path.mkdir(parents=True, exist_ok=True)
            journal = Lines(path / JOURNAL, os.O_EXCL)
        except FileExistsError as error:
            raise UsageError(_taken(path)) from error
        except OSError as error:
            _unmake(made)
            raise UsageError(f"cannot make the run directory {path}: {error.strerror}") from error
        try:
            writer = RunWriter(path, record, journal, masker or Masker())
            writer.write(SETTINGS, info.settings)
            writer.write(INFO, json.dumps(record, indent=1, allow_nan=False) + "\n")
        except (OSError, StoreError) as error:
            journal.close()
            _unmake(made, [path / name for name in (INFO, SETTINGS, TRACES, JOURNAL)])
            reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
            said = getattr(reason, "strerror", None) or reason
            raise UsageError(f"cannot make the run directory {path}: {said}") from error
        return writer

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """Open a run to read it, also while it is being written. Raises UsageError where there is none."""
        return RunDirectory(path, _info(path))

    @staticmethod
    def reopen(path: Path, masker: Masker | None = None) -> RunWriter:
        """Open a run to go on writing it, and repair what a kill left. A UsageError while another does."""
        info = _info(path)
        writer = RunWriter(path, info, Lines(path / JOURNAL), masker or Masker())
        writer.repair()
        return writer

    @property
    def name(self) -> str:
        return str(self.info.get("name", self.path.name))

    def events(self) -> Iterator[dict[str, Any]]:
        """Iterate over the journal; lines that were damaged are left out."""
        for line in _lines(self.path / JOURNAL):
            event = _parse(line)
            if event is not None:
                yield event

    def results(self) -> Iterator[Result]:
        """Iterate over one result for each cell, task and attempt, sorted by these.

        Where an attempt was finished more than once, a score counts before an error, the first score before a
        later one, and the last error before an earlier one.
        """
        places = self._places()
        if not places:
            return
        with (self.path / JOURNAL).open("rb") as journal, (self.path / TRACES).open("rb") as traces:
            for key in sorted(places):
                place = places[key]
                if place.journal >= 0:
                    journal.seek(place.journal)
                    yield Result.from_json(json.loads(journal.readline())["result"])
                else:
                    traces.seek(place.offset)
                    yield Result.of(Trace.from_line(traces.read(place.length)))

    def traces(self, of: Iterable[Result] | None = None) -> Iterator[Trace]:
        """Iterate over the traces of all `results` as they were finished, or of some, in the order given.

        One is in memory at a time. Raises StoreError where one cannot be read.
        """
        index = self._places()
        places = sorted(index.values()) if of is None else [index[result.key] for result in of]
        if not places:
            return
        with (self.path / TRACES).open("rb") as file:
            for place in places:
                file.seek(place.offset)
                yield self._trace(Line(place.offset, file.read(place.length)))

    def find(self, part: str) -> list[Result]:
        """Get the results whose id begins or ends with `part`, in either case of its letters."""
        return [result for result in self.results() if result.is_called(part)]

    def logs(self, rollout: str) -> Path:
        """Get the folder of what a rollout's program printed; it need not exist."""
        return self.path / "logs" / rollout

    def tokens(self, rollout: str) -> Path:
        """Get the file of a rollout's captured tokens, for `hotswap.capture.read`; it need not exist."""
        return self.path / "tokens" / f"{rollout}.bin"

    def _trace(self, line: Line) -> Trace:
        try:
            return Trace.from_line(line.content)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{self.path / TRACES}: no trace at byte {line.offset}: {error}") from error

    def _places(self) -> dict[Key, Place]:
        """Where the rollouts that count stand, by what they are a result of."""
        places: dict[Key, Place] = {}
        spans = Spans()
        for key, place in self._noted():
            _keep(places, key, place)
            spans.add(place.offset, place.length)
        for line, record in self._unjournaled(spans):
            key = (sys.intern(record["cell"]["name"]), record["task"]["id"], record["attempt"])
            _keep(places, key, Place(line.offset, len(line.content), record["outcome"] == "scored", -1))
        return places

    def _noted(self) -> Iterator[tuple[Key, Place]]:
        """What the journal says was finished, without what did not reach the disk."""
        size, lost = _size(self.path / TRACES), self._lost()
        for line in _lines(self.path / JOURNAL):
            event = _parse(line) or {}
            if event.get("event") != "finished" or event["offset"] + event["length"] > size:
                continue
            if any(line.offset < at and event["offset"] >= offset for at, offset in lost):
                continue
            result = event["result"]
            place = Place(event["offset"], event["length"], result["outcome"] == "scored", line.offset)
            yield (sys.intern(result["cell"]), result["task"], result["attempt"]), place

    def _lost(self) -> list[tuple[int, int]]:
        """Where the journal says that traces were lost, and from which offset of theirs on: few, if any."""
        return [
            (line.offset, event["offset"])
            for line in _lines(self.path / JOURNAL)
            if b'"lost"' in line.content and (event := _parse(line)) and event.get("event") == "lost"
        ]

    def _unjournaled(self, noted: Spans) -> Iterator[tuple[Line, dict[str, Any]]]:
        """The whole traces that no journal line speaks of: those that were written just before a kill."""
        path = self.path / TRACES
        at = 0
        for start, end in chain(noted.sorted(), [(_size(path), 0)]):
            if start > at:
                yield from (
                    (line, record) for line in read_lines(path, at, start) if (record := _parse(line))
                )
            at = max(at, end)


class RunWriter(RunDirectory):
    """A run that this process writes, and no other can. A line is with the system when its call returns."""

    def __init__(self, path: Path, info: Mapping[str, Any], journal: Lines, masker: Masker) -> None:
        super().__init__(path, info)
        self.masker = masker
        self._journal = journal
        if not journal.lock():
            journal.close()
            raise UsageError(f"{path} is being written by another eval. Wait for its end, or stop it")
        self._traces = Lines(path / TRACES)

    def journal(self, event: Mapping[str, Any]) -> None:
        """Note an event, such as `{"event": "started", "id": ...}`; the time is added."""
        self._journal.append(self.masker.line(_line({**event, "time": time.time()}))[0])

    def append(self, trace: Trace) -> Result:
        """Keep a finished rollout and get its result. After a StoreError (disk full) it counts as not run."""
        line, masked = self.masker.line(trace.to_line())
        result = Result.of(trace, masked)
        self._note(self._traces.append(line), len(line), result)
        return result

    def conclude(self, files: Mapping[str, str]) -> None:
        """Write results.jsonl and the given files (the tables), each whole or not at all."""
        lines = (to_text(result.to_json()) for result in self.results())
        self._replace(RESULTS, (f"{line}\n" for line in lines))
        for name, text in files.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        """Write a file of the run, without its secrets, whole or not at all."""
        masked = self.masker.document(text) if name.endswith(".json") else self.masker.text(text)[0]
        self._replace(name, iter([masked]))

    def repair(self) -> None:
        """Cut off torn lines; note in the journal what was lost, and what was finished without a note."""
        self._journal.repair()
        self._traces.repair()
        size = self._traces.size
        if any(
            event["offset"] + event["length"] > size
            for event in self.events()
            if event["event"] == "finished"
        ):
            self.journal({"event": "lost", "offset": size})
        spans = Spans()
        for _, place in self._noted():
            spans.add(place.offset, place.length)
        for line, record in list(self._unjournaled(spans)):
            self._note(line.offset, len(line.content), Result.of(Trace.from_json(record)))

    def close(self) -> None:
        """Close the files and let others write. May be called again."""
        self._traces.close()
        self._journal.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, offset: int, length: int, result: Result) -> None:
        place = {"offset": offset, "length": length}
        self.journal({"event": "finished", "id": result.id, **place, "result": result.to_json()})

    def _replace(self, name: str, parts: Iterator[str]) -> None:
        path = self.path / name
        draft = path.with_name(f".{name}.{os.getpid()}")
        try:
            with draft.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise StoreError(cannot_write(path, error)) from error


def point_latest(runs: Path, run: Path) -> None:
    """Make `runs/latest` lead to a run, at once: a link, or where there are none a file that names it."""
    latest, draft = runs / LATEST, runs / f".{LATEST}.{os.getpid()}"
    if run.absolute() == latest.absolute():
        return
    if latest.is_dir() and not latest.is_symlink():
        raise UsageError(f"{latest} is a folder, and should be the link to the newest run. Move it away")
    runs.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(run.absolute(), runs.absolute())
    draft.unlink(missing_ok=True)
    try:
        draft.symlink_to(target, target_is_directory=True)
    except OSError:
        draft.write_text(target, encoding="utf-8")
    draft.replace(latest)


def locate(runs: Path, name: str = LATEST) -> Path:
    """Get the path of a run from a path, a name below `runs` or the beginning of one, or `latest`.

    Raises UsageError where it may be any of several, NoRun where there is none.
    """
    for path in (runs / name, Path(name)):
        if path.is_file() and path.name == LATEST:
            path = runs / path.read_text(encoding="utf-8").strip()
        if (path / INFO).is_file():
            return path.resolve() if path.is_symlink() else path
    known = _by_time(runs)
    close = sorted(run for run in known if run.startswith(name))
    if len(close) == 1:
        return runs / close[0]
    if close:
        raise UsageError(f"{name!r} may be any of {', '.join(close)}")
    if name == LATEST:
        raise UsageError(f"there is no run in {runs} yet")
    raise NoRun(
        f"no run {name!r} in {runs}"
        + (f". The newest: {', '.join(known[:NAMED])}" if known else ", which holds none")
    )


def _by_time(runs: Path) -> list[str]:
    """Get the names of the runs in a folder, the newest first. A name begins with the taskset's: it says nothing."""
    inside = runs.iterdir() if runs.is_dir() else ()
    made = [
        ((path / INFO).stat().st_mtime_ns, path.name)
        for path in inside
        if (path / INFO).is_file() and path.name != LATEST
    ]
    return [name for _, name in sorted(made, reverse=True)]


def _keep(places: dict[Key, Place], key: Key, new: Place) -> None:
    """Keep the place that counts: a score before an error, the first score, the last error."""
    old = places.get(key)
    if old is None or not old.scored:
        places[key] = new


def refuse_taken(path: Path) -> None:
    """Raise UsageError where a run cannot be written: a file, another run's directory, files of the same names."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; a run needs a directory of its own")
    if any((path / name).exists() for name in (INFO, JOURNAL, TRACES, RESULTS, SETTINGS, *SUMMARIES)):
        raise UsageError(_taken(path))


def _unmake(folders: Sequence[Path], files: Sequence[Path] = ()) -> None:
    """Remove files that were just made, and folders, the inner ones first, as far as nothing else is in them."""
    for file in files:
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody else's file is in it by now, or it was never made
        for folder in folders:
            folder.rmdir()


def _taken(path: Path) -> str:
    holds = (
        "another run"
        if (path / INFO).exists() or (path / JOURNAL).exists()
        else "files that a run would overwrite"
    )
    return f"{path} holds {holds}. Choose another directory for --output, or move that one away"


def _info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads((path / INFO).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path} holds no run: there is no {INFO} in it") from error
    except ValueError as error:
        raise UsageError(f"{path / INFO} is damaged: {error}") from error
    if not isinstance(info, dict):
        raise UsageError(f"{path / INFO} is damaged: expected an object")
    return info


def _lines(path: Path) -> Iterator[Line]:
    return read_lines(path) if path.exists() else iter(())


def _parse(line: Line) -> dict[str, Any] | None:
    """A line as an object; null where a power loss left something else."""
    try:
        record = json.loads(line.content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _line(record: Mapping[str, Any]) -> bytes:
    return to_text(record).encode() + b"\n"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
