"""`eval doctor` and `eval clean`, as a person types them."""

import json
import subprocess
from pathlib import Path
from typing import Any

from _kit.evals import PROGRAM, environment, evaluate
from _kit.provider import Provider, say


def typed(folder: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env=environment(folder, **env),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def findings(folder: Path, **env: str) -> dict[tuple[str, str], Any]:
    done = typed(folder, "doctor", "--json", **env)
    assert (done.returncode, done.stderr) == (0, "")
    return {(one["about"], one["name"]): one for one in json.loads(done.stdout)}


def test_what_is_there_is_found(tmp_path: Path) -> None:
    found = findings(tmp_path, OPENAI_API_KEY="sk-a-key-of-mine")
    assert found["program", "uv"]["state"] == "ok"
    assert found["runtime", "local"]["state"] == "ok"
    assert found["key", "openai"]["said"] == "OPENAI_API_KEY is set"
    assert found["disk", "runs"]["said"].endswith(f"({tmp_path}/runs)")


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    done = typed(tmp_path, "doctor", OPENAI_API_KEY="sk-a-key-of-mine")
    assert "OPENAI_API_KEY is set" in done.stdout
    assert "sk-a-key" not in done.stdout + done.stderr


def test_what_is_missing_comes_with_what_mends_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").symlink_to("/bin/true")
    found = findings(tmp_path, PATH=str(tmp_path / "bin"))
    assert found["program", "git"]["remedy"] == "apt-get install git"
    assert found["key", "anthropic"]["remedy"] == "export ANTHROPIC_API_KEY=..."
    assert found["runtime", "bwrap"]["state"] != "ok"
    assert "bubblewrap" in found["runtime", "bwrap"]["said"]


def test_a_login_of_an_agent_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text("not to be read")
    found = findings(tmp_path)
    assert "takes the key of a model" in found["login", "codex"]["said"]
    assert ("login", "claude") not in found


def test_for_people_it_is_a_list_by_what_it_is_about(tmp_path: Path) -> None:
    done = typed(tmp_path, "doctor")
    titles = [line for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Programs:", "Runtimes:", "Keys:", "Disk:", "Limits:"]


def test_kept_boxes_go_when_a_person_agrees(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    (tmp_path / "eval.toml").write_text('[runtime.local]\nroot = "boxes"\n')
    with Provider(lambda request: say("no")) as provider:
        evaluate(tmp_path, "reverse_text", "-m", f"s@{provider.url}", "-n", "2", "--keep", "all")
    assert len(list((tmp_path / "boxes").iterdir())) == 2

    refused = typed(tmp_path, "clean", "-r", "local")
    assert (refused.returncode, refused.stderr) == (
        2,
        "hotswap: no terminal to ask in: hotswap clean --yes\n",
    )
    assert len(list((tmp_path / "boxes").iterdir())) == 2

    done = typed(tmp_path, "clean", "-r", "local", "--yes")
    assert done.stdout.splitlines()[-1] == "2 things removed"
    assert list((tmp_path / "boxes").iterdir()) == []


def test_a_runtime_that_is_none_is_refused(tmp_path: Path) -> None:
    done = typed(tmp_path, "clean", "-r", "locl", "--yes")
    assert done.returncode == 2
    assert "Did you mean 'local'" in done.stderr
