"""What uv prepares is prepared once, whole or not at all, and used without uv from then on."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hotswap import provision
from hotswap.errors import UsageError
from hotswap.provision.metadata import read, satisfies
from hotswap.provision.uv import environment

BARE = "#!/usr/bin/env -S python3 -I -S\n"
NOTHING = '# /// script\n# requires-python = ">=3.11"\n# dependencies = []\n# ///\n'
NEEDS_IDNA = '# /// script\n# dependencies = ["idna==3.10"]\n# ///\nimport idna\nprint(idna.__version__)\n'
IDNA = "idna==3.10 --hash=sha256:946d195a0d259cbba61165e88e65941f16e9b36ea6ddb97f00452bae8b1287d3"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("HOTSWAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips, saying why, where uv finds no package index."""
    folder = tmp_path_factory.mktemp("index")
    command = [provision.uv_binary(), "pip", "install", "--no-deps", "--target", str(folder), "idna==3.10"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if asked.returncode:
        pytest.skip(
            f"uv cannot fetch idna from a package index here: {asked.stderr.strip().splitlines()[-1]}"
        )


class Said(list[str]):
    """The lines of progress that were shown."""

    def __call__(self, line: str) -> None:
        self.append(line)


def write(folder: Path, text: str, name: str = "agent.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def get(path: Path, said: Said | None = None) -> provision.Program:
    return asyncio.run(provision.script(path, said if said is not None else Said()))


def output(program: provision.Program, *arguments: str) -> str:
    ended = subprocess.run([*program.argv, *arguments], capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def uv_was_started(cache: Path) -> bool:
    """Whether uv was started since this was last asked: each start is in a log."""
    started = (cache / "logs").exists()
    shutil.rmtree(cache / "logs", ignore_errors=True)
    return started


# Where things are


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"HOTSWAP_CACHE": "/somewhere"}, "/somewhere"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/hotswap"),
        ({"XDG_CACHE_HOME": "relative"}, str(Path.home() / ".cache/hotswap")),
        ({}, str(Path.home() / ".cache/hotswap")),
    ],
)
def test_the_cache_is_where_its_variable_says_or_in_the_users_cache(
    variables: dict[str, str], root: str
) -> None:
    if sys.platform == "darwin" and "HOTSWAP_CACHE" not in variables:
        root = str(Path.home() / "Library/Caches/hotswap")
    assert provision.cache_root(variables) == Path(root)


def test_a_cache_that_cannot_be_made_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSWAP_CACHE", str(write(tmp_path, "a file") / "cache"))
    with pytest.raises(UsageError, match="Set HOTSWAP_CACHE to a folder that can be written"):
        get(write(tmp_path, NEEDS_IDNA, "other.py"))


# Scripts that need nothing


def test_a_bare_script_gets_no_environment_and_no_uv(tmp_path: Path, cache: Path) -> None:
    said = Said()
    program = get(
        write(tmp_path, BARE + NOTHING + "import sys\nprint(sys.argv[1], 'site' in sys.modules)"), said
    )
    assert program.argv[1:3] == ("-I", "-S")
    assert output(program, "one") == "one False"
    assert said == []
    assert not uv_was_started(cache)
    assert not (cache / "envs").exists()
    for word in (program.argv[0], program.argv[-1]):
        assert any(Path(word).is_relative_to(mount) for mount in program.mounts), word


def test_a_bare_script_is_compiled_again_when_it_changes(tmp_path: Path) -> None:
    first = get(write(tmp_path, f"{BARE}print(1)"))
    second = get(write(tmp_path, f"{BARE}print(2)"))
    assert [output(first), output(second)] == ["1", "2"]
    assert get(write(tmp_path, f"{BARE}print(1)")) == first


def test_a_bare_script_runs_as_it_is_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSWAP_CACHE", str(write(tmp_path, "a file") / "cache"))
    path = write(tmp_path, f"{BARE}print(1)", "bare.py")
    program = get(path)
    assert program.argv[-1] == str(path)
    assert output(program) == "1"


def test_a_bare_script_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"agent\.py.*line 2"):
        get(write(tmp_path, f"{BARE}def def\n"))


def test_any_other_script_without_dependencies_has_an_empty_environment(tmp_path: Path) -> None:
    code = (
        "import importlib.util, sys\nprint(sys.flags.isolated, importlib.util.find_spec('pip'), exit and 1)"
    )
    said = Said()
    program = get(write(tmp_path, NOTHING + code), said)
    assert output(program) == "1 None 1"
    assert said == ["preparing the environment of agent.py with uv, once: no packages"]


