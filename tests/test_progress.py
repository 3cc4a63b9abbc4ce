"""What a run has come to so far, as it is shown while the run is going on."""

from hotswap.contracts.task import Task
from hotswap.errors import ErrorRecord
from hotswap.masking import Masker
from hotswap.progress import Progress
from hotswap.rollout import Rollout
from hotswap.trace import CellRecord, TaskRecord, Trace


def test_the_latest_fault_quotes_a_program_without_its_secrets() -> None:
    masker = Masker({"KEY": "canary-0001"})
    rollout = Rollout("1", "run", "t/h/m/r", Task(id="fr", prompt="p"), 0)
    cell = CellRecord("t/h/m/r", "t", "h", "1", "m", "r")
    trace = Trace(id="1", run="run", cell=cell, task=TaskRecord("fr", "sha256:0"), attempt=0)
    trace.error = ErrorRecord("harness", "agent", "exit_code", "code 3: no: canary-0001\nmore")
    for note in (Progress.retry, Progress.finish):
        progress = Progress()
        note(progress, rollout, trace, lambda text: masker.text(text)[0])
        assert progress.latest_fault == "fr: harness: code 3: no: [secret:KEY]"
