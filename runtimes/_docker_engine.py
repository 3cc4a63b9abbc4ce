"""The Docker engine, called by the official SDK in threads of their own: it blocks."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import socket
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from hotswap.errors import Fault, UsageError

T = TypeVar("T")
CALLS_AT_ONCE = 8
USUAL = "/var/run/docker.sock"
CALL_S = 60
"""A call that the engine does not answer in this time has failed."""
REMEDY = "start one (apt-get install docker.io), or name one by DOCKER_HOST; without any, choose -r bwrap"


class Engine:
    """One engine: that of DOCKER_HOST, else of the docker context."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, "docker")

    @cached_property
    def client(self) -> Any:
        """The SDK's own. Raises UsageError where no engine answers."""
        docker = importlib.import_module("docker")
        address = host()
        try:
            _knock(address)
            client = docker.APIClient(address, version="auto", timeout=CALL_S, num_pools=CALLS_AT_ONCE)
        except (docker.errors.DockerException, OSError) as error:
            shown = address or f"unix://{USUAL}"
            message = f"runtime docker: no engine answers at {shown} ({_brief(error)})"
            raise UsageError(f"{message}; {REMEDY}") from None
        weakref.finalize(self, _close, client, self._threads)
        return client

    def check(self) -> None:
        """Raise UsageError where no engine answers, or it is one to which no socket can be passed."""
        address = host()
        if address and not address.startswith(("unix://", "/")):
            raise UsageError(
                f"runtime docker: the engine at {address} is not on this machine, and boxes are reached by Unix"
                " sockets; choose -r ssh, or unset DOCKER_HOST"
            )
        if (theirs := self.client.info().get("KernelVersion")) != platform.release():
            raise UsageError(
                f"runtime docker: the engine runs on another kernel ({theirs}) than this ({platform.release()}), as in"
                " a virtual machine, through which no Unix socket passes; start the eval in it"
            )

    async def call(self, act: Callable[[Any], T], what: str) -> T:
        """Do something with the client. Raises Fault (runtime, box): what failed, in the engine's words."""
        errors = importlib.import_module("docker.errors")
        requests = importlib.import_module("requests.exceptions")
        try:
            return await self.threaded(lambda: act(self.client))
        except (errors.DockerException, requests.RequestException) as error:
            raise Fault("runtime", "box", "docker", f"{what}: {_brief(error)}") from error

    async def threaded(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)


def _knock(address: str | None) -> None:
    """Raise OSError where nobody listens at a Unix socket: the SDK would leave one of its own open then."""
    path = USUAL if address is None else address.removeprefix("unix://")
    if path.startswith("/"):
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(path)


def _close(client: Any, threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False)
    client.close()


def host() -> str | None:
    """Get the engine's address; null: the usual one."""
    if given := os.environ.get("DOCKER_HOST"):
        return given
    contexts = importlib.import_module("docker.context")
    name = os.environ.get("DOCKER_CONTEXT")
    found = contexts.ContextAPI.get_context(name) if name else contexts.ContextAPI.get_current_context()
    if found is None:
        raise UsageError(
            f"runtime docker: there is no docker context {name or 'of that name'}; see: docker context ls"
        )
    address = found.Host
    return str(address) if address else None


def _brief(error: Exception) -> str:
    said = str(getattr(error, "explanation", None) or error).strip()
    return said.splitlines()[-1] if said else type(error).__name__


def is_missing(fault: Fault) -> bool:
    """Whether the engine does not know what was named."""
    response = getattr(fault.__cause__, "response", None)
    return response is not None and response.status_code == 404
