"""How a run shows its progress where there is no terminal."""

import json
from pathlib import Path

from _kit.evals import evaluate
from _kit.provider import Provider, say

FORCED = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
"""What some CI systems set, and what would make other programs write colours into pipes."""


def test_in_a_pipe_there_are_plain_lines_whatever_the_environment_asks_for(tmp_path: Path) -> None:
    rows = [json.dumps({"prompt": "Well?", "answer": answer}) for answer in ("42", "43", "44")]
    (tmp_path / "q.jsonl").write_text("\n".join(rows))
    with Provider(lambda request: say("42")) as provider:
        model = ("-m", f"scripted@{provider.url}", "-H", "loop", "-H", "loop,tools=bash")
        more = ("-k", "2", "--pilot", "1", "--yes")
        done = evaluate(tmp_path, "jsonl", "--taskset.path", "q.jsonl", *model, *more, env=FORCED)
    assert done.code == 0, done.stderr
    assert not [char for char in done.stdout + done.stderr if char < " " and char != "\n"]
    assert "12/12 done" in done.stderr
    assert "reward" in done.stdout
