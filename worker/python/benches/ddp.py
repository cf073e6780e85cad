"""Steps of 25 million parameters in one group, beside DistributedDataParallel over Gloo, in turn.

Wall time of a step, and processor time of all processes, servers among them. What a rank sleeps counts as processor
time, for it stands for computation.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import BENCHES, Run, arguments, core_seconds, told

options = arguments(
    ranks=(2, "ranks of the group"),
    pairs=(5, "pairs of runs"),
    steps=(20, "steps that are measured"),
    pace=(1.0, "seconds of computation of a step"),
    overlap=(0, "1: exchanges run behind the next step"),
)
#: Steps before the measured ones.
WARM = 3
SCRIPT = str(BENCHES / "wide.py")
os.environ.update(PACE=str(options.pace), STEPS=str(WARM + options.steps + 2))


def tradewind() -> tuple[float, float]:
    """Seconds and core-seconds a step."""
    steps = WARM + options.steps + 2
    keys = {"cluster.groups": [options.ranks], "train.samples": 2 * options.ranks * steps}
    keys["train.overlap"] = options.overlap
    run = Run(options.programs, BENCHES / "wide.toml", keys, [SCRIPT, "tradewind"])
    with run.going_on():
        run.waits_for(WARM)
        pids = run.pids()
        return _between(pids, lambda: run.waits_for(WARM + options.steps))


def ddp() -> tuple[float, float]:
    """The same of plain PyTorch."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        world = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        told = Path(folder) / "steps"
        with told.open("w") as first:
            ranks = [
                subprocess.Popen(
                    [sys.executable, SCRIPT, "ddp"],
                    env={**os.environ, **world, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=first if rank == 0 else subprocess.DEVNULL,
                )
                for rank in range(options.ranks)
            ]

        def waits_for(step: int) -> None:
            while len(told.read_text().splitlines()) <= step:
                if any(rank.poll() for rank in ranks):
                    raise SystemExit("a rank of DDP has failed")
                time.sleep(0.02)

        waits_for(WARM)
        measured = _between([rank.pid for rank in ranks], lambda: waits_for(WARM + options.steps))
        for rank in ranks:
            rank.wait()
        return measured


def _between(pids: list[int], wait) -> tuple[float, float]:
    begin, used = time.perf_counter(), core_seconds(pids)
    wait()
    wall, used = time.perf_counter() - begin, core_seconds(pids) - used
    return wall / options.steps, used / options.steps + options.pace * options.ranks


pairs = [(tradewind(), ddp()) for _ in range(options.pairs)]
for at, what in enumerate(("wall", "core-seconds")):
    told(
        f"{what} of a step, {options.ranks} ranks, over DDP",
        [ours[at] / plain[at] for ours, plain in pairs],
        tradewind=[ours[at] for ours, _ in pairs],
        DDP=[plain[at] for _, plain in pairs],
    )
