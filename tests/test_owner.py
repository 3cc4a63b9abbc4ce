"""A mark says which process made something, and whether it is still there."""

import os
import subprocess
import sys

from hotswap.processes import lives, mark

SAY = "from hotswap.processes import mark; print(mark(), flush=True); input()"


def test_the_mark_of_a_process_lives_as_long_as_it_does() -> None:
    assert lives(mark()) is True
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        other = process.stdout.readline()
        assert lives(other) is True
        process.communicate(input="\n")
    assert lives(other) is False


def test_a_process_of_the_same_number_is_not_the_same() -> None:
    platform, boot, pid, started = mark().split(":")
    assert pid == str(os.getpid())
    assert lives(f"{platform}:{boot}:{pid}:{started}1") is False


def test_of_another_boot_nothing_is_known() -> None:
    platform, _, pid, started = mark().split(":")
    assert lives(f"{platform}:another:{pid}:{started}") is None
    assert lives("nothing of ours") is None
