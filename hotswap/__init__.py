"""hotswap: evaluate and hot-swap tasksets, agent programs, models and runtimes.

The names below are what an author of a part needs. They load on first use, so that `import hotswap` costs nothing and
works in anyone's environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotswap.contracts.harness import Endpoint as Endpoint
    from hotswap.contracts.harness import Finish as Finish
    from hotswap.contracts.harness import Harness as Harness
    from hotswap.contracts.harness import Install as Install
    from hotswap.contracts.harness import Job as Job
    from hotswap.contracts.harness import Launch as Launch
    from hotswap.contracts.model import Preset as Preset
    from hotswap.contracts.runtime import Box as Box
    from hotswap.contracts.runtime import Runtime as Runtime
    from hotswap.contracts.task import Task as Task
    from hotswap.contracts.taskset import Score as Score
    from hotswap.contracts.taskset import Taskset as Taskset
    from hotswap.contracts.taskset import metric as metric
    from hotswap.contracts.taskset import reward as reward
    from hotswap.trace import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "Box": "contracts.runtime",
    "Endpoint": "contracts.harness",
    "Finish": "contracts.harness",
    "Harness": "contracts.harness",
    "Install": "contracts.harness",
    "Job": "contracts.harness",
    "Launch": "contracts.harness",
    "Preset": "contracts.model",
    "Runtime": "contracts.runtime",
    "Score": "contracts.taskset",
    "Task": "contracts.task",
    "Taskset": "contracts.taskset",
    "Trace": "trace",
    "metric": "contracts.taskset",
    "reward": "contracts.taskset",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hotswap' has no attribute {name!r}")
    value = getattr(import_module(f"hotswap.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
