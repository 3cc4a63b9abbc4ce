"""The first lines that run in a worker: `python start.py FD`, in the Python that has the taskset's
packages.

hotswap need not be installed there. The package is built from the folder above this file's, so that
nothing else of our environment (our site-packages, our pins) comes along. Written so that an older Python can
read it too, and be told what is missing.
"""

import importlib.util
import sys
from pathlib import Path

OLDEST = (3, 11)


def build_package(folder: Path) -> None:
    """Make `import hotswap` find the package in `folder`."""
    places = [str(folder)]
    if not (folder / "tasksets").is_dir():
        places.append(str(folder.parent))  # a checkout: tasksets/ and its like stand beside hotswap/
    spec = importlib.util.spec_from_file_location(
        "hotswap", str(folder / "__init__.py"), submodule_search_locations=places
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hotswap"] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Serve the channel that the command line names."""
    here = Path(__file__).absolute().parent
    sys.path[:] = [path for path in sys.path if Path(path).absolute() != here]
    if sys.version_info < OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(
            f"{sys.executable} is Python {version}, and a taskset needs {'.'.join(map(str, OLDEST))} or newer"
        )
    build_package(here.parent)
    from hotswap.worker.child import serve

    serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
