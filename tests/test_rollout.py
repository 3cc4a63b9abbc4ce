"""The order of a rollout's steps, seen from the taskset and in the trace, with programs that leave things behind."""

import threading
from pathlib import Path
from typing import Any

from _kit.evals import KIT, Done, evaluate
from _kit.provider import Provider, Received, Reply, replace, say

TASKSET = """
from pathlib import Path
from hotswap import Task, Taskset, metric, reward

class Quiz(Taskset):
    def load(self):
        yield Task(id="q", prompt="Well?", answer="42")

"""
HARNESS = """
from hotswap import Finish, Harness, Job, Launch

CALL = '''
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["KEY"]}
urllib.request.urlopen(urllib.request.Request(os.environ["URL"], body, headers)).read()
'''

class Unread(Harness):
    def launch(self, job: Job) -> Launch:
        env = {"URL": f"{job.endpoint.url}/v1/chat/completions", "KEY": job.endpoint.key}
        return Launch(argv=("python3", "-c", CALL), env=env)

    def conclude(self, result) -> Finish:
        raise ValueError("cannot read what it left")
"""


def played(folder: Path, provider: Provider, scoring: str, harness: str) -> dict[str, Any]:
    """Play one task of a taskset with these scoring functions, and get its trace."""
    (folder / "quiz.py").write_text(TASKSET + scoring)
    done = evaluate(folder, "./quiz.py", "-m", f"scripted@{provider.url}", "-H", harness)
    (trace,) = done.traces
    return trace


def test_what_the_program_left_running_is_gone_when_the_scorer_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    scoring = f"""
    @reward
    def gone(self):
        return float(not Path("/proc", Path({str(pid_file)!r}).read_text()).exists())
"""
    with Provider(lambda request: say("42")) as provider:
        harness = f"{KIT / 'misbehaving.py'},mode=leaves_a_daemon,pid_file={pid_file}"
        trace = played(tmp_path, provider, scoring, harness)
    assert trace["reward"] == 1.0


def test_a_call_that_is_still_in_flight_when_the_program_ends_is_settled_before_the_verdict(
    tmp_path: Path,
) -> None:
    scoring = """
    @reward
    def settled(self, trace):
        return float(len(trace.calls) == 2 and all(call.outputs or call.error for call in trace.calls))
"""
    arrived = threading.Event()

    def script(request: Received) -> Reply:
        if b"late" in request.body:
            arrived.set()
            return replace(say("too late"), hold=threading.Event())
        return replace(say("42"), hold=arrived)

    with Provider(script) as provider:
        trace = played(tmp_path, provider, scoring, f"{KIT / 'misbehaving.py'},mode=leaves_a_call")
    assert trace["reward"] == 1.0
    assert trace["metrics"]["turns"] == 1
    assert "too late" not in str(trace["messages"])


def test_a_programs_key_opens_nothing_once_it_has_ended(tmp_path: Path) -> None:
    told = tmp_path / "told"
    scoring = f"""
    @reward
    def refused(self):
        import urllib.error, urllib.request
        url, key = Path({str(told)!r}).read_text().split()
        body = b'{{"model": "m", "messages": [{{"role": "user", "content": "late"}}]}}'
        headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + key}}
        try:
            urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, headers))
        except urllib.error.HTTPError:
            return 1.0
        return 0.0
"""
    with Provider(lambda request: say("42")) as provider:
        harness = f"{KIT / 'misbehaving.py'},mode=tells_its_key,pid_file={told}"
        trace = played(tmp_path, provider, scoring, harness)
    assert trace["reward"] == 1.0
    assert (len(trace["calls"]), len(provider.requests)) == (1, 1)


def test_a_rollout_whose_end_cannot_be_read_keeps_its_calls_its_usage_and_its_counts(tmp_path: Path) -> None:
    (tmp_path / "unread.py").write_text(HARNESS)
    scoring = """
    @reward
    def right(self):
        return 1.0
"""
    with Provider(lambda request: say("42")) as provider:
        trace = played(tmp_path, provider, scoring, "./unread.py")
    assert (trace["outcome"], trace["error"]["blame"], trace["error"]["type"]) == (
        "error",
        "harness",
        "ValueError",
    )
    assert [message["role"] for message in trace["messages"]] == ["user", "assistant"]
    assert (len(trace["calls"]), trace["usage"]["input"]) == (1, 10)
    assert (trace["metrics"]["turns"], trace["metrics"]["calls"]) == (1, 1)


def test_a_tasksets_own_metric_is_not_overwritten_by_a_count_of_that_name(tmp_path: Path) -> None:
    scoring = """
    @reward
    def right(self):
        return 1.0

    @metric
    def turns(self):
        return 7
"""
    with Provider(lambda request: say("42")) as provider:
        trace = played(tmp_path, provider, scoring, "loop")
    assert (trace["metrics"]["turns"], trace["metrics"]["calls"]) == (7, 1)


def test_an_argv_that_is_text_is_the_harness_fault_and_the_tuple_is_written_out(tmp_path: Path) -> None:
    trace = launched(tmp_path, 'Launch(argv="echo hi there")').traces[0]
    assert (trace["error"]["blame"], trace["error"]["type"]) == ("harness", "TypeError")
    right = "a tuple of words is wanted, as ('echo', 'hi', 'there')"
    assert trace["error"]["message"] == f"Launch(argv='echo hi there'): {right}"


def test_the_last_line_of_a_failed_program_stands_below_the_table_with_its_secret_masked(
    tmp_path: Path,
) -> None:
    script = 'echo working >&2; echo "no: $KEY" >&2; exit 3'
    done = launched(tmp_path, f'Launch(argv=("sh", "-c", {script!r}), env={{"KEY": job.endpoint.key}})')
    said = "the program exited with code 3: no: [secret:session]"
    assert done.traces[0]["error"]["message"] == said
    assert f"  1 x harness, exit_code: {said}" in done.stdout.splitlines()


def launched(folder: Path, launch: str) -> Done:
    """Play one task in a harness that launches so."""
    lines = (
        "from hotswap import *",
        "class Mine(Harness):",
        "    def launch(self, job):",
        f"        return {launch}",
    )
    (folder / "mine.py").write_text("\n".join(lines))
    with Provider(lambda request: say("42")) as provider:
        words = ("reverse_text", "-n", "1", "-m", f"scripted@{provider.url}", "-H", "./mine.py")
        return evaluate(folder, *words)
