"""What is installed: every folder is packaged, and the wheel works where nothing else of ours is."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OUTSIDE = {"cli", "harnesses", "runtimes", "tasksets"}


def folders_with_code() -> set[str]:
    inside = {path.parent for path in (ROOT / "hotswap").rglob("*.py")} | {ROOT / name for name in OUTSIDE}
    names = {path.relative_to(ROOT).as_posix().replace("/", ".") for path in inside}
    return {name if name.startswith("hotswap") else f"hotswap.{name}" for name in names}


def test_every_folder_with_code_is_listed_as_a_package() -> None:
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == folders_with_code()


def test_every_folder_outside_the_package_is_mapped_into_it() -> None:
    assert PYPROJECT["tool"]["setuptools"]["package-dir"] == {f"hotswap.{name}": name for name in OUTSIDE}


@pytest.fixture(scope="session")
def wheel_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the built wheel and its dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    run = {"check": True, "cwd": folder, "capture_output": True, "text": True}
    subprocess.run([uv.find_uv_bin(), "build", "--wheel", "--out-dir", folder / "dist", ROOT], **run)
    (wheel,) = (folder / "dist").glob("hotswap-*.whl")
    subprocess.run([uv.find_uv_bin(), "venv", "--python", sys.executable, folder / "env"], **run)
    before = PYPROJECT["tool"]["uv"]["exclude-newer"]
    install = [
        uv.find_uv_bin(),
        "pip",
        "install",
        "--python",
        folder / "env",
        "--exclude-newer",
        before,
        wheel,
    ]
    subprocess.run(install, **run)
    return folder / "env"


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["list", "tasksets"],
        ["list", "harnesses", "loop"],
        ["run", "capitals", "-m", "smollm2", "--dry-run"],
    ],
)
def test_the_wheel_runs_from_another_folder(
    wheel_environment: Path, tmp_path: Path, command: list[str]
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    program = wheel_environment / "bin" / "hotswap"
    done = subprocess.run(
        [program, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "capitals" in done.stdout or "loop" in done.stdout or "hotswap" in done.stdout


def test_the_first_command_installs_nothing_that_only_contributors_need() -> None:
    assert set(PYPROJECT["dependency-groups"]) == {"dev"}
    assert PYPROJECT["tool"]["uv"]["default-groups"] == []


def test_the_wheel_carries_the_schema_and_the_licence(wheel_environment: Path) -> None:
    (site,) = (wheel_environment / "lib").glob("python3*/site-packages")
    assert (site / "hotswap" / "trace.schema.json").is_file()
    assert list(site.glob("hotswap-*.dist-info/licenses/LICENSE"))
