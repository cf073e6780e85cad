"""Scripts as forks of a process that has imported them, so that all ranks of a file of tests import torch once.

The import takes longer than most scripts do. The launcher starts `forked.py` as a rank; the script itself runs in a fork.
"""

import contextlib
import faulthandler
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

#: Seconds after which a test gives up; a script says then where it is, and is killed.
PATIENCE = 300


def command_of(scripts: str, script: str) -> list[str]:
    """A command that runs a function of a file of scripts, until the tests of this file are over."""
    return [sys.executable, "-IS", str(Path(__file__).with_name("forked.py")), _forking(scripts), script]


@functools.cache
def _forking(scripts: str) -> str:
    """Where a process listens that has imported these scripts."""
    folder = tempfile.TemporaryDirectory()
    address = f"{folder.name}/{scripts}"
    listens = socket.socket(socket.AF_UNIX)
    listens.bind(address)
    listens.listen(64)
    process = subprocess.Popen(
        [sys.executable, __file__, scripts, str(listens.fileno())],
        pass_fds=[listens.fileno()],
        # It has no threads, which would be missing in its forks.
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
    )
    listens.close()

    def close() -> None:
        process.stdin.close()
        process.wait()
        folder.cleanup()
        _forking.cache_clear()

    unittest.addModuleCleanup(close)
    return address


def _fork(scripts: str, listens: socket.socket) -> None:
    """Forks for each that asks, until its input ends."""
    # Where the tests run in the background, it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = os.path.dirname(__file__)
    module = importlib.import_module(Path(scripts).stem)
    watching = set()
    while listens in select.select([listens, sys.stdin], [], [])[0]:
        asked, _ = listens.accept()
        watch = os.fork()
        if watch == 0:
            break
        asked.close()
        watching = {each for each in watching | {watch} if os.waitpid(each, os.WNOHANG) == (0, 0)}
    else:
        return
    listens.close()
    with asked:
        _, files, _, _ = socket.recv_fds(asked, 1, 3)
        request = json.loads(asked.makefile().readline())
        child = os.fork()
        if child != 0:
            _watch(child, asked)
            os._exit(0)
    _become(request, files)
    sys.argv = [os.path.join(sys.path[0], scripts), request["script"]]
    getattr(module, request["script"])()


def _watch(child: int, asked: socket.socket) -> None:
    """Tells who has asked for it what process it is, and how it ended; kills it when that one is gone."""
    # Ctrl-C reaches this process as well. It goes on, so that the fork is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        asked.sendall(f"{child}\n".encode())
    ends = os.pidfd_open(child)
    if ends not in select.select([ends, asked], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        asked.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Takes over what the process has that asked."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # Who ends that one's processes ends this one, too.
    os.setpgid(0, request["group"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(PATIENCE)


if __name__ == "__main__":
    _fork(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
