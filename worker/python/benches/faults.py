"""Twenty faults in five minutes on the GPT example: what was acknowledged is kept, and samples are used by the rules.

`tradewind chaos` kills and stops ranks and servers as faults.txt says, one after the other, and checks what was
acknowledged. Beside it the ranks write down the samples of each step. In all epochs but the last two, of which a part
may still be to come (a coordinator that follows another one deals of the next epoch until it knows what was dealt),

- a sample is lost if no step has used it;
- a sample is doubled against the rules if two steps have used it that were both applied, and the group that used it
  first went on without a break: only what a broken group had not finished is dealt again.

An epoch's last samples, which are fewer than a step of a group, are left out, by the rules.
"""

import json
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

from common import BENCHES, EXAMPLES, Run, arguments

sys.path.insert(0, str(EXAMPLES))
import gpt

options = arguments(minutes=(5.0, "minutes"), sets=(1, "sets that the data are cut into, as where files are staged"))
lives = tempfile.TemporaryDirectory()
command = json.dumps(["python", str(BENCHES / "gpt_watched.py"), lives.name])
BATCH = 4
keys = {
    "cluster.servers": 3,
    "cluster.groups": [2, 2, 2],
    "model.command": command,
    "script.width": 64,
    "script.depth": 2,
    "train.consistency": "async",
    "train.batch": BATCH,
    "loader.sets": options.sets,
    "liveness.lease_ms": 2000,
    "liveness.heartbeat_ms": 400,
    "liveness.patience_ms": 20000,
    "pace.step_seconds": 0.25,
    # Several blocks for every server.
    "exchange.block_bytes": 8192,
}
run = Run(options.programs, EXAMPLES / "gpt.toml", keys)
with run.going_on("chaos", "--script", str(BENCHES / "faults.txt"), "--minutes", str(options.minutes)) as process:
    for line in process.stdout:
        print(line, end="")
report = json.loads((run.folder / "chaos.json").read_text())



@dataclass(frozen=True)
class Life:
    """An incarnation of a group as one process of a rank has seen it."""

    process: str
    number: int


@dataclass
class Use:
    """A step that has used a sample."""

    life: Life
    #: `None` of the last step of a rank that was killed: nobody knows.
    applied: bool | None


used: dict[int, dict[int, list[Use]]] = defaultdict(lambda: defaultdict(list))
#: By rank.
last: dict[str, Life] = {}
for file in sorted(Path(lives.name).iterdir(), key=lambda file: file.stat().st_mtime):
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for step, after in zip_longest(lines[::2], lines[1::2], fillvalue={"applied": None}):
        life = Life(file.name, step["life"])
        last[file.name.rpartition("-")[0]] = life
        for sample in step["samples"]:
            used[step["epoch"]][sample].append(Use(life, after["applied"]))

data, _ = gpt.reference(128)
whole = sorted(used)[:-2]
# What makes no step of a group at the end of an epoch, or of a set in it, is left out.
ends = [len(data) * number // options.sets for number in range(options.sets + 1)]
left_out = sum((end - begin) % (2 * BATCH) for begin, end in pairwise(ends))
lost = again = doubled = 0
for epoch in whole:
    have = sum(any(use.applied is not False for use in uses) for uses in used[epoch].values())
    lost += max(0, len(data) - left_out - have)
    for uses in used[epoch].values():
        applied = [use.life for use in uses if use.applied]
        going_on = sum(life in last.values() for life in applied)
        again += len(applied) > 1
        doubled += len(applied) > 1 and (going_on > 1 or len(set(applied)) < len(applied))
faults, restored = sum(report["faults"].values()), len(report["restored"])
print(f"{faults} faults; violations: {report['violations'] or 'none'}; shards restored from snapshots: {restored}")
print(
    f"{len(whole)} epochs of {len(data)} samples: lost {lost}, doubled against the rules {doubled}, "
    f"dealt again after a break {again}"
)
