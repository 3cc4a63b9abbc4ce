"""Serving a run from what an earlier one recorded: `-m replay:RUN`.

model.py        from the name to a recording, and to the recorded rollout of each task and attempt
matching.py     which recorded exchange answers a request
comparing.py    two requests as JSON: what is left out, and where they differ
serving.py      an answer as it came, chunk by chunk
"""

from hotswap.replay.model import Answered as Answered
from hotswap.replay.model import ReplayModel as ReplayModel
from hotswap.replay.model import resolve as resolve
