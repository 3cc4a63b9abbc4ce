"""A runtime in one file: the local one at the lowest priority, so that the machine stays usable beside a long run.

uv run eval capitals -r ./examples/patient.py
"""

from dataclasses import replace

from hotswap.contracts.runtime import Command, Process
from hotswap.runtimes.local import Local, LocalBox


class PatientBox(LocalBox):
    """A local box whose programs yield to all others."""

    async def start(self, command: Command) -> Process:
        """Start the program through `nice`."""
        return await super().start(replace(command, argv=("nice", "-n", "19", *command.argv)))


class Patient(Local):
    """The local runtime at the lowest priority."""

    box_type = PatientBox
