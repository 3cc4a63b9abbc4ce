"""The loop program as its user meets it: a process of its own, in front of a real HTTP server."""

import json
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit.provider import Provider, Reply, call_tool, call_tools, fail, replace, say

PROGRAM = Path(__file__).parents[2] / "harnesses" / "_loop_program.py"
KEY = "sk-loop-test"


@dataclass(frozen=True)
class Ended:
    """What the program left."""

    code: int
    stdout: bytes
    stderr: str


def run(
    url: str,
    *options: str,
    prompt: bytes = b"hi",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ended:
    argv = [sys.executable, "-I", "-S", str(PROGRAM), "--base-url", url, "--model", "scripted", *options]
    environment = {"PATH": os.environ["PATH"], "LOOP_API_KEY": KEY, **(env or {})}
    ended = subprocess.run(argv, input=prompt, capture_output=True, env=environment, cwd=cwd, timeout=60)
    return Ended(ended.returncode, ended.stdout, ended.stderr.decode())


def converse(*replies: Reply, options: tuple[str, ...] = (), cwd: Path | None = None) -> list[dict[str, Any]]:
    """Run with the tool bash through all the replies; get the messages of the last request."""
    with Provider(*replies) as provider:
        ended = run(provider.url, "--tools", "bash", *options, cwd=cwd)
        assert (ended.code, ended.stderr) == (0, "")
        assert len(provider.posts) == len(replies)
        messages: list[dict[str, Any]] = provider.posts[-1].json["messages"]
        return messages


def completion(message: Mapping[str, Any]) -> Reply:
    """An answer whose message is exactly this, however odd."""
    return Reply(body=json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode())


def tool_result(command: str, *options: str, cwd: Path | None = None) -> str:
    """Have one command run, and get what the model is shown of it."""
    messages = converse(call_tool("bash", {"command": command}), say("done"), options=options, cwd=cwd)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    content: str = messages[-1]["content"]
    return content


def watch(folder: Path) -> int:
    """Make a pipe `alive`, which a command opens for writing and its children inherit."""
    os.mkfifo(folder / "alive")
    return os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)


def all_gone(watched: int) -> bool:
    """Whether every process that holds the watched pipe ends soon."""
    with open(watched, "rb") as alive:
        return bool(select.select([alive], [], [], 20)[0]) and alive.read() == b""


@contextmanager
def raw_server(*pieces: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that reads one request and then writes exactly these bytes, each piece on its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with tls.wrap_socket(connection, server_side=True) if tls else connection as connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join()


def test_the_prompt_and_the_system_prompt_arrive_verbatim_and_the_answer_is_printed(tmp_path: Path) -> None:
    prompt = "--model 'x' \"y\"\n\n  Grüße, 世界 \r\n$(rm) \\n " + "x" * 200_000 + "\n"
    (tmp_path / "system.md").write_text("You are\n terse.\n", "utf-8")
    with Provider(say("Gut, 世界.")) as provider:
        ended = run(provider.url, "--system", str(tmp_path / "system.md"), prompt=prompt.encode())
        sent = provider.posts[0]
    assert ended == Ended(0, "Gut, 世界.\n".encode(), "")
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.json == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "You are\n terse.\n"},
            {"role": "user", "content": prompt},
        ],
    }


def test_a_system_prompt_may_stand_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "system.md").write_text("terse")
    with Provider(say("ok")) as provider:
        assert run(provider.url, "--system", "~/system.md", env={"HOME": str(tmp_path)}).code == 0
        assert provider.posts[0].json["messages"][0] == {"role": "system", "content": "terse"}


def test_without_a_key_no_authorization_is_sent() -> None:
    with Provider(say("ok")) as provider:
        assert run(provider.url, env={"LOOP_API_KEY": ""}).code == 0
        assert "authorization" not in provider.posts[0].headers


@pytest.mark.parametrize(
    "locale",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "ascii", "LANG": "C"},
    ],
)
def test_any_locale_gives_the_same_bytes(locale: Mapping[str, str]) -> None:
    with Provider(say("naïve 日本 \U0001f600")) as provider:
        argv = [sys.executable, str(PROGRAM), "--base-url", provider.url, "--model", "m"]
        ended = subprocess.run(
            argv, input="façade".encode(), capture_output=True, env={**os.environ, **locale}, check=True
        )
        assert provider.posts[0].json["messages"][-1]["content"] == "façade"
    assert ended.stdout == "naïve 日本 \U0001f600\n".encode()


