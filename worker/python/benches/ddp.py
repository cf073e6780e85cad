"""Steps of 25 million parameters in one group, beside DistributedDataParallel over Gloo, in turn; with `--sharded 1`
those of an island, beside plain FSDP2.

Wall time of a step, processor time of all processes, servers among them, and memory that the kernel gave them afresh.
What a rank sleeps counts as processor time, for it stands for computation.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import BENCHES, Run, arguments, core_seconds, fresh_bytes, told

options = arguments(
    ranks=(2, "ranks of the group"),
    pairs=(5, "pairs of runs"),
    steps=(20, "steps that are measured"),
    pace=(1.0, "seconds of computation of a step"),
    overlap=(0, "1: exchanges run behind the next step"),
    sharded=(0, "1: the model is sharded over the ranks"),
    scatter=(0, "1: exchange.reduce = \"scatter\""),
)
OURS, PLAIN = ("island", "fsdp") if options.sharded else ("tradewind", "ddp")
#: Steps before the measured ones.
WARM = 3
SCRIPT = str(BENCHES / "wide.py")
os.environ.update(PACE=str(options.pace), STEPS=str(WARM + options.steps + 2))


def tradewind() -> tuple[float, float, float]:
    """Seconds, core-seconds and fresh megabytes a step."""
    steps = WARM + options.steps + 2
    keys = {"cluster.groups": [options.ranks], "train.samples": 2 * options.ranks * steps}
    keys["train.overlap"] = options.overlap
    if options.scatter:
        keys["exchange.reduce"] = "scatter"
    run = Run(options.programs, BENCHES / "wide.toml", keys, [SCRIPT, OURS])
    with run.going_on():
        run.waits_for(WARM)
        pids = run.pids()
        return _between(pids, lambda: run.waits_for(WARM + options.steps))


def ddp() -> tuple[float, float, float]:
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
                    [sys.executable, SCRIPT, PLAIN],
                    env={**os.environ, **world, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=first if rank == 0 else subprocess.DEVNULL,
                )
                for rank in range(options.ranks)
            ]

        def waits_for(step: int) -> None:
            while len(told.read_text().splitlines()) <= step:
                if any(rank.poll() for rank in ranks):
                    raise SystemExit(f"a rank of {PLAIN} has failed")
                time.sleep(0.02)

        waits_for(WARM)
        measured = _between([rank.pid for rank in ranks], lambda: waits_for(WARM + options.steps))
        for rank in ranks:
            rank.wait()
        return measured


def _between(pids: list[int], wait) -> tuple[float, float, float]:
    begin, used, fresh = time.perf_counter(), core_seconds(pids), fresh_bytes(pids)
    wait()
    wall, used, fresh = time.perf_counter() - begin, core_seconds(pids) - used, fresh_bytes(pids) - fresh
    return wall / options.steps, used / options.steps + options.pace * options.ranks, fresh / options.steps / 1e6


pairs = [(tradewind(), ddp()) for _ in range(options.pairs)]
for at, what in enumerate(("wall", "core-seconds", "fresh megabytes")):
    told(
        f"{what} of a step, {options.ranks} ranks, over {PLAIN}",
        [ours[at] / plain[at] for ours, plain in pairs],
        **{OURS: [ours[at] for ours, _ in pairs], PLAIN: [plain[at] for _, plain in pairs]},
    )
