"""No secret is written: those that are known by their value, others by the name beside them."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from _kit.check import check_trace
from _kit.evals import evaluate
from _kit.provider import Provider, call_tool, say
from _kit.traces import fault, scored

from hotswap import masking
from hotswap.masking import Masker, is_secret_name, masked_url, secrets_in
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
        "{'GITHUB_TOKEN': 'canary-0001', 'MODE': 'x'}",
        'client = Client(api_key="canary-0001", region = "x")',
        "vendor --region x --api-key canary-0001 and --vendor.password=canary-0001",
        "https://h.example/v1?apikey=canary-0001&x=1 and https://h.example/v1?x=1&token=canary-0001",
        "https://h.example/v1?key=canary-0001 and https://h.example/v1?sig=canary-0001",
        "https://canary-0001-without-a-name@h.example/repository.git",
        "ACME_API_KEY_OLD=canary-0001",
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


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 100, KEYBOARD=us, TOKENIZERS_PARALLELISM=no, http://127.0.0.1:8000/v1, the token = unit",
        "mine@http://127.0.0.1:8000/v1?key=MY_API_KEY_2&dialect=chat",
        "uv run eval x --models.mine.key MY_API_KEY --limits.tokens 10000000 --token --verbose-output",
        "https://h.example/list?page_token=abcdefgh&keyword=abcdefg1",
    ],
)
def test_words_that_only_look_like_secrets_stay(text: str) -> None:
    assert Masker().text(text) == (text, 0)
    assert json.loads(Masker().line(json.dumps([*text.split(), text]).encode())[0]) == [*text.split(), text]


def test_a_secret_is_known_by_the_key_that_it_stands_under_and_tokens_of_a_model_are_none() -> None:
    tokens = [{"token": " capital", "eos_token": "<|endoftext|>", "bytes": [32]}]
    record = {"MY_VENDOR_TOKEN": "canary-1", "db": {"password": "c2"}, "api_key": None, "logprobs": tokens}
    masked, count = Masker().line(json.dumps(record).encode())
    assert json.loads(masked) == {
        "MY_VENDOR_TOKEN": "[secret:MY_VENDOR_TOKEN]",
        "db": {"password": "[secret:password]"},
        "api_key": None,
        "logprobs": tokens,
    }
    assert count == 2
    assert Masker().line(masked) == (masked, 0)


def test_a_secret_that_follows_its_option_in_a_list_of_words_is_masked() -> None:
    words = ["vendor", "--vendor.api-key", "canary-1", "--token", "--n", "5"]
    document = Masker().document(json.dumps({"command": words}))
    assert json.loads(document)["command"] == [*words[:2], "[secret:api-key]", *words[3:]]


def test_what_an_address_carries_beside_the_place_is_masked_whatever_its_name() -> None:
    assert masked_url("https://h:1/v1?a=b2&key=MY_KEY&flag#end") == (
        "https://h:1/v1?a=[secret:a]&key=[secret:key]&flag#end"
    )
    assert masked_url("https://me:pass@h/v1") == "https://[secret:login]@h/v1"
    assert masked_url("http://127.0.0.1:8000/v1") == "http://127.0.0.1:8000/v1"
    assert secrets_in("https://me:pass@h/v1?a=b&c=") == {"login": "me:pass", "a": "b"}


def test_a_long_text_is_not_searched_because_another_one_of_its_line_holds_a_secret() -> None:
    line = json.dumps({"short": "API_KEY=abcdefghij", "long": "z" * 2_000_000}).encode()
    began = time.process_time()
    for _ in range(3):
        json.dumps(json.loads(line))
    plain = time.process_time() - began
    began = time.process_time()
    assert Masker().line(line)[1] == 1
    assert time.process_time() - began < 10 * plain


PIECES = (
    *(
        "API_KEY",
        "api-key",
        "token",
        "access_token",
        "GITHUB_TOKEN",
        "_SECRET",
        "passwd",
        "PASSWORD=",
        "export ",
    ),
    *(
        "--",
        "=",
        ":",
        " ",
        '"',
        "'",
        '\\"',
        "\\",
        "\n",
        "abcdefgh12",
        "?",
        "&",
        "key",
        "sig",
        "signature",
        "://",
    ),
    *(
        "@",
        "http",
        "Bearer ",
        "x-api-key",
        "authorization",
        "CREDENTIALS_2",
        "_",
        "1",
        ",",
        "\u00a0",
        "\u00e9",
    ),
)


def test_whatever_is_masked_is_seen_by_the_quick_look_before_it() -> None:
    drawn, masker, masked = Random(7), Masker({"known": "sk-canary/0123+ab"}), 0
    for _ in range(20_000):
        text = "".join(drawn.choices((*PIECES, "sk-canary/0123+ab"), k=drawn.randint(2, 9)))
        if masker.text(text)[0] != text:
            masked += 1
            assert masker.touches(text.encode()), text
    assert masked > 1000


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


TELLS = '''
from hotswap import Finish, Harness, Job, Launch

PROGRAM = """
import json, os, sys, urllib.request
key = os.environ["KEY"]
open(sys.argv[1], "w").write(key)
print("key on stdout:", key, flush=True)
print(json.dumps({"key on stderr": json.dumps([key])}), file=sys.stderr)
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "my key is " + key}]}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + key}
urllib.request.urlopen(urllib.request.Request(sys.argv[2], body, headers)).read()
"""


class Tells(Harness):
    """A program that tells everyone the key that it was given."""

    into: str
    """Where it writes it for the test."""

    def launch(self, job: Job) -> Launch:
        url = f"{job.endpoint.url}/v1/chat/completions"
        return Launch(argv=("python3", "-c", PROGRAM, self.into, url), env={"KEY": job.endpoint.key})
'''


def written(run: Path) -> bytes:
    return b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())


def test_a_program_that_prints_the_secret_it_was_given_leaves_it_in_no_log_and_no_trace(
    tmp_path: Path,
) -> None:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "q.jsonl").write_text('{"prompt": "p", "answer": "42"}')
    words = ("jsonl", "--taskset.path", "q.jsonl", "-H", f"./tells.py,into={tmp_path / 'told'}")
    with Provider(say("42")) as provider:
        done = evaluate(tmp_path, *words, "-m", f"scripted@{provider.url}")
    key = (tmp_path / "told").read_bytes()
    assert len(key) >= 8
    (folder,) = (done.run / "logs").iterdir()
    assert (folder / "stdout").read_bytes() == b"key on stdout: [secret:session]\n"
    assert b"[secret:session]" in (folder / "stderr").read_bytes()
    assert key not in written(done.run)
    assert done.metrics["total"]["masked"] >= 1


PRINTED = r"""cat <<'END'
AZURE_OPENAI_API_KEY_2=canary-azure-0001
export PGPASSWORD=not-by-our-names
declare -x NPM_TOKEN="canary-npm-0002"
RABBIT_PASSWORD=canary rabbit 0003
SHELL=/bin/bash
TOKENIZERS_PARALLELISM=true
MONKEY=banana
{"refresh_token": "canary-refresh-0004", "kind": "token"}
Authorization: Bearer canary-bearer-0005
GET https://svc:canary-url-0006@h.example/x?signature=canary-sig-0007
END"""


def test_secrets_that_a_tool_prints_are_masked_by_their_names_and_counted_in_the_summary(
    tmp_path: Path,
) -> None:
    (tmp_path / "q.jsonl").write_text('{"prompt": "p", "answer": "42"}')
    words = ("jsonl", "--taskset.path", "q.jsonl", "-H", "loop,tools=bash")
    with Provider(call_tool("bash", {"command": PRINTED}), say("42")) as provider:
        done = evaluate(tmp_path, *words, "-m", f"scripted@{provider.url}")
    files = written(done.run)
    assert b"canary" not in files
    for kept in (b"SHELL=/bin/bash", b"TOKENIZERS_PARALLELISM=true", b"MONKEY=banana"):
        assert kept in files
    (trace,) = done.traces
    count = json.dumps(trace).count("[secret:")
    assert count >= 14  # seven in the command that was asked for, and seven in what it printed
    assert done.metrics["total"]["masked"] == count
    assert f"{count} secrets were masked in the traces." in done.stdout


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("behind", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_secret_is_masked_in_base64_wherever_it_begins(
    before: int, behind: int, encode: Callable[[bytes], bytes]
) -> None:
    secret = "sk-canary?>~/0001"
    packed = encode(b"u" * before + secret.encode() + b"v" * behind)
    masker = Masker({"KEY": secret})
    for written in (packed, packed.replace(b"/", b"\\/")):
        masked = masker.raw(b"it is Basic " + written + b" and so on")
        assert b"[secret:KEY]" in masked
        left = masked.replace(b"[secret:KEY]", b"").partition(b"Basic ")[2].removesuffix(b" and so on")
        assert len(left) <= len(packed) - len(secret) * 4 // 3 + 4
    line, count = masker.line(json.dumps({"said": packed.decode()}).encode())
    assert (count, b"[secret:KEY]" in line) == (1, True)


@pytest.mark.parametrize("secret", ["sk-canary-0001", "nothing-of-the-kind"])
def test_a_long_text_is_masked_as_a_short_one_is_wherever_its_steps_end(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    parts = [
        *(
            'curl -H "x-api-key: canary-0001" ',
            "authorization: Bearer canary-0001\n",
            "sig=abcdef ",
            "token key ",
        ),
        *(
            '{"api_key": "canary-0001", "password": "' + "long " * 300 + '"} ',
            "https://me:canary-1@host/path ",
        ),
        *("export MY_VENDOR_TOKEN=canary-0001 and more\n", "--vendor.password=canary-0001 ", "é" * 90),
        *(
            "?access_token=canary-0001&key=canary-0001 ",
            f"{secret} ",
            "x" * 700,
            "\n",
            "https://" + "c" * 30 + "@h/r ",
        ),
    ]
    draw = Random(1)
    for step in (64, 300, 4096):
        text = "".join(draw.choice(parts) for _ in range(200))
        masker = Masker({"KEY": secret})
        monkeypatch.setattr(masking, "STEP", len(text))
        whole = masker.text(text)
        monkeypatch.setattr(masking, "STEP", step)
        assert masker.text(text) == whole
        assert masker.raw(text.encode()) == whole[0].encode()
        assert not masker.touches(b"a word " * 10_000)


def test_a_megabyte_is_searched_in_a_small_part_of_the_time_that_its_expressions_would_take() -> None:
    text = "word " * 40_000 + "MY_TOKEN=canary-0001 " + "word " * 40_000
    started = time.process_time()
    for pattern, write in masking._WRITTEN:
        pattern.subn(write, text)
    slow, started = time.process_time() - started, time.process_time()
    assert Masker().text(text)[1] == 1
    assert time.process_time() - started < slow / 3
