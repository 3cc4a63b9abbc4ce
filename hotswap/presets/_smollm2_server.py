"""The embedded model's server: llama.cpp's own, in a process of its own.

    python -I -S _smollm2_server.py --site SITE --weights FILE.gguf --context 2048

One line on standard input is the key that calls must carry. When calls are answered, one line of JSON is
written, `{"url": "http://127.0.0.1:PORT"}`, with a port that was free. The process ends when its standard
input does, and so with whoever started it, however that ended. Its log is standard error.

It is a program: it imports nothing of hotswap.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

PROMPT_THREADS = 2
"""Reading a prompt gains by a second core; decoding does not, and would keep it from everyone else."""
ANSWER_SHARE = 4
"""An answer is cut at this part of the context where a call sets no limit: small models repeat themselves."""
CONNECTIONS = 64
"""Calls that are listened to at one time: the server has a thread for each, and they wait for the slot."""


def main() -> None:
    given = arguments()
    key = sys.stdin.readline().strip()
    os.environ["OMP_WAIT_POLICY"] = (
        "PASSIVE"  # read when the library is loaded: idle threads sleep instead of spin
    )
    sys.path.insert(0, given.site)
    library = importlib.import_module("xllamacpp")
    server = library.Server(parameters(library, given, key))  # returns when the model is loaded
    check_health(server.listening_address, key)
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.read()
    os._exit(0)  # at once: a call that is being answered has nobody to answer to


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--context", required=True, type=int)
    return parser.parse_args()


def parameters(library: Any, given: argparse.Namespace, key: str) -> Any:
    """Get the server's settings.

    One slot: more of them give no more tokens a second, take 47 MB each for 2,048 tokens of context, and let
    an answer depend on which other calls happen to be decoded beside it.
    """
    chosen = library.CommonParams()
    chosen.model.path = given.weights
    chosen.model_alias = {"smollm2"}
    chosen.n_ctx = given.context
    chosen.n_predict = given.context // ANSWER_SHARE
    chosen.n_parallel = 1
    chosen.cpuparams.n_threads = 1
    chosen.cpuparams_batch.n_threads = min(PROMPT_THREADS, os.cpu_count() or 1)
    chosen.n_gpu_layers = 0  # the same numbers with and without a graphics card
    chosen.fit_params = False
    chosen.cache_ram_mib = 0
    chosen.n_threads_http = CONNECTIONS
    chosen.api_keys = [key]
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    chosen.ui = False
    return chosen


def check_health(url: str, key: str) -> None:
    """Ask the server whether it is well. Raises ConnectionError where it is not."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        connection.sendall(f"GET /health HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        status = connection.makefile("rb").readline()
    if b" 200" not in status:
        raise ConnectionError(f"the server is not well: {status!r}")


if __name__ == "__main__":
    main()
