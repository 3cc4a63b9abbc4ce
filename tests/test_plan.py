"""Cells have names that say what differs; the same tasks are taken on every machine."""

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hotswap.contracts.harness import Harness, Job, Launch
from hotswap.contracts.task import Task
from hotswap.errors import UsageError
from hotswap.plan import Cell, cells, pairing_problems, rollouts, select, shuffle_key
from hotswap.settings import Given, resolve


@dataclass(frozen=True)
class Wanted:
    """The settings that choose tasks."""

    tasks: int | None = None
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shuffle: bool = False
    seed: int = 0


def make(*ids: str) -> list[Task]:
    return [Task(id=id_, prompt="?") for id_ in ids]


def chosen(tasks: list[Task], wanted: Wanted, *, endless: bool = False) -> list[str]:
    return [task.id for task in asyncio.run(select(tasks, wanted, endless=endless))]


def plan(**names: str | tuple[str, ...]) -> tuple[Cell, ...]:
    lists = {kind: list(name) if isinstance(name, tuple) else name for kind, name in names.items()}
    flags = [Given((kind,), name, "test") for kind, name in lists.items()]
    return cells(resolve(flags, [], {"HOTSWAP_USER_FILE": ""}, Path("/")).chosen)


LETTERS = make("a1", "a2", "b1", "b2", "7")


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Wanted(), ["a1", "a2", "b1", "b2", "7"]),
        (Wanted(tasks=2), ["a1", "a2"]),
        (Wanted(tasks=99), ["a1", "a2", "b1", "b2", "7"]),
        (Wanted(select=("b1",)), ["b1"]),
        (Wanted(select=("b*", "a1")), ["a1", "b1", "b2"]),
        (Wanted(select=("1",)), ["a2"]),
        (Wanted(select=("7",)), ["7"]),
        (Wanted(select=("1:3",)), ["a2", "b1"]),
        (Wanted(select=("3:",)), ["b2", "7"]),
        (Wanted(exclude=("a*", "4")), ["b1", "b2"]),
        (Wanted(select=("a*",), exclude=("a2",)), ["a1"]),
        (Wanted(select=("*",), tasks=1), ["a1"]),
    ],
)
def test_tasks_are_chosen_by_number_id_glob_index_and_slice(wanted: Wanted, ids: list[str]) -> None:
    assert chosen(LETTERS, wanted) == ids


def test_a_number_is_an_id_where_there_is_such_a_task_and_else_an_index() -> None:
    tasks = make("1", "x", "y")
    assert chosen(tasks, Wanted(select=("1",))) == ["1"]
    assert chosen(tasks, Wanted(exclude=("1",))) == ["x", "y"]
    assert chosen(tasks, Wanted(select=("2",))) == ["y"]


def test_a_pattern_that_matches_nothing_is_named_with_close_ids() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(LETTERS, Wanted(select=("a1", "bb1"), exclude=("zzz",)))
    first, second = caught.value.problems
    assert first.startswith("--select 'bb1' matches none of 5 tasks. Ids are like: b1")
    assert second.startswith("--exclude 'zzz' matches none")


def test_a_selection_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="leave none"):
        chosen(LETTERS, Wanted(select=("a1",), exclude=("a*",)))
    with pytest.raises(UsageError, match="it has none"):
        chosen([], Wanted())


def test_an_id_that_stands_for_two_tasks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"one id to several tasks: 'a' \(2 times\)"):
        chosen(make("a", "b", "a"), Wanted())


def counted() -> tuple[list[int], Iterator[Task]]:
    """Tasks without an end, and the number of those that were pulled."""
    pulled = [0]

    def tasks() -> Iterator[Task]:
        while True:
            pulled[0] += 1
            yield Task(id=f"t{pulled[0] - 1}", prompt="?")

    return pulled, tasks()


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Wanted(tasks=5), 5),
        (Wanted(tasks=5, select=("2:9",)), 9),
        (Wanted(tasks=2, exclude=("0", "1")), 4),
    ],
)
def test_no_more_tasks_are_built_than_the_run_uses(wanted: Wanted, count: int) -> None:
    pulled, tasks = counted()
    asyncio.run(select(tasks, wanted, endless=True))
    assert pulled[0] == count


def test_a_stream_of_tasks_is_left_as_soon_as_there_are_enough() -> None:
    async def stream() -> AsyncIterator[Task]:
        for task in make("a", "b"):
            yield task
        raise AssertionError("one too many was asked for")

    assert [task.id for task in asyncio.run(select(stream(), Wanted(tasks=2)))] == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(), "say how many, with -n"),
        (Wanted(tasks=3, shuffle=True), "cannot be shuffled"),
        (Wanted(tasks=3, select=("a*",)), "cannot be looked for"),
    ],
)
def test_an_endless_taskset_needs_a_number_and_cannot_be_searched(wanted: Wanted, said: str) -> None:
    _, tasks = counted()
    with pytest.raises(UsageError, match=said):
        asyncio.run(select(tasks, wanted, endless=True))


ids = some.lists(some.text(min_size=1, max_size=5), unique=True, min_size=1, max_size=400)


