"""What the measurements share: runs of Tradewind whose steps and processor time are read while they go on."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BENCHES = Path(__file__).resolve().parent
EXAMPLES = ROOT / "examples/pytorch"
#: No step takes as long, seconds.
PATIENCE = 300.0


def arguments(**more: tuple[Any, str]) -> argparse.Namespace:
    """Those of a measurement: `name=(default, help)`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of tradewind")
    for name, (default, text) in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} [{default}]")
    return parser.parse_args()


@dataclass
class Run:
    """A run in a folder of its own."""

    programs: Path
    file: Path
    keys: dict[str, Any]
    #: Words that start a rank, if it is a script's.
    script: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._enough = False
        self._read = 0
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name) / "run"

    @contextmanager
    def going_on(self, command: str = "run", *words: str) -> Iterator[subprocess.Popen[str]]:
        """While it does. Where it fails, the ends of its logs are in the error."""
        sets = [f"--set={key}={value}" for key, value in self.keys.items()]
        script = ["--", sys.executable, *self.script] if self.script else []
        call = [self.programs / "tradewind", command, self.file, "--out", self.folder, *words, *sets, *script]
        process = subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
            told, _ = process.communicate()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0 and not self._enough:
            logs = [log.read_text()[-2000:] for log in sorted(self.folder.glob("logs/*rank*.log"))]
            raise SystemExit("\n".join([told, *logs]))

    def to_its_end(self) -> None:
        with self.going_on():
            pass

    def enough(self, process: "subprocess.Popen[str]") -> None:
        """It is ended before its budget is applied."""
        self._enough = True
        process.terminate()

    def export(self) -> Path:
        """The values that it ended with."""
        model = self.folder / "model.safetensors"
        call = [self.programs / "tradewind", "export", self.folder, "--out", model]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
        return model

    def steps(self) -> list[dict[str, Any]]:
        """The lines of its metrics."""
        path = self.folder / "metrics.jsonl"
        # The last line may be about to be written.
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def fresh_steps(self) -> list[dict[str, Any]]:
        """The lines of its metrics that have come since this was last asked."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        with path.open() as file:
            file.seek(self._read)
            whole = file.read().rpartition("\n")[0]
        self._read += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]

    def waits_for(self, clock: int) -> None:
        """Until group 0 has finished this clock."""
        end = time.monotonic() + PATIENCE
        while not any(step["group"] == 0 and step["clock"] >= clock for step in self.steps()):
            if time.monotonic() > end:
                raise SystemExit(f"clock {clock} does not come")
            time.sleep(0.02)

    def pid_of(self, group: int, rank: int) -> int:
        """The process that is this rank now."""
        pids = [each["pid"] for each in self.processes() if (each.get("group"), each.get("group_rank")) == (group, rank)]
        return pids[0]

    def pids(self) -> list[int]:
        """Servers and ranks."""
        return [process["pid"] for process in self.processes()]

    def processes(self) -> list[dict[str, Any]]:
        """Servers and ranks, with their addresses."""
        found: list[dict[str, Any]] = json.loads((self.folder / "processes.json").read_text())
        return found

    def events(self) -> list[dict[str, Any]]:
        """What has been told until now."""
        whole = (self.folder / "events.jsonl").read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def seconds_a_step(self, first: int) -> float:
        """Median time from one step of group 0 to the next, without the first ones."""
        walls = [step["wall"] for step in self.steps() if step["group"] == 0][first:]
        return statistics.median(after - before for before, after in zip(walls, walls[1:]))


def demo(
    stack: ExitStack, options: argparse.Namespace, keys: Mapping[str, object]
) -> tuple[Run, list[int]]:
    """The demo without an end, with copies and these keys, past `warm` steps, until the stack ends: and all its processes."""
    keys = {"servers.replication": 2, "train.samples": 10**9, "pace.step_seconds": options.pace, **keys}
    run = Run(options.programs, ROOT / "deploy/configs/climate-forecast.toml", keys)
    process = stack.enter_context(run.going_on())
    stack.callback(run.enough, process)
    run.waits_for(options.warm)
    return run, [process.pid, *run.pids()]


def core_seconds(pids: list[int]) -> float:
    """Processor time that processes have used; the kernel tells it in steps of 10 ms."""
    return sum(int(fields[at]) for fields in _stats(pids) for at in (11, 12)) / os.sysconf("SC_CLK_TCK")


def pin(pids: list[int], core: int) -> None:
    """Lets processes, with all threads that they have and will start, compute on one core alone."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), {core})
            except ProcessLookupError:
                # A thread that has just ended.
                pass


def two_cores() -> list[int]:
    """Those that two runs beside each other have, one each: what else the machine does meets both alike."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two runs are measured beside each other, each on a core of its own: here is one core")
    return cores[:2]


def fresh_bytes(pids: list[int]) -> int:
    """Memory that the kernel has given to processes, page by page as they first touched it."""
    return sum(int(fields[7]) for fields in _stats(pids)) * os.sysconf("SC_PAGE_SIZE")


def _stats(pids: list[int]) -> list[list[str]]:
    """Of each process the fields of its `stat` behind its name (proc(5))."""
    return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]


def told(what: str, ratios: list[float], **medians: list[float]) -> None:
    """A line: the median of the pairs' ratios and their spread (interquartile range over median), then medians."""
    spread = 0.0
    if len(ratios) > 1:
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        spread = (high - low) / statistics.median(ratios)
    beside = ", ".join(f"{name} {statistics.median(values):.4g}" for name, values in medians.items())
    print(f"{what}: {statistics.median(ratios):.3f} (spread {100 * spread:.1f} %, {len(ratios)} pairs); {beside}")
    sys.stdout.flush()
