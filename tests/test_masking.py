"""No secret is written: those that are known by their value, others by the name beside them."""

import json
from pathlib import Path

import pytest
from _kit.check import check_trace
from _kit.traces import fault, scored

from hotswap.masking import Masker, is_secret_name
from hotswap.store import RunDirectory, RunInfo


def nested(text: str, depth: int) -> str:
    for _ in range(depth):
        text = json.dumps({"key": text})
    return text


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("canary", ["sk-canary-0001", 'canary"\\/öpenai-0001'])
def test_a_known_secret_is_in_no_file_however_often_it_was_quoted(
    tmp_path: Path, depth: int, canary: str
) -> None:
    text = nested(canary, depth)
    info = RunInfo("r", f"key = '{canary}'\n", {"command": ["eval", canary]})
    with RunDirectory.create(tmp_path / "run", info, Masker({"OPENAI_API_KEY": canary})) as run:
        record = scored(answer=f"it is {text}!")
        record.messages[2].content = [{"type": "text", "text": text}]
        record.error = fault("harness", message=f"failed with {text}")
        kept = run.append(record)
        run.journal({"event": "tried", "message": text})
        run.conclude({"metrics.md": text, "metrics.json": nested(text, 1)})
    assert kept.masked == 3
    written = b"".join(path.read_bytes() for path in run.path.iterdir())
    assert b"canary" not in written
    assert b"penai-" not in written
    assert written.count(b"[secret:OPENAI_API_KEY]") == 10
    for trace in run.traces():
        check_trace(trace)
        assert "[secret:OPENAI_API_KEY]" in str(trace.answer)


def test_a_secret_of_digits_does_not_spoil_numbers() -> None:
    line = b'{"started":1234567890.5,"said":"1234567890"}\n'
    masked, count = Masker({"PIN": "1234567890"}).line(line)
    assert json.loads(masked) == {"started": 1234567890.5, "said": "[secret:PIN]"}
    assert count == 1


def test_a_line_without_a_secret_stays_the_same_bytes() -> None:
    line = scored().to_line()
    assert Masker({"KEY": "sk-canary-0001"}).line(line) == (line, 0)


def test_a_short_value_is_no_secret_and_a_forgotten_one_is_none_any_more() -> None:
    masker = Masker({"A": "paris"})
    assert masker.text("paris") == ("paris", 0)
    masker.add("B", "long-enough")
    assert masker.text("long-enough") == ("[secret:B]", 1)
    masker.forget("B")
    assert masker.text("long-enough") == ("long-enough", 0)


@pytest.mark.parametrize(
    "text",
    [
        'curl -H "x-api-key: canary-0001"',
        "authorization: Bearer canary-0001",
        '{"api_key": "canary-0001", "access_token": "canary-0001"}',
        "https://me:canary-0001@host/path and ?access_token=canary-0001&x=1",
        "cd /app && MY_VENDOR_TOKEN=canary-0001 DB_PASSWORD='' ./run",
    ],
)
def test_a_secret_beside_its_name_is_masked_wherever_it_stands(text: str) -> None:
    masker = Masker()
    line = json.dumps({"arguments": json.dumps({"command": text}), "content": text}).encode() + b"\n"
    masked, count = masker.line(line)
    assert b"canary" not in masked
    assert count >= 2
    assert json.loads(masked)["content"] != text
    assert b"canary" not in masker.raw(b"\xff " + text.encode())


def test_words_that_only_look_like_secrets_stay() -> None:
    text = (
        "max_tokens: 100, KEYBOARD=us, TOKENIZERS_PARALLELISM=no, http://127.0.0.1:8000/v1, the token = unit"
    )
    assert Masker().text(text) == (text, 0)


def test_what_a_program_prints_of_its_environment_is_masked_by_name() -> None:
    printed = "OPENAI_API_KEY=k1\nMY_VENDOR_TOKEN=k2\nDB_PASSWORD=k3 and more\n"
    printed += "PATH=/bin\nTOKENIZERS_PARALLELISM=no\nKEYBOARD=us"
    masked, count = Masker().text(printed)
    assert count == 3
    assert masked == (
        "OPENAI_API_KEY=[secret:OPENAI_API_KEY]\nMY_VENDOR_TOKEN=[secret:MY_VENDOR_TOKEN]\n"
        "DB_PASSWORD=[secret:DB_PASSWORD]\nPATH=/bin\nTOKENIZERS_PARALLELISM=no\nKEYBOARD=us"
    )
    assert Masker().line(json.dumps(printed).encode() + b"\n")[1] == 3
    assert Masker().text(masked) == (masked, 0)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "apikey", "X-Api-Key", "GITHUB_TOKEN", "db_password", "AWS_SECRET_ACCESS_KEY"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MAX_TOKENS", "MONKEY", "PASSWORDLESS"]
)
def test_names_that_only_look_like_secrets(name: str) -> None:
    assert not is_secret_name(name)
