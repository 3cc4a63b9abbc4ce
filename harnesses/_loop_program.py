#!/usr/bin/env -S python3 -I -S
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""A small agent: a system prompt, a prompt, and tools, in a loop until the model answers without calling one.

    export LOOP_API_KEY=...        # sent as a bearer token; unset: none is sent
    echo 'How many files are here?' | ./_loop_program.py --base-url https://HOST/v1 --model NAME --tools bash

The prompt is read from standard input, verbatim. The last answer goes to standard output, as UTF-8.

    --base-url URL            of an endpoint that speaks OpenAI chat completions, at URL/chat/completions
    --model NAME
    --system FILE             a system prompt; ~ is the home folder
    --tools bash              tools that the model may call, by comma; none if left out
    --command-timeout-s 120   seconds that one command of the tool bash may take
    --output-limit 20000      bytes of a command's output that the model is shown; its middle is left out
    --max-turns 100           model calls at most

The tool calls of one answer are run one after the other, and answered in that order. A malformed call is
answered with what is wrong with it. Bytes of a command's output that are no UTF-8, and NUL, become U+FFFD. A
failed model call is not repeated.

Exit code 0: the model has answered; 1: a model call failed; 2: wrong usage; 3: the turns were used up, and the
last message of the model asks for tools. The last line of standard error says why.

It starts in a few milliseconds: what a single answer does not need is imported later.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from getopt import GetoptError, getopt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    Json = dict[str, Any]

KEY_VARIABLE = "LOOP_API_KEY"
NAMES = ["base-url", "model", "system", "tools", "command-timeout-s", "output-limit", "max-turns"]
DEFAULTS = {"--tools": "", "--command-timeout-s": "120", "--output-limit": "20000", "--max-turns": "100"}
DESCRIPTION = (
    "Run a command with bash in the working directory and get its output (standard error included) and its "
    "exit code. Each command starts in a fresh shell. Standard input is empty."
)
LONGEST_LINE = 1 << 16
LONGEST_WAIT_S = 0.05


class TurnsUsedUp(Exception):
    """The model still asks for tools; the message is the text of its last message."""


class ModelCallError(Exception):
    """A model call came to nothing; the message is one line for a person."""


class ToolCallError(Exception):
    """A tool call cannot be run; the message tells the model why."""


class UsageError(Exception):
    """The program was started wrongly."""


def main(arguments: list[str]) -> int:
    try:
        options = read_options(arguments)
        write(converse(options, opening(options)))
    except TurnsUsedUp as end:
        write(str(end))
        return complain(f"ended after {options.max_turns} turns (--max-turns)", 3)
    except ModelCallError as failure:
        return complain(failure, 1)
    except UsageError as misuse:
        return complain(f"{misuse} (--help shows the usage)", 2)
    except BrokenPipeError:
        return complain("standard output was closed before the answer was written", 1)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    return 0


def write(text: str) -> None:
    with open(1, "wb", closefd=False) as stdout:
        stdout.write(encode(text if text.endswith("\n") else f"{text}\n"))


def complain(problem: object, code: int) -> int:
    os.write(2, encode("loop: " + " ".join(str(problem).split()) + "\n"))
    return code


def encode(text: str) -> bytes:
    """Get UTF-8, whatever the locale. A lone surrogate, which has none, is written as its escape."""
    return text.encode("utf-8", "backslashreplace")


