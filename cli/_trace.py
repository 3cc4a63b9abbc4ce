"""One trace, for reading: how it came out and why, then the conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotswap.cli._say import count, visible
from hotswap.columns import dollars, number, seconds, tokens
from hotswap.messages import said_elsewhere, texts
from hotswap.result import Result

if TYPE_CHECKING:
    from rich.console import Console

    from hotswap.errors import ErrorRecord
    from hotswap.trace import BoxRecord, Branch, Node, Trace

TEXT_LIMIT = 2_000
"""Characters of one text that are shown, unless all are asked for."""
MESSAGE_LIMIT = 30
"""Messages of one branch that are shown: the first few and the last."""
FIRST_MESSAGES = 4
HOSTS = 10
"""Hosts that are named of those that a box tried."""

STYLES = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "yellow"}


class TraceView:
    """Prints traces on a console; `full` leaves nothing out. `shortened` says whether something was."""

    def __init__(self, console: Console, full: bool = False) -> None:
        self.console = console
        self.full = full
        self.shortened = False

    def show(self, trace: Trace, logs: Path | None = None) -> None:
        """Print one trace, and the paths of the files below `logs`."""
        cell, task = trace.cell.name, trace.task.id
        self._line(f"{trace.id}  {cell}  task {task}  attempt {trace.attempt}", style="bold")
        self._line(f"  {' · '.join(_facts(trace))}")
        if trace.box is not None and (place := " · ".join(_place(trace.box))):
            self._line(f"  {place}")
        for name, reward in trace.rewards.items():
            self._line(
                f"  reward {name} = {number(reward.value)}{_weight(reward.weight)}{self._reasons(reward)}"
            )
        if trace.metrics:
            self._line("  " + ", ".join(f"{name} {_brief(value)}" for name, value in trace.metrics.items()))
        for at, one in enumerate(trace.tries[:-1]):
            if one.error:
                self._error(one.error, f"try {at + 1} failed")
        if trace.error:
            self._error(trace.error, "error" if trace.outcome == "error" else "noted")
        self._conversations(trace)
        if trace.answer is not None and not (trace.main and trace.main[-1].text == trace.answer):
            self._text("answer", trace.answer, "green")
        for path in sorted(logs.iterdir()) if logs and logs.is_dir() else []:
            self._line(f"  log: {path}", style="dim")

    def _conversations(self, trace: Trace) -> None:
        if not trace.branches:
            self._messages(trace.messages)
            return
        seen: set[int] = set()
        for branch in trace.branches:
            path = [node for node in trace.path(branch.leaf) if node.id not in seen]
            seen |= {node.id for node in path}
            if len(trace.branches) > 1:
                self._line(f"  -- {_title(branch, path)}", style="bold")
            self._messages(path)

    def _messages(self, nodes: list[Node]) -> None:
        left_out = 0 if self.full else max(0, len(nodes) - MESSAGE_LIMIT)
        for at, node in enumerate(nodes):
            if at == FIRST_MESSAGES and left_out:
                self.shortened = True
                self._line(f"  [... {count(left_out, 'message')} left out ...]", style="dim")
            if at < FIRST_MESSAGES or at >= FIRST_MESSAGES + left_out:
                self._message(node)

    def _message(self, node: Node) -> None:
        style = STYLES.get(node.role, "")
        if node.reasoning:
            self._text(f"{node.role}, thinking", node.reasoning, "dim")
        if node.refusal:
            self._text(f"{node.role}, refusing", node.refusal, style)
        text = "".join(_parts(node.content))
        answers = f" {node.tool_call_id}" if node.tool_call_id else ""
        if text or not (node.tool_calls or node.reasoning or node.refusal):
            self._text(f"{node.role}{answers}", text or "(nothing)", style)
        for call in node.tool_calls:
            self._text(f"{node.role} calls {call.name} {call.id}", call.arguments, style)

    def _error(self, error: ErrorRecord, title: str) -> None:
        self._text(f"{title}: {error.blame}, in {error.stage}, {error.type}", error.message, "red")
        if error.detail and error.detail.strip() != error.message.strip():
            self._text("detail", error.detail, "dim", from_end=True)

    def _reasons(self, reward: Any) -> str:
        said = [f"extracted {_brief(reward.extracted)}" if reward.extracted is not None else ""]
        said.append(f"expected {_brief(reward.expected)}" if reward.expected is not None else "")
        said.append(reward.note or "")
        text = "; ".join(part for part in said if part)
        return f"  ({self._bounded(text)})" if text else ""

    def _text(self, title: str, text: str, style: str, from_end: bool = False) -> None:
        shown = self._bounded(text.strip("\r\n").replace("\r\n", "\n"), from_end)
        self._line(f"  [{title}] " + shown.replace("\n", "\n    "), style=style)

    def _bounded(self, text: str, from_end: bool = False) -> str:
        if self.full or len(text) <= TEXT_LIMIT:
            return text
        self.shortened = True
        note = f"[... {len(text) - TEXT_LIMIT:,} characters left out ...]"
        return f"{note}\n{text[-TEXT_LIMIT:]}" if from_end else f"{text[:TEXT_LIMIT]}\n{note}"

    def _line(self, text: str, style: str = "") -> None:
        self.console.print(visible(text), style=style, soft_wrap=True)


def _facts(trace: Trace) -> Iterator[str]:
    """How it came out and what it took."""
    yield f"scored {number(trace.reward)}" if trace.outcome == "scored" else "not scored"
    if trace.stop != "done":
        yield f"stopped by {trace.stop}"
    yield count(trace.turns, "turn")
    result = Result.of(trace)  # as in the tables, where what made no call has used 0
    read, wrote = result.usage.input, result.usage.output
    if read is not None or wrote is not None:
        yield f"{_amount(read)} tokens in, {_amount(wrote)} out"
    yield dollars(result.cost_usd) if result.cost_usd is not None else "cost not known"
    timing = trace.timing
    stages = [timing.box_s, timing.setup_s, timing.agent_s, timing.scoring_s]
    if any(stage is not None for stage in stages):
        yield seconds(sum(stage for stage in stages if stage is not None))
    if len(trace.tries) > 1:
        yield f"{len(trace.tries)} tries"
    for launch in trace.launches:
        if launch.exit or launch.signal:
            yield f"exit code {launch.exit}" if launch.signal is None else f"signal {launch.signal}"


def _place(box: BoxRecord) -> Iterator[str]:
    """What could be reached, what was tried, and what was asked for and did not hold."""
    if box.network not in (None, "open"):
        yield f"network {box.network}"
    for allowed, word in ((True, "let through"), (False, "refused")):
        tried = [
            f"{each.host}:{each.port}" + (f" ({each.count} times)" if each.count > 1 else "")
            for each in box.egress
            if each.allowed == allowed
        ]
        if tried:
            more = f", and {len(tried) - HOSTS} more" if len(tried) > HOSTS else ""
            yield f"{word}: {', '.join(tried[:HOSTS])}{more}"
    if box.not_enforced:
        yield f"not enforced: {', '.join(box.not_enforced)}"


def _amount(value: int | None) -> str:
    return "unknown" if value is None else tokens(value)


def _weight(weight: float) -> str:
    return "" if weight == 1 else f" (weight {weight:g})"


def _title(branch: Branch, path: list[Node]) -> str:
    agent = "" if branch.agent == "main" else f" ({branch.agent})"
    drift = ", left behind when the history was rewritten" if branch.drift else ""
    return f"{branch.kind}{agent}: {count(len(path), 'message')}{drift}"


def _parts(content: Any) -> Iterator[str]:
    """The parts of a message as text; what is no text is named by its type, or by what was kept of it."""
    if content is None or isinstance(content, str):
        yield content or ""
        return
    for part in content:
        text = "".join(texts([part]))
        if text:
            yield text
        elif isinstance(part, dict) and not said_elsewhere(part) and not isinstance(part.get("text"), str):
            blob = _blob(part)
            size = f"{len(json.dumps(part))} characters" if blob is None else blob
            yield f"[{part.get('type', 'part')}, {size}]"


def _blob(value: Any) -> str | None:
    """What is kept of a part's payload, wherever in it the reference stands."""
    if isinstance(value, dict) and isinstance(value.get("blob"), str):
        return f"{value.get('media_type')}, {value.get('bytes')} bytes, blobs/{value['blob'].removeprefix('sha256:')}"
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in inner if (found := _blob(item)) is not None), None)


def _brief(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "missing"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)
