"""Processes: started cheaply, and ended for certain with all that came of them.

    family.py    Family: what belongs to one place
    running.py   Running: one process, its pipes and its result
    pipes.py     reading and writing by the event loop, in constant memory
    kin.py       which processes came of which start
    ending.py    TERM, grace, KILL; clean-up that is carried through
    guard.py     what is arranged for the case that we are killed
    warden.py    the small program that then cleans up
    owner.py     whose a folder or a container is, and whether its maker is still there

Whatever this process starts while others run should be started here: a start marks what is born during it.
"""

from hotswap.processes.ending import carry_through
from hotswap.processes.family import Family
from hotswap.processes.guard import entrust, guard, release
from hotswap.processes.owner import lives, mark
from hotswap.processes.running import Running
from hotswap.processes.warden import remove_folder

__all__ = [
    "Family",
    "Running",
    "carry_through",
    "entrust",
    "guard",
    "lives",
    "mark",
    "release",
    "remove_folder",
]
