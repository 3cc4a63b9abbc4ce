"""Variants of one model in one run: each is called as it was set."""

from pathlib import Path

from _kit.evals import evaluate
from _kit.provider import Provider, say


def test_each_variant_of_a_model_has_an_endpoint_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "a", "prompt": "p", "answer": "42"}')
    with Provider(lambda _: say("42")) as provider:
        (tmp_path / "eval.toml").write_text(f'[models.mine]\nurl = "{provider.url}"\n')
        variants = ("-m", "mine,model=one,temperature=0", "-m", "mine,model=two,temperature=1")
        done = evaluate(tmp_path, "jsonl", "--taskset.path", "q.jsonl", *variants)
        asked = sorted((request.json["model"], request.json["temperature"]) for request in provider.posts)
    assert done.code == 0, done.stderr
    assert asked == [("one", 0), ("two", 1)]
    assert sorted(trace["cell"]["name"] for trace in done.traces) == [
        "jsonl/loop/mine,model=one,temperature=0/local",
        "jsonl/loop/mine,model=two,temperature=1/local",
    ]