def test_a_lone_surrogate_is_printed_as_its_escape_and_sent_back_as_it_came() -> None:
    odd = call_tools(("call_1", "bash", {"command": "true"}), text="math \ud835 end")
    with Provider(odd, say("math \ud835 end")) as provider:
        ended = run(
            provider.url, "--tools", "bash", prompt="odd \udce9 prompt".encode("utf-8", "surrogatepass")
        )
        messages = provider.posts[1].json["messages"]
    assert ended == Ended(0, b"math \\ud835 end\n", "")
    assert messages[0]["content"] == "odd \udce9 prompt"
    assert messages[1]["content"] == "math \ud835 end"


def test_a_prompt_that_is_no_utf8_is_sent_with_replacements() -> None:
    with Provider(say("ok")) as provider:
        assert run(provider.url, prompt=b"caf\xe9 \xff").code == 0
        assert provider.posts[0].json["messages"][-1]["content"] == "caf\ufffd \ufffd"


def test_tools_are_offered_only_where_they_are_asked_for() -> None:
    with Provider(say("ok"), say("ok")) as provider:
        run(provider.url)
        run(provider.url, "--tools", "bash")
        without, with_bash = (post.json for post in provider.posts)
    assert "tools" not in without
    assert [tool["function"]["name"] for tool in with_bash["tools"]] == ["bash"]


def test_the_models_message_goes_back_with_all_its_fields() -> None:
    called = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "true"}'}}
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I shall look.",
        "tool_calls": [{**called, "extra_content": {"thought_signature": "xyz"}}],
    }
    assert converse(completion(message), say("done"))[1] == message


def test_a_command_runs_in_the_working_directory_and_its_exit_code_is_told(tmp_path: Path) -> None:
    result = tool_result("pwd; echo wrong >&2; echo kept > file; exit 3", cwd=tmp_path)
    assert result == f"{tmp_path}\nwrong\n[exit code 3]"
    assert (tmp_path / "file").read_text() == "kept\n"


def test_a_command_that_says_nothing_or_is_killed_says_how_it_ended() -> None:
    assert tool_result("true") == "[exit code 0]"
    assert tool_result("kill -9 $$") == "[killed by signal 9]"


def test_a_command_has_no_standard_input_and_no_key_and_the_usual_signals() -> None:
    assert (
        tool_result('cat; echo "[$LOOP_API_KEY]"; yes | head -1; echo ${PIPESTATUS[0]}')
        == "[]\ny\n141\n[exit code 0]"
    )


def test_a_command_that_begins_with_a_dash_is_a_command() -> None:
    assert "command not found" in tool_result("-c true")