def decode(data: bytes) -> str:
    """Get text as it was meant: lone surrogates stay, bytes that are no UTF-8 become U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


# The command line


class Options:
    def __init__(self, given: dict[str, str]) -> None:
        self.url = given["--base-url"].rstrip("/")
        self.model = given["--model"]
        self.system = given.get("--system")
        self.tools = [name for name in given["--tools"].split(",") if name]
        self.command_timeout_s = number("--command-timeout-s", given)
        self.output_limit = whole_number("--output-limit", given)
        self.max_turns = whole_number("--max-turns", given)
        self.key = os.environ.get(KEY_VARIABLE, "").strip()


def read_options(arguments: list[str]) -> Options:
    try:
        pairs, rest = getopt(arguments, "h", ["help", *(f"{name}=" for name in NAMES)])
    except GetoptError as error:
        raise UsageError(error) from None
    given = {**DEFAULTS, **dict(pairs)}
    if "--help" in given or "-h" in given:
        write(__doc__)
        raise SystemExit
    if rest:
        raise UsageError(f"unexpected: {' '.join(rest)}")
    if missing := [name for name in ("--base-url", "--model") if name not in given]:
        raise UsageError(f"{' and '.join(missing)} must be given")
    options = Options(given)
    check(options)
    return options


def check(options: Options) -> None:
    unknown = [name for name in options.tools if name not in TOOLS]
    if unknown:
        raise UsageError(f"--tools {','.join(unknown)}: there is no such tool; known: {', '.join(TOOLS)}")
    scheme, _, rest = options.url.partition("://")
    if scheme not in ("http", "https") or not rest or not options.url.isprintable() or " " in options.url:
        raise UsageError(f"--base-url {options.url}: expected http://HOST[:PORT][/PATH] or https://...")
    if not (options.key.isascii() and options.key.isprintable()):
        raise UsageError(f"{KEY_VARIABLE} holds a character that no HTTP header can carry")


def number(name: str, given: dict[str, str]) -> float:
    try:
        value = float(given[name])
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise UsageError(f"{name} {given[name]}: expected a number above 0")
    return value


def whole_number(name: str, given: dict[str, str]) -> int:
    value = number(name, given)
    if value != int(value):
        raise UsageError(f"{name} {given[name]}: expected a whole number above 0")
    return int(value)


# The conversation


def opening(options: Options) -> list[Json]:
    """Get the messages that stand at the beginning."""
    messages: list[Json] = []
    if options.system is not None:
        path = os.path.expanduser(options.system)  # noqa: PTH111
        if system := read_text(path, f"--system {options.system}"):
            messages.append({"role": "system", "content": system})
    messages.append({"role": "user", "content": read_text(0, "standard input")})
    return messages


def read_text(file: str | int, name: str) -> str:
    try:
        with open(file, "rb", closefd=file != 0) as opened:
            return decode(opened.read())
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None


def converse(options: Options, messages: list[Json]) -> str:
    """Go on until the model answers without calling a tool, and get what it said last."""
    tools = {name: TOOLS[name](options) for name in options.tools}
    request: Json = {"model": options.model, "messages": messages}
    if tools:
        request["tools"] = [tool.offer for tool in tools.values()]
    for turn in range(options.max_turns):
        message = read_message(post(options, json.dumps(request).encode()))
        calls = repair(message, turn)
        messages.append(message)
        if not calls:
            return text_of(message)
        messages.extend(answer(call, tools) for call in calls)
    raise TurnsUsedUp(text_of(message))


def read_message(data: bytes) -> Json:
    """Get the model's message from an answer's body, with all its fields: some endpoints want them back."""
    try:
        body = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise ModelCallError(f"the answer is no JSON: {excerpt(data)}") from None
    if isinstance(body, dict) and body.get("error") and not body.get("choices"):
        raise ModelCallError(f"the endpoint reports an error: {error_message(data)}")
    try:
        message = body["choices"][0]["message"]
        return {"role": "assistant", **message}
    except (KeyError, IndexError, TypeError):
        raise ModelCallError(f"the answer is no chat completion: {excerpt(data)}") from None


def text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def repair(message: Json, turn: int) -> list[Json]:
    """Get the message's tool calls, each with the id and the function that it needs to be answered at all."""
    calls = message.get("tool_calls")
    if not calls or not isinstance(calls, list):
        message.pop("tool_calls", None)
        return []
    for number, call in enumerate(calls):
        call = call if isinstance(call, dict) else {}
        if not isinstance(call.get("id"), str) or not call["id"]:
            call["id"] = f"call_{turn}_{number}"
        if not isinstance(call.get("function"), dict):
            call["function"] = {"name": "", "arguments": ""}
        calls[number] = {"type": "function", **call}
    return calls


def answer(call: Json, tools: dict[str, Bash]) -> Json:
    """Run one tool call and get the message that answers it."""
    try:
        content = run(call["function"], tools)
    except ToolCallError as fault:
        content = f"Error: {fault}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def run(function: Json, tools: dict[str, Bash]) -> str:
    name = function.get("name")
    tool = tools.get(name) if isinstance(name, str) else None
    if tool is None:
        known = f"The tools are: {', '.join(tools)}." if tools else "There are no tools; answer without one."
        raise ToolCallError(f"there is no tool {json.dumps(name)}. {known}")
    return tool.run(**read_arguments(tool.offer["function"], function.get("arguments")))