def test_a_script_without_a_block_needs_nothing(tmp_path: Path) -> None:
    assert output(get(write(tmp_path, "print('hi')"))) == "hi"


# Environments


def test_a_scripts_dependencies_are_installed_once_and_found(
    tmp_path: Path, cache: Path, index: None
) -> None:
    said = Said()
    path = write(tmp_path, NEEDS_IDNA)
    program = get(path, said)
    assert output(program) == "3.10"
    assert said == ["preparing the environment of agent.py with uv, once: idna==3.10"]
    assert uv_was_started(cache)
    again = Said()
    assert get(path, again) == program
    assert again == []
    assert not uv_was_started(cache)


def test_an_environment_can_be_mounted_with_the_python_that_it_needs(tmp_path: Path) -> None:
    program = get(write(tmp_path, NOTHING))
    python = Path(program.argv[0])
    for path in (python, python.resolve(), Path(program.argv[-1])):
        assert any(path.is_relative_to(mount) for mount in program.mounts), path


def test_other_dependencies_are_another_environment(tmp_path: Path) -> None:
    first = get(write(tmp_path, NOTHING))
    second = get(write(tmp_path, NOTHING.replace("[]", "[ ]")))
    assert first.argv[0] != second.argv[0]


def test_a_change_beside_the_block_keeps_the_environment(tmp_path: Path) -> None:
    assert get(write(tmp_path, NOTHING + "1")) == get(write(tmp_path, NOTHING + "2"))


def test_an_environment_whose_python_has_gone_is_made_again(tmp_path: Path) -> None:
    path = write(tmp_path, NOTHING + "print('hi')")
    python = Path(get(path).argv[0])
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    assert output(get(path)) == "hi"


def test_a_failing_install_shows_the_end_of_uvs_own_words_and_leaves_nothing(
    tmp_path: Path, cache: Path
) -> None:
    path = write(tmp_path, NEEDS_IDNA.replace("idna==3.10", f"nothing @ file://{tmp_path}/no-such.whl"))
    with pytest.raises(UsageError) as caught:
        get(path)
    assert str(caught.value).startswith(f"cannot prepare {path}: uv sync ended with exit code")
    assert "no-such.whl" in str(caught.value)
    assert list((cache / "envs").iterdir()) == []
    (log,) = (cache / "logs").iterdir()
    assert str(log) in str(caught.value)


def test_a_python_that_there_is_not_is_told_in_uvs_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(UsageError, match=r"uv venv ended with exit code(.|\n)*[Nn]o interpreter found"):
        get(write(tmp_path, NOTHING.replace(">=3.11", ">=3.99")))


def test_no_key_is_given_to_uv_but_uvs_own() -> None:
    given = {
        "OPENAI_API_KEY": "1",
        "HF_TOKEN": "1",
        "AWS_SECRET_ACCESS_KEY": "1",
        "VIRTUAL_ENV": "/x",
        "UV_INDEX_MINE_PASSWORD": "1",
        "HTTPS_PROXY": "http://proxy",
        "KEYBOARD": "us",
    }
    assert sorted(environment(given)) == ["HTTPS_PROXY", "KEYBOARD", "UV_INDEX_MINE_PASSWORD"]


# Two at once, and one that is killed

PREPARE = """
import asyncio, sys
from pathlib import Path
from hotswap import provision
print(asyncio.run(provision.script(Path(sys.argv[1]), lambda line: print(line, file=sys.stderr))).argv[0])
"""
BACKEND = """
import os, zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

def build_wheel(folder, config_settings=None, metadata_directory=None):
    os.write(os.open(ROOT / "begun", os.O_WRONLY), b"x")
    os.read(os.open(ROOT / "go", os.O_RDONLY), 1)
    with zipfile.ZipFile(Path(folder) / "slow-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return "slow-1.0-py3-none-any.whl"
"""
FILES = {
    "slow.py": "value = 5",
    "slow-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n",
    "slow-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "slow-1.0.dist-info/RECORD": "",
}
BUILD_SYSTEM = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