@given(ids, some.integers(1, 300), some.integers(0, 300), some.booleans(), some.integers(0, 3))
def test_more_tasks_are_a_superset_shuffled_or_not(
    names: list[str], fewer: int, more: int, shuffle: bool, seed: int
) -> None:
    tasks = make(*names)
    small = chosen(tasks, Wanted(fewer, shuffle=shuffle, seed=seed))
    large = chosen(tasks, Wanted(fewer + more, shuffle=shuffle, seed=seed))
    assert len(small) == min(fewer, len(tasks))
    assert large[: len(small)] == small


@given(ids, some.randoms(), some.integers(1, 50))
def test_a_shuffled_choice_does_not_depend_on_the_order_of_the_taskset(
    names: list[str], random: Random, count: int
) -> None:
    turned = list(names)
    random.shuffle(turned)
    wanted = Wanted(count, shuffle=True)
    assert chosen(make(*names), wanted) == chosen(make(*turned), wanted)


def test_the_shuffled_order_is_fixed_for_good() -> None:
    by_seed = ["".join(sorted("abcde", key=lambda id_: shuffle_key(seed, id_))) for seed in (0, 1)]
    assert by_seed == ["dacbe", "daebc"]


def test_a_cells_name_says_what_differs() -> None:
    (cell,) = plan(taskset="gsm8k", harness="loop,tools=bash", model="openai/gpt-5-mini")
    assert cell.name == "gsm8k/loop,tools=bash/openai:gpt-5-mini/local"
    assert cell.settings == {"harness": {"tools": ["bash"]}}


def test_every_combination_is_a_cell_and_their_names_are_unique() -> None:
    found = plan(
        taskset=("gsm8k", "jsonl,path=a/b"),
        harness=("loop", "loop,tools=bash"),
        model=("m@http://h:1/v1", "x"),
    )
    names = [cell.name for cell in found]
    assert len(set(names)) == 8
    assert "jsonl,path=a:b/loop/m@h:1:v1/local" in names


def test_a_model_that_is_chosen_twice_is_named_as_it_was_written() -> None:
    with pytest.raises(UsageError, match="model 'm@http://h:1/v1' is chosen twice"):
        plan(model=("m@http://h:1/v1", "m@http://h:1/v1"))


def test_a_part_that_is_chosen_twice_alike_is_refused() -> None:
    with pytest.raises(UsageError, match="harness 'loop' is chosen twice"):
        plan(taskset="gsm8k", harness=("loop", "loop"), model="x")


def test_two_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    text = "from hotswap import Taskset\nclass Quiz(Taskset): pass\n"
    files = [tmp_path / folder / "quiz.py" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(text)
    names = [cell.name for cell in plan(taskset=tuple(map(str, files)), model="x")]
    assert len(set(names)) == 2


def test_a_cell_survives_json() -> None:
    (cell,) = plan(taskset="gsm8k", harness="loop,tools=bash", model="openai/x,effort=high")
    assert Cell.from_json(json.loads(json.dumps(cell.to_json()))) == cell


def test_rollouts_are_interleaved_over_cells_before_the_second_attempt() -> None:
    found = plan(taskset="gsm8k", harness=("loop", "loop,tools=bash"), model="x")
    planned = rollouts(found, {"gsm8k": make("a", "b")}, 2)
    order = [(cell.harness.text, task.id, attempt) for cell, task, attempt in planned]
    one, two = "loop", "loop,tools=bash"
    first = [(one, "a", 0), (two, "a", 0), (one, "b", 0), (two, "b", 0)]
    assert order == first + [(text, id_, 1) for text, id_, _ in first]


class Plain(Harness):
    """Takes no system prompt, and speaks chat alone."""

    def launch(self, job: Job) -> Launch:
        return Launch(argv=("true",))


def test_a_pairing_that_cannot_work_is_said_with_its_cell() -> None:
    (cell,) = plan(taskset="gsm8k", model="x")
    with_system = [Task(id="s", prompt="?", system="be brief")]
    assert pairing_problems(cell, Plain, ("chat", "responses"), make("a")) == []
    assert pairing_problems(cell, Plain, ("messages",), make("a")) == []
    assert pairing_problems(cell, Plain, ("gemini",), with_system) == [
        f"{cell.name}: the harness speaks chat, which cannot be translated into gemini",
        f"{cell.name}: the harness takes no system prompt, which task 's' brings",
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(tasks=10, exclude=("t1*",)),
        Wanted(tasks=10, select=("t*7",)),
        Wanted(tasks=10, shuffle=True),
        Wanted(tasks=10, shuffle=True, exclude=("5", "t3*")),
        Wanted(tasks=10, select=("t*", "12345"), exclude=("3",)),
    ],
)
def test_of_many_tasks_no_more_are_kept_than_the_run_uses(wanted: Wanted) -> None:
    gone: list[int] = []
    most = 0

    def many() -> Iterator[Task]:
        nonlocal most
        for number in range(20_000):
            task = Task(id=f"t{number}", prompt="p")
            weakref.finalize(task, gone.append, number)
            yield task
            del task
            most = max(most, number + 1 - len(gone))

    chosen = asyncio.run(select(many(), wanted))
    assert len(chosen) == 10
    assert most < 150