def read_arguments(offer: Json, arguments: Any) -> Json:
    """Get a call's arguments as a dict that fits the tool. Raises ToolCallError, naming what does not."""
    parameters = offer["parameters"]
    example = json.dumps(dict.fromkeys(parameters["required"], "..."))
    wanted = f"{offer['name']} takes a JSON object such as {example}"
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        raise ToolCallError(f"the arguments are empty; {wanted}")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError) as error:
            raise ToolCallError(f"the arguments are not JSON ({error}); {wanted}") from None
    if not isinstance(arguments, dict):
        raise ToolCallError(f"the arguments are a JSON {type_name(arguments)} and not an object; {wanted}")
    missing = [key for key in parameters["required"] if key not in arguments]
    unknown = [key for key in arguments if key not in parameters["properties"]]
    wrong = [key for key, value in arguments.items() if key not in unknown and not isinstance(value, str)]
    problems = [f"{json.dumps(key)} is missing" for key in missing]
    problems += [f"{json.dumps(key)} is unknown" for key in unknown]
    problems += [f"{json.dumps(key)} is a JSON {type_name(arguments[key])} and not a string" for key in wrong]
    if problems:
        raise ToolCallError(f"{', '.join(problems)}; {wanted}")
    return arguments


def type_name(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


# The tool bash


class Bash:
    offer: Json = {
        "type": "function",
        "function": {
            "name": "bash",
            "description": DESCRIPTION,
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command, as typed in a shell."}
                },
                "required": ["command"],
                "additionalProperties": False,
            },
        },
    }

    def __init__(self, options: Options) -> None:
        self.timeout_s = options.command_timeout_s
        self.limit = options.output_limit
        self.environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
        self.open: list[int] = []
        """Outputs that a background process still holds. They stay open, so that writing does not kill it."""

    def run(self, command: str) -> str:
        pid, source = self.start(command)
        output = Output(self.limit)
        try:
            end = self.follow(pid, source, output)
        except BaseException:
            kill(pid)
            raise
        text = output.text()
        if text and not text.endswith("\n"):
            text += "\n"
        return f"{text}[{end}]"

    def start(self, command: str) -> tuple[int, int]:
        """Start the command in a process group of its own; get its id and where its output is read."""
        from signal import SIGPIPE

        source, sink = os.pipe()
        os.set_blocking(source, False)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, sink, 1),
            (os.POSIX_SPAWN_DUP2, sink, 2),
        ]
        rest = ["-c", "--", command]
        how: Json = {"file_actions": actions, "setpgroup": 0, "setsigdef": [SIGPIPE]}
        try:
            try:
                return os.posix_spawnp("bash", ["bash", *rest], self.environment, **how), source
            except FileNotFoundError:
                return os.posix_spawnp("sh", ["sh", *rest], self.environment, **how), source
        except (OSError, ValueError) as error:  # too long, a NUL in it, a lone surrogate
            os.close(source)
            raise ToolCallError(f"the command could not be started: {error}") from None
        finally:
            os.close(sink)

    def follow(self, pid: int, source: int, output: Output) -> str:
        """Read output until the command has ended, or its time is over and it is killed; get how it ended."""
        from select import POLLIN, poll
        from time import monotonic

        began, wait_s, waiting = monotonic(), 0.001, poll()
        for each in (source, *self.open):
            waiting.register(each, POLLIN)
        self.open.append(source)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            left_s = began + self.timeout_s - monotonic()
            if ended or left_s <= 0:
                break
            ready = waiting.poll(1000 * min(wait_s, left_s))
            wait_s = 0.001 if ready else min(2 * wait_s, LONGEST_WAIT_S)
            for each, _ in ready:
                if not self.read(each, output if each == source else None):
                    waiting.unregister(each)
        if not ended:
            kill(pid)
        self.drain(source, output)
        return (
            ending(status) if ended else f"time limit of {self.timeout_s:g} s reached; the command was killed"
        )

    def read(self, source: int, output: Output | None) -> bool:
        """Read once; False when there is no more to come. Without an output, what was read is dropped."""
        data = os.read(source, 1 << 16)
        if output is not None:
            output.add(data)
        if not data:
            self.open.remove(source)
            os.close(source)
        return bool(data)

    def drain(self, source: int, output: Output) -> None:
        """Read what is there, and no more than a pipe holds: a background process may write for ever."""
        try:
            most = output.size + (1 << 20)
            while source in self.open and output.size < most:
                self.read(source, output)
        except BlockingIOError:
            pass


def ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def kill(pid: int) -> None:
    """End a command and its process group at once."""
    from signal import SIGKILL

    try:
        os.killpg(pid, SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it has ended, and was waited for


class Output:
    """The beginning and the end of what was written, and how much it was."""

    def __init__(self, limit: int) -> None:
        self.size, self.head, self.tail = 0, b"", b""
        self.head_limit = limit // 2
        self.tail_limit = limit - self.head_limit

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self.head_limit - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-self.tail_limit :]

    def text(self) -> str:
        missing = self.size - len(self.head) - len(self.tail)
        note = f"\n[... {missing} of {self.size} bytes left out ...]\n".encode() if missing else b""
        return (self.head + note + self.tail).decode("utf-8", "replace").replace("\0", "\ufffd")


TOOLS = {"bash": Bash}


# HTTP. The standard library's client takes longer to import than a whole run takes, so it serves https alone.


def post(options: Options, body: bytes) -> bytes:
    """Send one model call and get the body of its answer. Raises ModelCallError."""
    scheme, _, rest = options.url.partition("://")
    authority, slash, path = rest.partition("/")
    path = f"{slash}{path}/chat/completions"
    headers = {"Host": authority, "Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"Content-Length": str(len(body)), "Connection": "close"}
    if options.key:
        headers["Authorization"] = f"Bearer {options.key}"
    try:
        exchange = exchange_encrypted if scheme == "https" else exchange_plain
        status, data = exchange(authority, path, headers, body)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelCallError(f"no answer from {options.url}: {reason}") from None
    if not 200 <= status < 300:
        raise ModelCallError(f"HTTP {status}: {error_message(data)}")
    return data


def exchange_encrypted(authority: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    from http.client import HTTPException, HTTPSConnection

    connection = HTTPSConnection(authority)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except HTTPException as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()


def exchange_plain(authority: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    head = (
        f"POST {path} HTTP/1.1\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        + "\r\n"
    )
    with socket.create_connection(address(authority)) as connection:
        try:  # noqa: SIM105
            connection.sendall(head.encode("utf-8", "surrogateescape") + body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the endpoint did not want to read all of it: its answer says why
        with connection.makefile("rb") as reply:
            return read_reply(reply)


def address(authority: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, "80"
    return host.strip("[]"), int(port)


def read_reply(reply: BinaryIO) -> tuple[int, bytes]:
    status = 0
    while status < 200:  # 1xx announces another
        status, headers = read_head(reply)
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        return status, read_chunks(reply)
    if b"content-length" in headers:
        return status, read_exactly(reply, int(headers[b"content-length"]))
    return status, reply.read()


def read_head(reply: BinaryIO) -> tuple[int, dict[bytes, bytes]]:
    line = reply.readline(LONGEST_LINE)
    if not line:
        raise ValueError("the connection was closed before the answer")
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"the answer is no HTTP: {excerpt(line)}")
    headers = {}
    while (line := reply.readline(LONGEST_LINE)) not in (b"\r\n", b"\n"):
        if not line:
            raise ValueError("the connection was closed within the headers of the answer")
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return int(rest[:3]), headers


def read_chunks(reply: BinaryIO) -> bytes:
    data = b""
    while size := read_size(reply.readline(LONGEST_LINE)):
        data += read_exactly(reply, size)
        reply.readline(LONGEST_LINE)
    return data


def read_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ValueError("the connection was closed within the answer") from None


def read_exactly(reply: BinaryIO, size: int) -> bytes:
    data = reply.read(size)
    if len(data) < size:
        raise ValueError(f"the connection was closed after {len(data)} of {size} bytes of the answer")
    return data


def error_message(data: bytes) -> str:
    """Get an endpoint's error in its own words, wherever it put them."""
    try:
        body = json.loads(data)
        error = body.get("error") or body
        found = error if isinstance(error, str) else error.get("message") or error.get("detail")
        return found if isinstance(found, str) else excerpt(data)
    except (ValueError, RecursionError, AttributeError):
        return excerpt(data)


def excerpt(data: bytes) -> str:
    text = data[:1000].decode("utf-8", "replace").strip()
    return " ".join(text.split())[:300] or "(empty)"


if __name__ == "__main__":
    os._exit(
        main(sys.argv[1:])
    )  # all is written: taking the interpreter down would cost more than the whole run
