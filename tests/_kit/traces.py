"""Traces and results made by hand, for tests of what reads them."""

from typing import Any

from hotswap.errors import ErrorRecord
from hotswap.messages import ToolCall, Usage
from hotswap.result import Result
from hotswap.trace import (
    Branch,
    CallRecord,
    CallTry,
    CellRecord,
    LaunchRecord,
    Node,
    RewardRecord,
    TaskRecord,
    Timing,
    Trace,
    Try,
)

HASH = "sha256:" + "0" * 64


def cell(name: str = "quiz/loop/small/local") -> CellRecord:
    taskset, harness, model, runtime = name.split("/")
    return CellRecord(name, taskset, harness, "1", model, runtime)


def fault(blame: str = "provider", **given: Any) -> ErrorRecord:
    kept = {"stage": "agent", "type": "overloaded", "message": "Overloaded (HTTP 529)", **given}
    return ErrorRecord(blame=blame, **kept)  # type: ignore[arg-type]


def scored(task: str = "fr", attempt: int = 0, reward: float = 1.0, **given: Any) -> Trace:
    """A trace of one question and one answer."""
    kept: dict[str, Any] = {
        "id": f"01{task.upper()}{attempt}",
        "cell": cell(),
        "rewards": {"right": RewardRecord(reward, note="names it", extracted="Paris", expected="Paris")},
        "metrics": {"turns": 1.0},
        "tries": [Try(None, 0.001, Usage(10, 2))],
        "cost_usd": 0.001,
        "answer": "It is Paris.",
        **given,
    }
    return Trace(
        run="quiz--20261130-161500-k3f9",
        task=TaskRecord(task, HASH, {"prompt": f"Capital of {task}?", "answer": "Paris", "tags": ["europe"]}),
        attempt=attempt,
        outcome="scored",
        reward=reward,
        launches=[LaunchRecord("main", 0, None)],
        messages=[
            Node(0, None, "system", "Be brief."),
            Node(1, 0, "user", f"Capital of {task}?"),
            Node(2, 1, "assistant", "It is Paris.", sampled=True, call=0),
        ],
        branches=[Branch(2)],
        calls=[
            CallRecord(1, [2], "chat", "/v1/chat/completions", "small", 200, 1.0, tries=[CallTry(200, 0.5)])
        ],
        usage=Usage(10, 2, 0, 0, None),
        timing=Timing(1.0, 0.1, 0.0, 0.5, 0.4, 0.01),
        versions={"hotswap": "0.1.0", "python": "3.11.7", "image": None},
        **kept,
    )


def failed(task: str = "de", attempt: int = 0, error: ErrorRecord | None = None, **given: Any) -> Trace:
    """A trace of a rollout that ended in an error before any model call."""
    error = error or fault()
    kept: dict[str, Any] = {
        "id": f"02{task.upper()}{attempt}",
        "cell": cell(),
        "tries": [Try(error)],
        **given,
    }
    record = TaskRecord(task, HASH, {"prompt": f"Capital of {task}?"})
    return Trace(
        run="quiz--20261130-161500-k3f9",
        task=record,
        attempt=attempt,
        error=error,
        **kept,
    )


def full() -> Trace:
    """A trace with something in every field."""
    trace = scored()
    trace.cell.settings = {"harness": {"tools": ["bash"]}}
    trace.error = fault("harness", type="timeout", message="the time limit of 5 s was reached", detail="bye")
    trace.messages.append(
        Node(3, 2, "assistant", None, [ToolCall("c1", "bash", '{"cmd":')], sampled=True, call=1)
    )
    trace.messages.append(
        Node(4, 3, "tool", [{"type": "text", "text": "no"}], tool_call_id="c1", extra={"is_error": True})
    )
    trace.messages.append(Node(5, 1, "assistant", "Side", reasoning="hm", refusal="no"))
    trace.branches = [Branch(4), Branch(5, "side", "title")]
    trace.tools = {HASH: [{"type": "function", "function": {"name": "bash"}}]}
    trace.calls[0].error = fault()
    trace.calls[0].tools = HASH
    trace.unknown = {"judged": [1, 2]}
    return trace


def result(task: str = "t1", attempt: int = 0, reward: float | None = 1.0, **given: Any) -> Result:
    """A result as a run directory holds it; without a reward it is an error, the provider's unless told."""
    error = given.pop("error", None if reward is not None else fault())
    kept: dict[str, Any] = {
        "id": f"{task}-{attempt}",
        "cell": "quiz/loop/small/local",
        "taskset": "quiz",
        "harness": "loop",
        "harness_version": "1",
        "model": "small",
        "runtime": "local",
        "task_hash": HASH,
        "outcome": "error" if reward is None else "scored",
        "rewards": {} if reward is None else {"right": reward},
        **given,
    }
    return Result(task=task, attempt=attempt, reward=reward, error=error, **kept)
