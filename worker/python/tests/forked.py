"""`python -IS forked.py ADDRESS SCRIPT`: a script, as a fork of the process that listens there (forks.py).

This process imports nothing that takes long. It asks for a fork with its own folder, environment, files and process
group. It passes SIGINT and SIGTERM on, and ends with the fork's status. When it is killed, so is the fork.
"""

import contextlib
import json
import os
import signal
import socket
import sys


def ask(address: str, script: str) -> int:
    """The status of a fork; that of a signal is negative."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        request = {"script": script, "folder": os.getcwd(), "environment": dict(os.environ), "group": os.getpgrp()}
        socket.send_fds(asked, [b"\n"], [0, 1, 2])
        asked.sendall(json.dumps(request).encode() + b"\n")
        answers = asked.makefile()
        child = answers.readline()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: pass_on(number, int(child)))
        status = answers.readline()
    if not status:
        raise SystemExit("the process that was to fork has ended")
    return int(status)


def pass_on(number: int, child: int) -> None:
    # It may have ended by itself.
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


if __name__ == "__main__":
    status = ask(*sys.argv[1:])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