class Slow:
    """A script that needs a package whose build says when it has begun, and waits to be told to go on.

    Needs no network.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        package = folder / "slow"
        package.mkdir()
        (package / "pyproject.toml").write_text(BUILD_SYSTEM)
        (package / "backend.py").write_text(f"FILES = {FILES!r}\n{BACKEND}")
        block = f'# /// script\n# dependencies = ["slow @ file://{package}"]\n# ///\n'
        self.script = write(folder, f"{block}import slow\nprint(slow.value)")
        self._begun, self._go = self._pipe("begun"), self._pipe("go")

    def _pipe(self, name: str) -> int:
        os.mkfifo(self.folder / name)
        return os.open(self.folder / name, os.O_RDWR)

    def begun(self) -> None:
        """Wait until a build has begun."""
        os.read(self._begun, 1)

    def go(self, builds: int = 1) -> None:
        """Let so many builds go on, begun or yet to begin."""
        os.write(self._go, b"x" * builds)

    def prepare(self) -> subprocess.Popen[str]:
        """Prepare it in another process."""
        argv = [sys.executable, "-c", PREPARE, str(self.script)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return Slow(tmp_path)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_two_processes_at_once_prepare_once(slow: Slow) -> None:
    with slow.prepare() as first:
        assert first_line(first).startswith("preparing the environment of agent.py")
        with slow.prepare() as second:
            assert first_line(second).startswith("waiting for another process that prepares agent-")
            slow.go()
            (python, _), (same, said) = (process.communicate(timeout=60) for process in (first, second))
    assert python == same != ""
    assert said == ""
    assert output(get(slow.script)) == "5"


def test_a_kill_in_the_middle_leaves_nothing_half_made_in_its_place(slow: Slow, cache: Path) -> None:
    with slow.prepare() as killed:
        slow.begun()
        killed.kill()
    (left,) = (cache / "envs").iterdir()
    assert left.suffix == ".part"
    with slow.prepare() as another:
        assert first_line(another).startswith("waiting")  # uv, which outlived its starter, still writes there
        slow.go(2)
        assert first_line(another).startswith("preparing")
        another.communicate(timeout=60)
    assert list((cache / "envs").iterdir()) == [left.with_suffix("")]
    assert output(get(slow.script)) == "5"


def test_cancelled_it_ends_uv_and_leaves_nothing(slow: Slow, cache: Path) -> None:
    async def cancel_in_the_middle() -> None:
        task = asyncio.ensure_future(provision.script(slow.script, Said()))
        await asyncio.to_thread(slow.begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list((cache / "envs").iterdir()) == []
        (lock,) = (cache / "locks").iterdir()
        async with asyncio.timeout(20), provision.locked(lock.stem):
            pass  # uv and the build had inherited the lock: they are gone

    asyncio.run(cancel_in_the_middle())


def test_a_lock_is_held_by_one_at_a_time_and_waiting_for_it_holds_up_nobody() -> None:
    order = []

    async def second(waits: asyncio.Event) -> None:
        def say(line: str) -> None:
            order.append(line.partition(" (")[0])
            waits.set()

        async with provision.locked("thing", say):
            order.append("second")

    async def first() -> None:
        waits = asyncio.Event()
        async with provision.locked("thing"):
            waiting = asyncio.ensure_future(second(waits))
            await waits.wait()
            order.append("first")
        await waiting

    asyncio.run(first())
    assert order == ["waiting for another process that prepares thing", "first", "second"]


# Packages for one purpose


def fetch(name: str, requirement: str, said: Said, note: str) -> Path:
    return asyncio.run(provision.wheels(name, [requirement], said, note))


def wheel(folder: Path) -> tuple[str, str]:
    """Make a wheel; get it as a requirement, and its hash."""
    path = folder / "slow-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return f"slow @ file://{path}", hashlib.sha256(path.read_bytes()).hexdigest()


def test_wheels_are_fetched_once_and_said_with_their_size(tmp_path: Path, cache: Path) -> None:
    requirement, digest = wheel(tmp_path)
    pinned = f"{requirement} --hash=sha256:{digest}"
    said = Said()
    folder = fetch("tiny", pinned, said, "slow (5 bytes)")
    assert (folder / "slow.py").read_text() == "value = 5"
    assert said[0] == f"fetching slow (5 bytes), once, into {cache}"
    assert said[1].startswith("fetched tiny in ")
    assert uv_was_started(cache)
    again = Said()
    assert fetch("tiny", pinned, again, "slow (5 bytes)") == folder
    assert again == []
    assert not uv_was_started(cache)


@pytest.mark.parametrize("digest", [" --hash=sha256:" + "0" * 64, ""])
def test_wheels_of_another_hash_or_of_none_are_refused(digest: str, tmp_path: Path, cache: Path) -> None:
    requirement, _ = wheel(tmp_path)
    with pytest.raises(UsageError, match=r"cannot prepare tiny: uv pip ended with exit code(.|\n)*hash"):
        fetch("tiny", requirement + digest, Said(), "slow")
    assert list((cache / "wheels").iterdir()) == []


def test_wheels_come_from_the_package_index(index: None) -> None:
    assert (fetch("idna", IDNA, Said(), "idna (70 kB)") / "idna" / "core.py").exists()


# What a script says about itself


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("# /// script\n# dependencies = [\n# ///\n", ":3: "),
        ("# /// script\n# dependencies = [1]\n# ///\n", ":3: dependencies = [1]: expected a list of texts"),
        ('# /// script\n# dependencies = "idna"\n# ///\n', ":3: dependencies = 'idna': expected a list"),
        ("# /// script\n#\n# requires-python = 3.11\n# ///\n", ":4: requires-python: 3.11 is no text"),
        (
            '# /// script\n# requires-python = "3.11"\n# ///\n',
            ":3: requires-python: '3.11' is no version specifier",
        ),
        ("# /// script\n# a = 1\n# a = 2\n# ///\n", ":4: Cannot overwrite a value"),
        (
            "# /// script\n# dependencies = []\n",
            ":2: the block '# /// script' is not closed by a line '# ///'",
        ),
        (NOTHING + "\n" + NOTHING, ":7: there is a second block"),
    ],
)
def test_a_wrong_block_is_told_with_its_file_and_line(block: str, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"'''An agent.'''\n{block}")
    with pytest.raises(UsageError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{problem}")


def test_a_script_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.py: cannot read this script: No such file"):
        read(tmp_path / "no.py")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9")
    with pytest.raises(UsageError, match=r"latin\.py: this script is no UTF-8: byte 5 is 0xe9"):
        read(tmp_path / "latin.py")


def test_a_block_is_read_with_other_tools_tables_and_windows_line_ends(tmp_path: Path) -> None:
    lines = [
        "# /// script",
        '# requires-python = ">=3.11"',
        "# dependencies = [",
        '#   "idna", # why',
        "# ]",
        "#",
        "# [tool.x]",
        "# ///",
    ]
    path = tmp_path / "agent.py"
    path.write_bytes("\r\n".join([*lines, "print(1)", ""]).encode())
    needs = read(path)
    assert (needs.requires_python, needs.dependencies, needs.bare) == (">=3.11", ("idna",), False)


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("#!/usr/bin/env -S python3 -I -S", True),
        ("#!/usr/bin/python3 -S", True),
        ("#!/usr/bin/env -S python3 -I", False),
        ("#!/usr/bin/env -S uv run --script", False),
        ("# python -S", False),
    ],
)
def test_the_first_line_says_whether_a_bare_python_will_do(line: str, bare: bool, tmp_path: Path) -> None:
    assert read(write(tmp_path, f"{line}\n")).bare == bare


@pytest.mark.parametrize(
    ("specifier", "allowed"),
    [
        (">=3.11", True),
        (">= 3.11.7", True),
        (">=3.11.8", False),
        (">=3.11,<3.12", True),
        (">=3.11,<3.11.7", False),
        ("<4", True),
        ("==3.11.*", True),
        ("==3.12.*", False),
        ("==3.11", False),
        ("==3.11.7", True),
        ("!=3.11.*", False),
        ("!=3.11", True),
        ("~=3.11", True),
        ("~=3.11.2", True),
        ("~=3.10.2", False),
        ("~=3.12", False),
        (">3.11", True),
        (">3.11.7", False),
        ("<=3.11", False),
        (">=3.12rc1", False),
        ("", True),
    ],
)
def test_version_specifiers_mean_what_they_mean_elsewhere(specifier: str, allowed: bool) -> None:
    assert satisfies(specifier, (3, 11, 7)) == allowed


@pytest.mark.parametrize("specifier", ["3.11", ">=", ">=3.x", ">=3.*", "python3", "=>3.11"])
def test_a_malformed_version_specifier_is_refused(specifier: str) -> None:
    with pytest.raises(ValueError, match="is no version specifier"):
        satisfies(specifier, (3, 11, 7))
