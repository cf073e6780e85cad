"""`python -IS forked.py ADDRESS SCRIPT`: a script, as a fork of the process that listens there (forks.py).

This process imports nothing that takes long. It asks for a fork with its own folder, environment, files and process
group, passes on what it is asked to end with, and ends as the fork does, which is killed when it is.
"""

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
        child = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(child, number))
        return int(answers.readline())


if __name__ == "__main__":
    status = ask(*sys.argv[1:])
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
