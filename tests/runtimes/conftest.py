"""What runtimes need for their tests on this machine: an sshd of ours for the length of the session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from _kit.sshd import SSHD, Sshd

VARIABLE = "HOTSWAP_TEST_RUNTIMES"


@pytest.fixture(scope="session", autouse=True)
def _far_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have `ssh` among the runtimes that can be tested here, where there is an sshd."""
    settings = json.loads(os.environ.get(VARIABLE, "{}"))
    if SSHD is None or "ssh" in settings:
        yield
        return
    with Sshd(tmp_path_factory.mktemp("far")) as sshd, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, json.dumps({**settings, "ssh": sshd.settings}))
        yield
