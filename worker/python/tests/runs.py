"""How tests run a script: as the ranks of a launched run, or as the only rank.

A script is a function of a file of scripts, such as `scripts.py`. It tells the test what it does in files of the run's
folder, which it finds as `TOLD` in its environment.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from forks import PATIENCE, command_of

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
COMMAND = ROOT / "target/debug/tradewind"

#: Keys of a run's file, by their whole names.
Keys = Mapping[str, object]
DEFAULTS: Keys = {
    "run.name": "script",
    "cluster.servers": 1,
    "cluster.groups": [1],
    "train.samples": 800,
    "train.batch": 8,
    "train.consistency": "sync",
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.0,
    "optimizer.learning_rate": 0.05,
}
ASYNC: Keys = {"train.consistency": "async"}
DILOCO: Keys = {
    "local.algorithm": "diloco",
    "local.steps": 4,
    "optimizer.name": "outer-nesterov",
    "optimizer.learning_rate": 0.7,
    "optimizer.momentum": 0.9,
    "script.attach": True,
}


def text_of(keys: Keys) -> str:
    """A run's file."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**DEFAULTS, **keys}.items())


class Told:
    """A folder with a run's file, where its scripts tell what they do."""

    def __init__(self, keys: Keys) -> None:
        self._temporary = tempfile.TemporaryDirectory()
        self.told = Path(self._temporary.name)
        self.file = self.told / "run.toml"
        self.file.write_text(text_of(keys))
        self.environment = {"TOLD": str(self.told)}

    def lines(self, name: str) -> list[Any]:
        path = self.told / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        self._temporary.cleanup()


class Run(Told):
    """A launched run."""

    def __init__(self, command: list[str], keys: Keys) -> None:
        super().__init__(keys)
        self._command = command
        self._begin()

    def _begin(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "run", self.file, "--out", self.told / "run", *arguments, "--", *self._command],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def resume(self, *arguments: str) -> None:
        """Goes on in the same folder, once it has ended."""
        self.process.stdout.close()
        self._begin("--resume", *arguments)

    def end(self) -> tuple[int, str]:
        """The status and what was printed."""
        text, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, text

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits while the run goes on."""
        deadline = time.monotonic() + PATIENCE
        while True:
            over = self.process.poll() is not None or time.monotonic() > deadline
            if holds():
                return
            if over:
                self.process.kill()
                raise AssertionError(self.end()[1] + self.logs())
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.told / f"run/logs/{name}.log").read_text()

    def logs(self) -> str:
        """What the ranks have printed."""
        return "".join(path.read_text() for path in sorted(self.told.glob("run/logs/group-*.log")))

    def json(self, name: str) -> dict[str, Any]:
        return json.loads((self.told / "run" / name).read_text())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        super().close()


class Alone(Told):
    """A script that has run as the only rank: `tradewind.join(os.environ["RUN"])` has its servers in its process.

    Attributes:
        status: That of its process.
        text: What it has printed.
    """

    def __init__(self, command: list[str], keys: Keys) -> None:
        super().__init__(keys)
        self.environment["RUN"] = str(self.file)
        ended = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.status, self.text = ended.returncode, ended.stdout


_Run = TypeVar("_Run", Run, Alone)


class RunCase(unittest.TestCase):
    """Tests with runs of scripts."""

    #: The file that has the scripts.
    scripts = "scripts.py"

    def launch(
        self, script: str, keys: Keys = {}, *, groups: Sequence[int] = (1,), samples: int = 800, forked: bool = True
    ) -> Run:
        """`forked = False` is for what torch does when it is imported: each rank does that itself."""
        command = command_of(self.scripts, script) if forked else [sys.executable, str(FOLDER / self.scripts), script]
        return self._begin(Run(command, {"cluster.groups": groups, "train.samples": samples, **keys}))

    def alone(self, script: str, keys: Keys = {}, *, samples: int = 800) -> Alone:
        return self._begin(Alone(command_of(self.scripts, script), {"train.samples": samples, **keys}))

    def _begin(self, run: _Run) -> _Run:
        self.addCleanup(run.close)
        return run

    def completes(self, run: Run | Alone) -> str:
        """What it has printed."""
        status, text = (run.status, run.text) if isinstance(run, Alone) else run.end()
        self.assertEqual(status, 0, text)
        return text

    def refused(self, script: str, words: str, keys: Keys = {}, *, of: Sequence[int] | None = None) -> None:
        """A script that is alone fails with these words; or a rank of a launched run of such groups, which is
        started again and again.
        """
        if of is None:
            run = self.alone(script, keys)
            self.assertIn(words, run.text)
            self.assertEqual(run.status, 1)
        else:
            run = self.launch(script, keys, groups=of)
            run.until(lambda: words in run.logs())
            run.close()
