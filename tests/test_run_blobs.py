"""Images that a program shows its model are in the run directory once, and in the trace by their hash."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from _kit.evals import evaluate
from _kit.provider import Provider, say

PROGRAM = """
import base64, json, os, urllib.request
image = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode()
parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": image}}]
talk = [{"role": "user", "content": parts}]
for _ in range(2):
    body = json.dumps({"messages": talk}).encode()
    request = urllib.request.Request(os.environ["URL"] + "/v1/chat/completions", body)
    request.add_header("Authorization", "Bearer " + os.environ["KEY"])
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    talk += [answer, {"role": "user", "content": "again"}]
"""

HARNESS = """
import sys
from hotswap import Harness, Job, Launch

class Shows(Harness):
    def launch(self, job: Job) -> Launch:
        env = {"URL": job.endpoint.url, "KEY": job.endpoint.key}
        return Launch(argv=(sys.executable, "-c", PROGRAM), env=env)
"""


def test_an_image_is_kept_once_under_its_hash(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text(f"PROGRAM = {PROGRAM!r}\n{HARNESS}")
    with Provider(lambda received: say("a picture")) as provider:
        model = f"scripted@{provider.url}"
        done = evaluate(tmp_path, "reverse_text", "-m", model, "-H", "./shows.py", "-n", "2")
        sent = [json.loads(request.body) for request in provider.posts]
    assert done.code == 0, done.stderr
    image = bytes(range(256)) * 40
    name = hashlib.sha256(image).hexdigest()
    assert [path.name for path in (done.run / "blobs").iterdir()] == [name]
    assert (done.run / "blobs" / name).read_bytes() == image
    encoded = base64.b64encode(image).decode()
    assert all(encoded in json.dumps(body) for body in sent)
    assert encoded not in (done.run / "traces.jsonl").read_text()
    for trace in done.traces:
        assert trace["messages"][0]["content"][1]["image_url"]["url"]["blob"] == f"sha256:{name}"
        assert len(trace["branches"]) == 1


def test_a_secret_in_a_file_that_is_shown_to_the_model_is_not_kept(tmp_path: Path) -> None:
    reads = PROGRAM.replace(
        "bytes(range(256)) * 40", '(b"# .env\\n" * 200 + os.environ["MY_TOKEN"].encode())'
    )
    (tmp_path / "shows.py").write_text(f"PROGRAM = {reads!r}\n{HARNESS}")
    env = {"MY_TOKEN": "canary-of-a-file-0007"}
    with Provider(lambda received: say("a file")) as provider:
        words = ("-m", f"scripted@{provider.url}", "-H", "./shows.py", "-n", "1")
        done = evaluate(tmp_path, "reverse_text", *words, "--runtime.local.env", "MY_TOKEN", env=env)
    assert done.code == 0, done.stderr
    (kept,) = (done.run / "blobs").iterdir()
    assert kept.read_bytes() == b"# .env\n" * 200 + b"[secret:MY_TOKEN]"
    assert kept.name == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert done.traces[0]["messages"][0]["content"][1]["image_url"]["url"]["blob"] == f"sha256:{kept.name}"
