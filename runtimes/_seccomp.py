"""The system calls that a box does not have: ways past its own network, and rooms that namespaces do not divide.

A network namespace has no say over sockets to the hypervisor (AF_VSOCK) and others of few uses, so a box has the
families that it needs and no other; io_uring would open them behind the filter's back. Keys of the kernel are those of
the person's session. What is refused looks as if the kernel did not have it: programs know what to do then.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

LOAD, EQUAL, GREATER_OR_EQUAL, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions: load a word, compare it (two of them), end with a verdict."""
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Where each stands in what a filter sees."""
INSTRUCTION = struct.Struct("HBBI")
X32 = 0x40000000
"""From this number on, calls are of another kind of x86-64."""
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)
"""16: AF_NETLINK, which lists a program's own network devices."""


@dataclass(frozen=True)
class Machine:
    """The numbers of one kind of processor."""

    architecture: int
    socket: int
    refused: tuple[int, ...]
    """io_uring (setup, enter, register), add_key, request_key, keyctl, bpf, perf_event_open."""


MACHINES = {
    "x86_64": Machine(0xC000003E, 41, (425, 426, 427, 248, 249, 250, 321, 298)),
    "aarch64": Machine(0xC00000B7, 198, (425, 426, 427, 217, 218, 219, 280, 241)),
}


@cache
def filter_program() -> bytes | None:
    """Get the filter as the kernel takes it; null for a kind of processor whose numbers are not known here."""
    machine = MACHINES.get(os.uname().machine)
    return None if machine is None else b"".join(_instructions(machine))


def _instructions(machine: Machine) -> Iterable[bytes]:
    """Any other architecture (32 bits) is refused whole: its numbers are others."""
    refuse_call, refuse_family = REFUSE | errno.ENOSYS, REFUSE | errno.EAFNOSUPPORT
    yield _load(ARCHITECTURE)
    yield _jump(EQUAL, machine.architecture, 1, 0)
    yield _return(refuse_call)
    yield _load(NUMBER)
    yield _jump(GREATER_OR_EQUAL, X32, 0, 1)
    yield _return(refuse_call)
    for number in machine.refused:
        yield _jump(EQUAL, number, 0, 1)
        yield _return(refuse_call)
    yield _jump(EQUAL, machine.socket, 1, 0)
    yield _return(ALLOW)
    yield _load(FIRST_ARGUMENT)
    for family in FAMILIES:
        yield _jump(EQUAL, family, 0, 1)
        yield _return(ALLOW)
    yield _return(refuse_family)


def _load(offset: int) -> bytes:
    return INSTRUCTION.pack(LOAD, 0, 0, offset)


def _jump(compare: int, value: int, if_so: int, if_not: int) -> bytes:
    """Skip so many instructions."""
    return INSTRUCTION.pack(compare, if_so, if_not, int(value))


def _return(verdict: int) -> bytes:
    return INSTRUCTION.pack(RETURN, 0, 0, verdict)
