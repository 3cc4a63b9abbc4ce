"""The raw requests and answers of a rollout, byte for byte, in `exchanges/ROLLOUT.zst`.

A file is a row of zstd frames, each of them one record: a line of JSON, and the bytes that it speaks of. The first
record says what is recorded here (`About`), and one more does so for each further try of the rollout: what counts
is what follows the last of them. Every other record is an exchange, written when it is over:

    {"n": 3, "started": 1764519301.3, "method": "POST", "path": "/v1/responses", "query": "", "asked": [[NAME, VALUE]],
     "dialect": "responses", "call": 2, "agent": "main", "base": [2, 18120, 340], "body": 2210,
     "status": 200, "headers": [[NAME, VALUE]], "chunks": [[0.31, 120], [0.32, 88]],
     "cut": false, "translated": false, "fault": null, "verdict": {"tries": [[200, null]], "usage": {...}}}

`body` is how many bytes of the request follow the line. A program sends its whole conversation with every call:
where `base` is there, the request is the first bytes of exchange `base[0]`'s, so many as `base[1]` says, what
follows the line, and the last bytes of the same request, `base[2]` of them. The answer comes behind it, in the
pieces in which it was written: each has its seconds since `started`, and its length. `verdict` is what was made of a
call's answer (`hotswap.proxy.tape.Verdict`): tries, usage, the error, of which the program was told less.

similar.py    what two requests share, and where what is masked in one stands in the other
recorder.py   writing, one exchange at a time
recorded.py   reading
cassette.py   a whole run in one file
"""
