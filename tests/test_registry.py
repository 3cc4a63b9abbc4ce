"""Parts are found by name, entry point, module or path, and a failing import is never 'unknown'."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from hotswap import registry
from hotswap.errors import UsageError
from hotswap.registry import Entry, Kind

QUIZ = '''\
"""A file."""
from hotswap import Taskset

class Quiz(Taskset):
    """Questions of our own.

    More of them."""

class _Hidden(Taskset):
    pass
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def offer(folder: Path, package: str, *points: str) -> None:
    """Install what a package's metadata says, by hand."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hotswap.tasksets]\n" + "\n".join(points) + "\n")


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_built_in_part_is_one_class_with_a_summary(kind: Kind) -> None:
    entries = registry.entries(kind)
    assert entries
    for name, entry in entries.items():
        assert entry.summary, name
        assert (registry.load(entry).__doc__ or "").startswith(entry.summary)


def test_hyphen_and_underscore_are_one_name() -> None:
    assert registry.find("taskset", "reverse-text") == registry.find("taskset", "reverse_text")


def test_listing_imports_no_part() -> None:
    code = (
        "import sys; from hotswap import registry\n"
        "for kind in registry.KINDS: registry.entries(kind)\n"
        "print(*(name for name in sys.modules if name.startswith('hotswap.') and name.count('.') == 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("hotswap.contracts.")}
    assert loaded == set()


def test_an_unknown_name_is_suggested_and_the_known_ones_are_listed() -> None:
    with pytest.raises(UsageError) as caught:
        registry.find("harness", "lop")
    assert str(caught.value).startswith("no harness 'lop'. Did you mean 'loop'? Known: ")


def test_a_file_is_found_by_its_path_and_its_class_is_the_public_one(here: Path) -> None:
    (here / "my_quiz.py").write_text(QUIZ)
    entry = registry.find("taskset", "./my_quiz.py")
    assert (entry.name, entry.summary) == ("my_quiz", "Questions of our own.")
    assert registry.load(entry).__name__ == "Quiz"
    assert registry.find("taskset", "my_quiz.py").target == entry.target


def test_a_file_that_was_named_without_its_ending_is_pointed_at(here: Path) -> None:
    (here / "my_quiz.py").write_text(QUIZ)
    with pytest.raises(UsageError, match=r"To use the file: \./my_quiz\.py"):
        registry.find("taskset", "my_quiz")


@pytest.mark.parametrize("ref", ["q.jsonl", "./q.jsonl", "folder/q.csv", "q.tsv.gz"])
def test_a_file_of_rows_is_no_taskset_and_the_one_that_reads_it_is_named(ref: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.find("taskset", ref)
    assert str(caught.value).endswith(f": jsonl --taskset.path {ref}")


def test_a_file_may_import_what_stands_beside_it(here: Path) -> None:
    (here / "parts").mkdir()
    (here / "parts" / "neighbour_of_quiz.py").write_text("ANSWER = 42\n")
    (here / "parts" / "quiz.py").write_text("from neighbour_of_quiz import ANSWER\n" + QUIZ)
    assert registry.load(registry.find("taskset", "parts/quiz.py")).__name__ == "Quiz"


def test_a_missing_file_is_named_in_full(here: Path) -> None:
    with pytest.raises(UsageError, match=f"{here}/nothing.py does not exist"):
        registry.find("taskset", "./nothing.py")


def test_a_class_of_several_must_be_named(here: Path) -> None:
    (here / "two.py").write_text(QUIZ + "class Other(Quiz):\n    pass\n")
    with pytest.raises(
        UsageError, match=r"more than one taskset \(Quiz, Other\). Name one, as .*two.py:Quiz"
    ):
        registry.load(registry.find("taskset", "./two.py"))
    assert registry.load(registry.find("taskset", "./two.py:Other")).__name__ == "Other"
    with pytest.raises(UsageError, match=r"no class 'Othr'\. Did you mean 'Other'"):
        registry.load(registry.find("taskset", "./two.py:Othr"))


def test_a_class_of_another_kind_is_no_such_part(here: Path) -> None:
    (here / "quiz.py").write_text(QUIZ)
    with pytest.raises(UsageError, match="defines no harness"):
        registry.load(registry.find("harness", "./quiz.py"))
    with pytest.raises(UsageError, match=r"is no harness: it does not extend hotswap\.Harness"):
        registry.load(registry.find("harness", "./quiz.py:Quiz"))


UNFINISHED = {
    "harness": ("class Mine(hotswap.Harness):\n    def lanch(self, job): ...\n", "launch(...)", "lanch"),
    "runtime": ("class Mine(hotswap.Runtime):\n    def boxx(self, needs): ...\n", "box(...)", "boxx"),
}


@pytest.mark.parametrize("kind", UNFINISHED)
@pytest.mark.parametrize("named", ["", ":Mine"])
def test_a_class_that_lacks_a_method_is_named_with_it_and_with_the_one_that_is_misspelt(
    here: Path, kind: Kind, named: str
) -> None:
    source, method, misspelt = UNFINISHED[kind]
    (here / "unfinished.py").write_text(f"import hotswap\n\n{source}")
    with pytest.raises(UsageError) as caught:
        registry.load(registry.find(kind, f"./unfinished.py{named}"))
    lacks = f"class Mine lacks {method}, which every hotswap.{kind.capitalize()} defines."
    assert str(caught.value) == f"{here}/unfinished.py: {lacks} Is it what is spelt {misspelt!r}?"


def test_a_class_that_is_finished_is_found_beside_the_base_that_is_not(here: Path) -> None:
    classes = "class Base(Harness):\n  pass\nclass Whole(Base):\n  def launch(self, job): ...\n"
    (here / "both.py").write_text(f"from hotswap import Harness\n{classes}")
    assert registry.load(registry.find("harness", "./both.py")).__name__ == "Whole"


def test_a_program_in_a_harness_place_is_said_to_be_started_by_a_class(here: Path) -> None:
    (here / "agent.sh").write_text("#!/bin/sh\n")
    started = "A program is started by a harness class, as docs/harnesses.md shows: def launch"
    for ref, before, word in (
        ("./agent.sh", "no harness './agent.sh': it is no Python file. ", f"{here}/agent.sh"),
        ("agent.sh", "no harness 'agent.sh'. Known: loop. ", f"{here}/agent.sh"),
        ("sh", "no harness 'sh'. Known: loop. ", "sh"),
        ("sh -c true", "no harness 'sh -c true'. Known: loop. ", "sh"),
    ):
        with pytest.raises(UsageError) as caught:
            registry.find("harness", ref)
        assert str(caught.value).startswith(f"{before}{started}")
        assert f'Launch(argv=("{word}", job.prompt)' in str(caught.value)
    with pytest.raises(UsageError, match=r"Known: loop\.$"):
        registry.find("harness", "no_program_of_this_name")


@pytest.mark.parametrize("ref", ["./rows.txt", "rows.txt"])
def test_a_file_that_is_no_python_is_no_taskset_and_both_ways_are_named(here: Path, ref: str) -> None:
    (here / "rows.txt").write_text("{}\n")
    with pytest.raises(UsageError) as caught:
        registry.find("taskset", ref)
    ways = f"Rows are read by jsonl: jsonl --taskset.path {ref}. Anything else by a class: docs/tasksets.md"
    assert str(caught.value).endswith(ways)


def test_a_class_in_a_module_is_found_by_its_path(here: Path) -> None:
    (here / "some_module_of_quizzes.py").write_text(QUIZ)
    entry = registry.find("taskset", "some_module_of_quizzes:Quiz")
    assert (entry.name, registry.load(entry).__name__) == ("quiz", "Quiz")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no module 'no_such_module_at_all'"):
        registry.load(registry.find("taskset", "no_such_module_at_all.inner:Quiz"))


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (
            "\nimport not_installed_anywhere\n",
            r"ModuleNotFoundError: .*not_installed_anywhere.* \(.*broken\.py:2\)",
        ),
        ("x = (\n", r"SyntaxError: .* \(.*broken\.py:1\)"),
        ("\n\n1 / 0\n", r"ZeroDivisionError: division by zero \(.*broken\.py:3\)"),
        ("raise SystemExit(3)\n", r"SystemExit: 3 \(.*broken\.py:1\)"),
        ("def f():\n  raise ValueError()\nf()\n", r"ValueError \(.*broken\.py:2\)"),
    ],
)
def test_a_part_whose_import_fails_exists_and_says_why_and_where(here: Path, source: str, cause: str) -> None:
    (here / "broken.py").write_text(source)
    with pytest.raises(UsageError, match=f"taskset 'broken' exists .*, and importing it failed: {cause}"):
        registry.load(registry.find("taskset", "./broken.py"))


