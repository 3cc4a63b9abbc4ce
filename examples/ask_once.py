"""A harness in one file: asks the model once, with nothing but the box's own Python.

uv run eval capitals -H ./examples/ask_once.py
"""

from hotswap import Finish, Harness, Job, Launch

PROGRAM = b"""
import json, os, sys, urllib.request
asked = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": sys.stdin.read()}]}
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["KEY"]}
request = urllib.request.Request(os.environ["URL"], json.dumps(asked).encode(), headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


class AskOnce(Harness):
    """One question, one answer."""

    version = "1"
    style: str = ""
    """A sentence that is put before the prompt."""

    def launch(self, job: Job) -> Launch:
        url = f"{job.endpoint.url}/v1/chat/completions"
        env = {"URL": url, "KEY": job.endpoint.key, "MODEL": job.endpoint.model}
        prompt = f"{self.style}\n\n{job.prompt}" if self.style else job.prompt
        argv = ("python3", f"{job.home}/ask.py")
        return Launch(argv=argv, env=env, files={"ask.py": PROGRAM}, stdin=prompt.encode())

    def conclude(self, result) -> Finish:
        return Finish(answer=result.stdout.text.strip())
