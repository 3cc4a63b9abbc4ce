"""A program of somebody's own: the harness that the documentation shows for one, with a program that stands on PATH."""

import os
import sys
from pathlib import Path

from _kit.docs import ROOT, blocks
from _kit.evals import evaluate
from _kit.provider import Provider, say

PROGRAM = f"""#!{sys.executable}
import json, os, sys, urllib.request

_, flag, model, prompt = sys.argv
asked = {{"model": model, "messages": [{{"role": "user", "content": prompt}}]}}
headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode(), headers)).read()
"""


def test_the_harness_of_the_documentation_hands_over_address_and_key(tmp_path: Path) -> None:
    (shown,) = [block for block in blocks(ROOT / "docs/harnesses.md") if block.name == "my_agent.py"]
    (tmp_path / "my_agent.py").write_text(shown.text)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "my-agent"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    with Provider(lambda request: say("Paris.")) as provider:
        words = ("capitals", "-n", "1", "-m", f"scripted@{provider.url}", "-H", "./my_agent.py")
        done = evaluate(tmp_path, *words, env={"PATH": path})
    assert done.code == 0, done.stdout + done.stderr
    assert [trace["answer"] for trace in done.traces] == ["Paris."]