def test_a_broken_file_is_imported_afresh_once_it_is_mended(here: Path) -> None:
    (here / "mended.py").write_text("1 / 0\n")
    with pytest.raises(UsageError):
        registry.load(registry.find("taskset", "./mended.py"))
    (here / "mended.py").write_text(QUIZ)
    assert registry.load(registry.find("taskset", "./mended.py")).__name__ == "Quiz"


def test_an_installed_package_offers_parts_by_name(here: Path) -> None:
    (here / "quizzes_offered.py").write_text(QUIZ)
    offer(here, "quizzes", "pub-quiz = quizzes_offered:Quiz")
    entry = registry.find("taskset", "pub_quiz")
    assert (entry.origin, entry.summary) == ("quizzes 1.0", "Questions of our own.")
    assert registry.load(entry).__name__ == "Quiz"
    assert registry.entries("taskset")["pub_quiz"] == entry


def test_a_name_that_two_packages_offer_is_refused_with_both(here: Path) -> None:
    offer(here, "first", "quiz = one_module:Quiz")
    offer(here, "second", "quiz = other_module:Quiz")
    with pytest.raises(UsageError) as caught:
        registry.find("taskset", "quiz")
    assert "first 1.0 (one_module:Quiz)" in str(caught.value)
    assert "second 1.0 (other_module:Quiz)" in str(caught.value)
    assert registry.entries("taskset")["quiz"].summary.startswith("Offered twice")


def test_a_built_in_part_keeps_its_name(here: Path) -> None:
    offer(here, "grabber", "gsm8k = grabber_module:Quiz")
    assert registry.find("taskset", "gsm8k").origin == "built-in"
    assert registry.entries("taskset")["gsm8k"].origin == "built-in"


def test_an_entry_travels_as_json(here: Path) -> None:
    (here / "quiz.py").write_text(QUIZ)
    entry = registry.find("taskset", "./quiz.py:Quiz")
    assert Entry(**json.loads(json.dumps(asdict(entry)))) == entry


@pytest.mark.parametrize(
    ("word", "right"), [("smollm2", "a model: -m smollm2"), ("local", "a runtime: -r local")]
)
def test_a_part_that_was_named_in_another_ones_place_is_recognised(word: str, right: str) -> None:
    with pytest.raises(UsageError, match=right):
        registry.find("taskset", word)
