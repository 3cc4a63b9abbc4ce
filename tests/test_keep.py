"""Boxes that are left for a look: which, where they are, and how they go."""

import asyncio
from pathlib import Path

import pytest
from _kit.evals import evaluate
from _kit.provider import Provider, say

from hotswap.runtimes.local import Local


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("hotswap-*"))


def play(url: str, where: Path, keep: str) -> str:
    rows = '{"prompt": "right?", "answer": "yes"}\n{"prompt": "wrong?", "answer": "no"}\n'
    (where / "rows.jsonl").write_text(rows)
    (where / "boxes").mkdir()
    words = ["jsonl", "--taskset.path", "rows.jsonl", "-m", f"s@{url}", "--runtime.local.root", "boxes"]
    done = evaluate(where, *words, "--keep", keep)
    return done.stderr + done.stdout


@pytest.mark.parametrize(("keep", "count"), [("failed", 1), ("all", 2), ("none", 0)])
def test_the_boxes_that_were_asked_for_are_left_and_named(tmp_path: Path, keep: str, count: int) -> None:
    with Provider(lambda request: say("yes")) as provider:
        said = play(provider.url, tmp_path, keep)
    folders = kept(tmp_path / "boxes")
    assert len(folders) == count
    for folder in folders:
        assert f"cd {folder}/workdir" in said
        assert f"rm -rf {folder}" in said
        assert (folder / "home").is_dir()


def test_kept_boxes_are_removed_once_their_eval_is_gone_and_nothing_else_is(tmp_path: Path) -> None:
    with Provider(lambda request: say("yes")) as provider:
        play(provider.url, tmp_path, "all")
    boxes = tmp_path / "boxes"
    (boxes / "hotswap-notes").mkdir()
    (boxes / "other").mkdir()
    gone = [str(folder) for folder in kept(boxes) if folder.name != "hotswap-notes"]
    assert asyncio.run(Local(root=str(boxes)).clean()) == gone
    assert sorted(path.name for path in boxes.iterdir()) == ["hotswap-notes", "other"]
