"""Token capture: the ids and log-probabilities of every call, kept in a binary file beside the trace.

chat.py      what a chat route is asked for besides, and how ids are read from its answer (llama.cpp, vLLM)
keeper.py    which call each call goes on from, and whether its prompt does
sidecar.py   the file: writing, reading

    for captured in hotswap.capture.read(path):
        captured.prompt, captured.output, captured.logprobs, captured.broken

Standard library only, so that a trainer can read a run without the rest. docs/capture.md describes the format.
"""

from hotswap.capture.keeper import Keeper
from hotswap.capture.sidecar import Captured, Sidecar, read

__all__ = ["DIALECT", "Captured", "Keeper", "Sidecar", "read"]

DIALECT = "chat"
"""The one dialect whose route gives ids: others are translated into it."""