def test_without_bash_the_command_runs_in_sh(tmp_path: Path) -> None:
    for name in ("sh", "cat"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    with Provider(call_tool("bash", {"command": "echo $0"}), say("done")) as provider:
        assert run(provider.url, "--tools", "bash", env={"PATH": str(tmp_path)}).code == 0
        assert provider.posts[1].json["messages"][-1]["content"] == "sh\n[exit code 0]"


def test_parallel_calls_are_all_run_and_answered_in_order(tmp_path: Path) -> None:
    calls = [(f"call_{n}", "bash", {"command": f"echo {n} >> log; cat log"}) for n in range(3)]
    messages = converse(call_tools(*calls), say("done"), cwd=tmp_path)
    assert [(message["tool_call_id"], message["content"]) for message in messages[2:]] == [
        ("call_0", "0\n[exit code 0]"),
        ("call_1", "0\n1\n[exit code 0]"),
        ("call_2", "0\n1\n2\n[exit code 0]"),
    ]


def test_a_time_limit_kills_the_whole_group_of_the_command(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    command = "exec 3> alive; sleep 300 & echo begun; sleep 300"
    result = tool_result(command, "--command-timeout-s", "0.5", cwd=tmp_path)
    assert result == "begun\n[time limit of 0.5 s reached; the command was killed]"
    assert all_gone(watched)


def test_a_command_that_writes_without_end_is_ended_by_its_time_limit() -> None:
    result = tool_result("yes", "--command-timeout-s", "0.5", "--output-limit", "100")
    assert result.startswith("y\n" * 25 + "\n[... ")
    assert result.endswith("y\n[time limit of 0.5 s reached; the command was killed]")


def test_an_interrupt_ends_the_running_command_too(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    os.mkfifo(tmp_path / "begun")
    command = "exec 3> alive; sleep 300 & echo > begun; wait"
    with Provider(call_tool("bash", {"command": command})) as provider:
        argv = [sys.executable, str(PROGRAM), "--base-url", provider.url, "--model", "m", "--tools", "bash"]
        program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path)
        (tmp_path / "begun").read_text()
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=30)
    assert (program.returncode, stderr) == (130, b"loop: interrupted\n")
    assert all_gone(watched)


@pytest.mark.parametrize("background", ["sleep 300 &", "setsid sleep 300 &"])
def test_a_background_process_that_holds_the_output_does_not_hold_up_the_result(
    background: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    try:
        assert tool_result(f"{background} echo $! > child; echo on", cwd=tmp_path) == "on\n[exit code 0]"
        assert time.monotonic() - began < 30
    finally:
        psutil.Process(int((tmp_path / "child").read_text())).kill()


def test_a_background_process_that_writes_for_ever_does_not_either(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    result = tool_result("exec 3> alive; yes &", "--output-limit", "100", cwd=tmp_path)
    assert result.endswith("[exit code 0]")
    assert all_gone(watched)


def test_a_background_process_lives_on_and_may_write(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "done")
    messages = converse(
        call_tool("bash", {"command": "(read < go; echo one; echo two; echo well > done) & echo started"}),
        call_tool("bash", {"command": "echo > go; cat done"}),
        say("done"),
        cwd=tmp_path,
    )
    assert [message["content"] for message in messages if message["role"] == "tool"] == [
        "started\n[exit code 0]",
        "well\n[exit code 0]",
    ]


def test_output_that_is_no_text_is_shown_with_replacements(tmp_path: Path) -> None:
    data = b"caf\xe9 \xff\xfe\x00 end\n\x1b[31mred\x1b[0m\rtwo\n" + "日本語".encode()[:-1]
    (tmp_path / "data").write_bytes(data)
    assert tool_result("cat data", cwd=tmp_path) == (
        "caf\ufffd \ufffd\ufffd\ufffd end\n\x1b[31mred\x1b[0m\rtwo\n日本\ufffd\n[exit code 0]"
    )


def test_long_output_is_cut_in_its_middle_and_its_full_size_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a" * 2_500_000 + "b" * 2_500_000)
    result = tool_result("cat data", "--output-limit", "1000", cwd=tmp_path)
    note = "\n[... 4999000 of 5000000 bytes left out ...]\n"
    assert result == "a" * 500 + note + "b" * 500 + "\n[exit code 0]"


MALFORMED = {
    "cut off": ("bash", '{"command": "echo hi', "not JSON"),
    "double encoded": ("bash", '"{\\"command\\": \\"echo hi\\"}"', "a JSON string and not an object"),
    "an array": ("bash", '["echo hi"]', "a JSON array and not an object"),
    "a number": ("bash", "5", "a JSON number and not an object"),
    "null": ("bash", "null", "a JSON null and not an object"),
    "empty": ("bash", "", "are empty"),
    "blank": ("bash", " \n", "are empty"),
    "missing": ("bash", "{}", '"command" is missing'),
    "unknown": ("bash", '{"command": "true", "cwd": "/"}', '"cwd" is unknown'),
    "of the wrong type": ("bash", '{"command": ["true"]}', '"command" is a JSON array and not a string'),
    "nested without end": ("bash", "[" * 100_000, "not JSON"),
    "an endless number": ("bash", "1" * 10_000, "not JSON"),
    "another tool": ("no_such_tool", "{}", 'no tool "no_such_tool". The tools are: bash.'),
    "a NUL": ("bash", '{"command": "echo \\u0000"}', "could not be started"),
    "a lone surrogate": ("bash", '{"command": "echo \\ud835"}', "could not be started"),
    "too long": ("bash", json.dumps({"command": "#" * 5_000_000}), "could not be started"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_call_is_answered_with_what_is_wrong_and_the_loop_goes_on(case: str) -> None:
    name, arguments, fault = MALFORMED[case]
    messages = converse(call_tool(name, arguments, id="call_7"), say("42"))
    assert messages[1]["tool_calls"][0]["function"] == {"name": name, "arguments": arguments}
    assert messages[2]["tool_call_id"] == "call_7"
    assert messages[2]["content"].startswith("Error: ")
    assert fault in messages[2]["content"]


def test_two_calls_of_one_id_are_both_answered() -> None:
    messages = converse(
        call_tools(("call_1", "bash", {"command": "echo 1"}), ("call_1", "bash", {"command": "echo 2"})),
        say("42"),
    )
    assert [(message["tool_call_id"], message["content"][0]) for message in messages[2:]] == [
        ("call_1", "1"),
        ("call_1", "2"),
    ]


@pytest.mark.parametrize(
    "call", [None, "text", {}, {"id": "", "function": None}, {"id": 5, "function": {"arguments": 3}}]
)
def test_a_call_that_cannot_be_answered_as_it_is_gets_what_it_lacks(call: object) -> None:
    messages = converse(completion({"role": "assistant", "content": None, "tool_calls": [call]}), say("42"))
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert "there is no tool" in messages[2]["content"]


def test_arguments_that_are_an_object_already_are_taken_as_they_are() -> None:
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "function": {"name": "bash", "arguments": {"command": "echo hi"}}}],
    }
    assert converse(completion(message), say("42"))[2]["content"] == "hi\n[exit code 0]"


def test_a_line_break_inside_an_argument_is_forgiven() -> None:
    assert (
        converse(call_tool("bash", '{"command": "echo a\necho b"}'), say("42"))[2]["content"]
        == "a\nb\n[exit code 0]"
    )


def test_a_call_of_a_tool_where_none_was_offered_is_answered() -> None:
    with Provider(call_tool("bash", {"command": "true"}), say("42")) as provider:
        assert run(provider.url) == Ended(0, b"42\n", "")
        assert "There are no tools" in provider.posts[1].json["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ({"content": None}, b"\n"),
        ({}, b"\n"),
        ({"content": ""}, b"\n"),
        ({"content": "cut of"}, b"cut of\n"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, b"ab\n"),
        ({"content": "x", "tool_calls": None}, b"x\n"),
        ({"content": "x", "tool_calls": []}, b"x\n"),
    ],
)
def test_whatever_the_last_message_holds_is_an_answer(message: dict[str, Any], printed: bytes) -> None:
    with Provider(completion(message)) as provider:
        assert run(provider.url) == Ended(0, printed, "")


def test_turns_are_limited_the_last_tools_are_still_run_and_the_exit_code_tells(tmp_path: Path) -> None:
    with Provider(lambda _: call_tool("bash", {"command": "echo x >> log"}, text="once more")) as provider:
        ended = run(provider.url, "--tools", "bash", "--max-turns", "3", cwd=tmp_path)
        assert len(provider.posts) == 3
    assert ended == Ended(3, b"once more\n", "loop: ended after 3 turns (--max-turns)\n")
    assert (tmp_path / "log").read_text() == "x\n" * 3


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (fail(400, "context is\n too long"), "HTTP 400: context is too long"),
        (fail(500, "try later"), "HTTP 500: try later"),
        (fail(429, "slow down", headers={"retry-after": "1"}), "HTTP 429: slow down"),
        (Reply(502, body=b"<html>Bad\n gateway</html>"), "HTTP 502: <html>Bad gateway</html>"),
        (Reply(503, body=b""), "HTTP 503: (empty)"),
        (Reply(404, body=b'{"detail": "no such path"}'), "HTTP 404: no such path"),
        (Reply(401, body=b'{"error": "no key"}'), "HTTP 401: no key"),
        (Reply(307, body=b"", headers={"location": "/v2"}), "HTTP 307: (empty)"),
        (
            Reply(body=b'{"error": {"message": "out of credit"}}'),
            "the endpoint reports an error: out of credit",
        ),
        (Reply(body=b'{"choices": []}'), 'the answer is no chat completion: {"choices": []}'),
        (Reply(body=b'{"choices": [{"message": "hi"}]}'), "the answer is no chat completion: "),
        (Reply(body=b"[1]"), "the answer is no chat completion: [1]"),
        (Reply(body=b"ok"), "the answer is no JSON: ok"),
        (Reply(body=b"\xff\xfe"), "the answer is no JSON: "),
    ],
    ids=str,
)
def test_a_failed_call_ends_it_with_the_endpoints_own_words(reply: Reply, line: str) -> None:
    with Provider(reply) as provider:
        ended = run(provider.url)
        assert len(provider.posts) == 1
    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith(f"loop: {line}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("cut", [0, 5])
def test_a_connection_that_breaks_off_is_a_failed_call(cut: int) -> None:
    with Provider(replace(say("hello"), cut=cut)) as provider:
        ended = run(provider.url)
    assert ended.code == 1
    assert "the connection was closed" in ended.stderr


def test_an_endpoint_that_is_not_there_is_a_failed_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ended = run(f"http://127.0.0.1:{port}/v1")
    assert ended == Ended(1, b"", f"loop: no answer from http://127.0.0.1:{port}/v1: Connection refused\n")


BODY = json.dumps({"choices": [{"message": {"content": "hello"}}]}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RAW = {
    "in chunks": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        b"5;x=y\r\n" + BODY[:5] + b"\r\n%X\r\n" % len(BODY[5:]),
        BODY[5:] + b"\r\n0\r\nTrailer: x\r\n\r\n",
    ),
    "byte by byte": tuple(bytes([byte]) for byte in OK + b"content-LENGTH: %d\r\n\r\n" % len(BODY) + BODY),
    "until the end": (OK + b"\r\n" + BODY,),
    "after a provisional answer": (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        OK + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    ),
    "without a reason": (b"HTTP/1.0 200\n\n" + BODY,),
}


@pytest.mark.parametrize("case", RAW)
def test_an_answer_is_read_however_it_is_framed(case: str) -> None:
    with raw_server(*RAW[case]) as url:
        assert run(url) == Ended(0, b"hello\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reset may take the answer with it")
def test_an_answer_that_comes_before_the_call_was_read_is_still_read() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large"
    with raw_server(refusal) as url:
        assert run(url, prompt=b"x" * 20_000_000) == Ended(1, b"", "loop: HTTP 413: too large\n")


def test_an_encrypted_endpoint_is_called_where_its_certificate_is_trusted(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", str(key), "-out"]
    subprocess.run([*made, str(certificate)], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with raw_server(*RAW["in chunks"], tls=tls) as url:
        assert run(url, env={"SSL_CERT_FILE": str(certificate)}) == Ended(0, b"hello\n", "")


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "the answer is no HTTP: SSH-2.0-OpenSSH"),
        (OK, "the connection was closed within the headers of the answer"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
            "the connection was closed within the answer",
        ),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n123",
            "the connection was closed after 3 of 5 bytes of the answer",
        ),
    ],
)
def test_what_is_no_whole_answer_is_a_failed_call(sent: bytes, line: str) -> None:
    with raw_server(sent) as url:
        assert run(url) == Ended(1, b"", f"loop: no answer from {url}: {line}\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--tools", "bash,edit"), "--tools edit: there is no such tool; known: bash"),
        (("--max-turns", "0"), "--max-turns 0: expected a number above 0"),
        (("--max-turns", "1.5"), "--max-turns 1.5: expected a whole number above 0"),
        (("--command-timeout-s", "soon"), "--command-timeout-s soon: expected a number above 0"),
        (("--system", "/no/such/file"), "--system /no/such/file: No such file or directory"),
        (("--base-url", "ftp://x"), "--base-url ftp://x: expected http://"),
        (("--colour", "red"), "option --colour not recognized"),
        (("rest",), "unexpected: rest"),
    ],
)
def test_wrong_usage_is_told_and_nothing_is_called(options: tuple[str, ...], complaint: str) -> None:
    ended = run("http://127.0.0.1:9/v1", *options)
    assert ended.code == 2
    assert ended.stderr.startswith(f"loop: {complaint}")


def test_help_shows_every_option() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), "--help"], capture_output=True, text=True, check=True
    )
    for option in (
        "--base-url",
        "--model",
        "--system",
        "--tools",
        "--command-timeout-s",
        "--output-limit",
        "--max-turns",
    ):
        assert option in ended.stdout


def test_it_knows_nothing_of_what_runs_it_and_imports_little() -> None:
    assert "hotswap" not in PROGRAM.read_text()
    with Provider(say("ok")) as provider:
        argv = [
            sys.executable,
            "-I",
            "-S",
            "-X",
            "importtime",
            str(PROGRAM),
            "--base-url",
            provider.url,
            "--model",
            "m",
        ]
        ended = subprocess.run(argv, input=b"hi", capture_output=True, check=True)
    imported = {line.rpartition(b"|")[2].strip().decode() for line in ended.stderr.splitlines()}
    assert "json" in imported
    assert not imported & {
        "site",
        "http.client",
        "ssl",
        "subprocess",
        "threading",
        "typing",
        "argparse",
        "email",
        "asyncio",
    }
