"""A harness whose program behaves badly, in one way at a time: `-H tests/_kit/misbehaving.py,mode=killed`."""

from hotswap import Harness, Job, Launch

PROGRAM = b"""
import json, os, signal, subprocess, sys, time, urllib.request

def call(text="hi"):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["KEY"]}
    request = urllib.request.Request(os.environ["BASE_URL"] + "/chat/completions", body, headers)
    try:
        return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return error.read().decode()

mode = sys.argv[1]
if mode == "silent_exit":
    sys.exit(0)
if mode == "usage_error":
    print("error: unexpected argument", file=sys.stderr)
    sys.exit(2)
if mode == "says_and_hangs":
    open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
if mode in ("hangs_before", "says_and_hangs"):
    time.sleep(600)
if mode == "reads_stdin":
    print("extra bytes:", len(sys.stdin.read()), file=sys.stderr)
if mode == "floods":
    for _ in range(200):
        os.write(1, b"caf\\xe9 \\xff\\x00 \\x1b[31mred\\r" * 5000)
if mode == "leaves_a_daemon":
    code = "import os, time; os.setsid(); open(%r, 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen(["env", "-i", sys.executable, "-c", code % os.environ["PID_FILE"]])
    while not (os.path.exists(os.environ["PID_FILE"]) and open(os.environ["PID_FILE"]).read()):
        time.sleep(0.01)
if mode == "goes_on":
    for number in range(10_000):
        call(str(number))
        time.sleep(0.02)
if mode == "ignores_term":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "tells_its_key":
    open(os.environ["PID_FILE"], "w").write(os.environ["BASE_URL"] + " " + os.environ["KEY"])
if mode == "leaves_a_call" and not os.fork():
    call("late")
call()
if mode == "exit_1_after_answer":
    print("something at the end went wrong", file=sys.stderr)
    sys.exit(1)
if mode == "error_word":
    print("ERROR cache manager: benign", file=sys.stderr)
if mode == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if mode in ("never_ends", "ignores_term"):
    time.sleep(600)
"""


class Misbehaving(Harness):
    """A program that behaves badly."""

    mode: str
    """Which way."""
    pid_file: str = ""
    """Where a process that it leaves behind writes its id."""

    def launch(self, job: Job) -> Launch:
        env = {"BASE_URL": f"{job.endpoint.url}/v1", "KEY": job.endpoint.key, "PID_FILE": self.pid_file}
        return Launch(argv=("python3", "-c", PROGRAM.decode(), self.mode), env=env)
