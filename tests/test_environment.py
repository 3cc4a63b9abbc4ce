"""What a task asks of its place: written, read back, and part of what the task is."""

import pytest

from hotswap.contracts.environment import Environment
from hotswap.contracts.task import Task

FULL = Environment(
    image="python:3.12", cpus=1.5, memory_mb=2048, pids=99, user="agent", workdir="/app",
    env={"A": "1"}, network="example.org", capabilities=("NET_RAW",),
)  # fmt: skip


def test_a_task_with_an_environment_is_read_as_it_was_written() -> None:
    task = Task(id="a", prompt="p", environment=FULL)
    assert Task.from_json(task.to_json()) == task
    assert Environment.from_json({"image": "x", "later": 1}) == Environment(image="x")


def test_the_environment_is_part_of_what_a_task_is() -> None:
    bare = Task(id="a", prompt="p")
    assert bare.hash != Task(id="a", prompt="p", environment=FULL).hash
    assert bare.hash == Task(id="b", prompt="p").hash
    assert "environment" not in bare.to_json()


def test_a_network_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="expected open, closed"):
        Environment(network="everything!")
