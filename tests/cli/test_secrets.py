"""Secrets that a person hands to boxes are in no file of a run."""

from __future__ import annotations

from pathlib import Path

from _kit.evals import evaluate
from _kit.provider import Provider, call_tool, say

CANARY = "canary-vendor-0002"


def test_a_variable_that_boxes_are_given_is_masked_by_its_value(tmp_path: Path) -> None:
    script = (
        call_tool("bash", {"command": 'printf "%s" "$MY_VENDOR_TOKEN"; echo "$MY_KEYBOARD"'}),
        say("done"),
    )
    with Provider(*script) as provider:
        done = evaluate(
            tmp_path, "reverse_text", "-m", f"scripted@{provider.url}", "-n", "1", "-H", "loop,tools=bash",
            "--runtime.local.env", "MY_VENDOR_TOKEN", "--runtime.local.env", "MY_KEYBOARD=qwertz-layout",
            env={"MY_VENDOR_TOKEN": CANARY},
        )  # fmt: skip
        assert CANARY in provider.posts[1].body.decode()  # the program did show it to the model
    assert done.code == 0, done.stderr
    holding = [
        path for path in done.run.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert holding == []
    assert b"qwertz-layout" in (done.run / "traces.jsonl").read_bytes()
