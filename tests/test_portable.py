"""Programs that run where nothing is: each is started by bubblewrap in an empty root, with its mounts and no more."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hotswap import provision
from hotswap.errors import UsageError
from hotswap.provision import bundles, trust
from hotswap.provision.keys import base_python

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="programs are copied on Linux only"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
BARE = "#!/usr/bin/env -S python3 -I -S\n"
TELL = "import json, os, sys\nprint(json.dumps([sys.argv[1:], sys.prefix, sys.flags.no_site, dict(os.environ)]))\n"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of its own for these tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOTSWAP_CACHE", str(folder))
        yield folder  # type: ignore[misc]


def get(path: Path) -> provision.Program:
    return asyncio.run(provision.script(path, lambda line: None, portable=True))


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.py"
    path.write_text(text)
    return path


def empty(argv: Sequence[str], mounts: Sequence[Path], *more: str) -> list[str]:
    """A command in a root that holds these mounts, each elsewhere than here, and an empty environment."""
    places = {mount: f"/mounts/{number}" for number, mount in enumerate(mounts)}
    words = [
        "bwrap",
        "--unshare-all",
        "--clearenv",
        "--tmpfs",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        *more,
    ]
    for mount, place in places.items():
        words += ["--ro-bind", str(mount), place]
    return [*words, "--", *(inside(word, places) for word in argv)]


def inside(word: str, places: dict[Path, str]) -> str:
    for mount, place in places.items():
        if Path(word).is_absolute() and Path(word).is_relative_to(mount):
            return str(Path(place, Path(word).relative_to(mount)))
    return word


def output(program: provision.Program, *arguments: str) -> str:
    command = empty((*program.argv, *arguments), program.mounts)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_a_bare_script_runs_in_an_empty_root_and_finds_its_standard_library_there(tmp_path: Path) -> None:
    arguments, prefix, no_site, env = json.loads(output(get(write(tmp_path, BARE + TELL)), "one", "zwei é"))
    assert arguments == ["one", "zwei é"]
    assert prefix.startswith("/mounts/")
    assert no_site == 1
    assert {name for name in env if name.startswith(("LD_", "PYTHON"))} == set()


def test_what_native_modules_need_comes_along(tmp_path: Path) -> None:
    names = [path.name.partition(".")[0] for path in Path(json.__file__).parents[1].glob("lib-dynload/*.so")]
    wanted = [name for name in names if "test" not in name and "tkinter" not in name]
    script = f"import importlib, threading\nfor name in {wanted}: importlib.import_module(name)\n"
    script += "import ssl, sqlite3, ctypes, subprocess, asyncio\n"
    script += "thread = threading.Thread(target=print, args=('ran',))\nthread.start()\nthread.join()\n"
    assert "_ssl" in wanted or not wanted
    assert output(get(write(tmp_path, BARE + script))) == "ran\n"


def test_what_the_program_starts_gets_no_variable_of_ours(tmp_path: Path) -> None:
    child = Path(shutil.which("env") or "")
    bundle = asyncio.run(
        provision.bundled(provision.Recipe("env-1", child.resolve(), ("true",)), lambda line: None)
    )
    script = "import subprocess, sys\nsys.stdout.write(subprocess.check_output(sys.argv[1:], text=True))\n"
    program = get(write(tmp_path, BARE + script))
    both = provision.Program((*program.argv, *bundle.argv), (*program.mounts, bundle.folder))
    variables = {line.partition("=")[0] for line in output(both).splitlines()}
    assert variables <= {"PWD", "LC_CTYPE"}  # of bubblewrap, and of any Python where there is no locale


def test_a_script_without_dependencies_that_asks_for_no_bare_python_has_its_name_and_its_arguments(
    tmp_path: Path,
) -> None:
    script = "import sys\nprint(__name__, sys.argv[0] == __file__, sys.argv[1:])\n"
    assert output(get(write(tmp_path, script)), "a", "b") == "__main__ True ['a', 'b']\n"


def test_a_script_comes_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=secret")
    script = "import os\nprint(os.listdir(os.path.dirname(__file__)))\n"
    assert output(get(write(tmp_path, script))) == "['agent.py']\n"


@pytest.mark.parametrize("needs", ["idna==3.10", "greenlet==3.1.1"])
def test_dependencies_are_found_and_their_native_code_with_the_libraries_that_it_needs(
    needs: str, tmp_path: Path
) -> None:
    name, _, version = needs.partition("==")
    _skip_without_index(tmp_path, needs)
    block = f'# /// script\n# dependencies = ["{needs}"]\n# ///\n'
    script = (
        f"{block}import {name}, sys, ssl\nprint({name}.__version__, {name}.__file__.startswith('/mounts/'))\n"
    )
    program = get(write(tmp_path, script))
    assert output(program) == f"{version} True\n"
    libraries = {path.name for mount in program.mounts for path in mount.glob("*.so*")}
    assert ("libstdc++.so.6" in libraries) == (name == "greenlet")


def _skip_without_index(folder: Path, needs: str) -> None:
    command = [
        provision.uv_binary(),
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(folder / "try"),
        needs,
    ]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if asked.returncode:
        pytest.skip(f"uv cannot fetch {needs} from a package index here: {asked.stderr.strip()}")


def test_a_bundle_is_made_once_and_said_once_and_nothing_in_it_may_be_written(cache: Path) -> None:
    said: list[str] = []
    first = asyncio.run(provision.portable_python(said.append))
    shutil.rmtree(first.folder)
    assert asyncio.run(provision.portable_python(said.append)) == first
    assert asyncio.run(provision.portable_python(said.append)) == first
    assert said == [f"copying {base_python().name} with its libraries, once, into {cache}"]
    assert not [path for path in first.folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o222]


def test_what_nobody_needs_is_left_behind() -> None:
    folder = asyncio.run(provision.portable_python(lambda line: None)).folder
    left = {"tkinter", "idlelib", "test", "site-packages"} & {path.name for path in folder.rglob("*")}
    assert left == set()
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 150 << 20


def test_a_static_program_is_started_as_it_is(tmp_path: Path) -> None:
    uv = Path(provision.uv_binary())
    bundle = asyncio.run(provision.bundled(provision.Recipe("uv-1", uv), lambda line: None))
    ended = subprocess.run(
        empty((*bundle.argv, "--version"), [bundle.folder]), capture_output=True, check=True
    )
    assert ended.stdout.startswith(b"uv ")


def test_what_does_not_start_is_no_bundle(cache: Path) -> None:
    recipe = provision.Recipe("false-1", Path(shutil.which("false") or "").resolve(), ())
    with pytest.raises(UsageError, match=r"cannot prepare false-1.*exit code 1"):
        asyncio.run(provision.bundled(recipe, lambda line: None))
    assert not (cache / "portable" / "false-1").exists()


def test_elsewhere_than_on_linux_it_is_refused() -> None:
    with pytest.raises(UsageError, match="copied from this machine, which is darwin; choose -r local"):
        bundles.refuse_elsewhere("a Python", "darwin")


def test_the_certificates_that_a_person_names_are_those_of_a_box(tmp_path: Path) -> None:
    named = tmp_path / "own.pem"
    named.write_bytes(b"mine")
    found = provision.certificates({"SSL_CERT_FILE": str(named)})
    assert (found.path.read_bytes(), list(found.path.parent.iterdir())) == (b"mine", [found.path])
    assert found.variables("/in/ca.pem")["SSL_CERT_FILE"] == "/in/ca.pem"


def test_a_file_that_is_named_and_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"SSL_CERT_FILE = /nowhere\.pem"):
        provision.certificates({"SSL_CERT_FILE": "/nowhere.pem"})


def test_without_a_name_they_are_this_machines(tmp_path: Path) -> None:
    source = next((path for path in map(Path, trust.PLACES) if path.is_file()), None)
    if source is None:
        pytest.skip("this machine keeps no certificates in one file")
    assert provision.certificates({}).path.read_bytes() == source.read_bytes()
