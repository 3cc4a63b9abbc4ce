"""Imports run one way, and what is cheap stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = (
    {"errors", "ids", "masking", "records", "contracts", "registry", "processes", "provision", "doors"},
    {
        "messages",
        "trace",
        "blobs",
        "egress",
        "graph",
        "dialects",
        "limits",
        "translation",
        "capture",
        "proxy",
        "models",
    },
    {"harnesses", "runtimes", "tasksets", "presets"},
    {
        "worker",
    }
    | {
        "scoring",
        "settings",
        "plan",
        "planned",
        "rollout",
        "verdict",
        "vitals",
        "scheduler",
        "progress",
        "run",
        "doctor",
        "exchanges",
        "replay",
    }
    | {"store", "elsewhere", "remarks", "lines", "result", "metrics", "intervals", "columns"},
    {"cli"},
)
HEAVY = {"aiohttp", "datasets", "docker", "openai", "pydantic", "rich", "typer", "genai_prices", "asyncio"}


def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name below `hotswap`."""
    found = {}
    for path in ROOT.glob("hotswap/**/*.py"):
        found[path.relative_to(ROOT / "hotswap").with_suffix("").as_posix().replace("/", ".")] = path
    for folder in ("cli", "harnesses", "runtimes", "tasksets"):
        for path in (ROOT / folder).glob("*.py"):
            found[f"{folder}.{path.stem}"] = path
    return found


def layer(name: str) -> int:
    head = name.split(".")[0]
    return next(number for number, names in enumerate(LAYERS) if head in names)


def imported(path: Path) -> set[str]:
    """The names below `hotswap` that a file imports, wherever in it; what is for type checkers alone is left out."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hotswap."):
            names.add(node.module.removeprefix("hotswap."))
        elif isinstance(node, ast.Import):
            names |= {
                alias.name.removeprefix("hotswap.")
                for alias in node.names
                if alias.name.startswith("hotswap.")
            }
    return names


@pytest.mark.parametrize("name", sorted(name for name in modules() if name != "__init__"))
def test_a_module_imports_only_its_own_layer_and_those_above(name: str) -> None:
    below = {other for other in imported(modules()[name]) if layer(other) > layer(name)}
    assert not below


@pytest.mark.parametrize("kind", ["harnesses", "runtimes", "tasksets", "presets"])
def test_a_part_imports_contracts_and_what_its_own_folder_shares_and_no_sibling(kind: str) -> None:
    for name, path in modules().items():
        if name.startswith(f"{kind}."):
            siblings = {other for other in imported(path) if layer(other) == 2}
            assert all(other.startswith(f"{kind}._") for other in siblings), name


@pytest.mark.parametrize(
    "statement", ["import hotswap", "from hotswap import Task, Taskset, Trace, reward, metric, Score"]
)
def test_what_an_author_imports_loads_the_standard_library_only(statement: str) -> None:
    code = f"import sys\nbare = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - bare))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"hotswap", "__main__"}
    assert {name for name in outside if "editable" not in name and not name.startswith("_")} == set()


def test_help_loads_nothing_heavy() -> None:
    code = "import sys\nfrom hotswap.cli.main import main\nmain(['--help'])\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & (HEAVY - {"typer", "rich", "asyncio"})
