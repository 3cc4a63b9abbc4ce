"""Where the command begins: Ctrl-C is heard from here on, while all the rest is still being imported."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command line of this process and get its exit code."""
    try:
        from hotswap.cli.main import main as command

        code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: an interrupt has nothing left to end
    return code


if __name__ == "__main__":
    sys.exit(main())
