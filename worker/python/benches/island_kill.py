"""A rank of an island is killed, again and again, while another island and a rank with the whole model go on.

Told: how much longer than usual the longest step of the others took from the kill on until the island steps again, and
how long after the kill it does.
"""

import os
import signal
import statistics
import time
from itertools import pairwise

from common import BENCHES, PATIENCE, Run, arguments

options = arguments(
    kills=(5, "kills, one after the other"),
    pace=(0.25, "seconds of computation of a step"),
    width=(200, "of each of two layers"),
    calm=(6.0, "seconds between them"),
)
GROUPS = [2, 2, 1]
KILLED = 1
#: Samples that no run comes to.
ENOUGH = 10_000_000
os.environ.update(WIDTH=str(options.width), LAYERS="2", PACE=str(options.pace), STEPS="0")
run = Run(
    options.programs,
    BENCHES / "wide.toml",
    {"cluster.groups": GROUPS, "cluster.servers": 2, "train.samples": ENOUGH},
    [str(BENCHES / "wide.py"), "islands"],
)


def ends(group: int) -> list[float]:
    """When its steps have ended."""
    return [step["wall"] for step in run.steps() if step["group"] == group]


def steps_after(group: int, since: float) -> float:
    """When its first step after that has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        later = [wall for wall in ends(group) if wall > since]
        if later:
            return later[0]
        time.sleep(0.1)
    raise SystemExit(f"group {group} steps no more")


pauses, again = [], []
with run.going_on() as process:
    for group in range(len(GROUPS)):
        steps_after(group, 0.0)
    for kill in range(options.kills):
        time.sleep(options.calm)
        killed = time.time()
        os.kill(run.pid_of(KILLED, kill % GROUPS[KILLED]), signal.SIGKILL)
        # A step that it has had its part in may end a moment later.
        back = steps_after(KILLED, killed + options.pace)
        again.append(back - killed)
        longest = 0.0
        for group in set(range(len(GROUPS))) - {KILLED}:
            walls = ends(group)
            usual = statistics.median(after - first for first, after in pairwise(walls) if after < killed)
            hurt = [after - first for first, after in pairwise(walls) if after > killed and first < back]
            longest = max(longest, *(step - usual for step in hurt))
        pauses.append(longest)
    run.enough(process)
for what, of in (("others' longest pause", pauses), ("the island steps again after", again)):
    told = ", ".join(f"{seconds:.2f}" for seconds in of)
    print(f"{what}: median {statistics.median(of):.2f} s, longest {max(of):.2f} s ({told})")
