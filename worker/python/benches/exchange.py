"""An exchange of 100 MB from a tensor beside `tradewind bench exchange`, in turn: one client and one server."""

import json
import os
import statistics
import subprocess

from common import BENCHES, Run, arguments, told

options = arguments(pairs=(7, "pairs of runs"), steps=(20, "exchanges of a run"))
GB = 0.2
#: Exchanges before the measured ones.
WARM = 3
os.environ.update(PACE="0", STEPS="0")


def script() -> float:
    """GB a second, both ways."""
    samples = 2 * (WARM + options.steps)
    # Blocks as the benchmark's.
    keys = {"cluster.groups": [1], "train.samples": samples, "exchange.block_bytes": 262144}
    run = Run(options.programs, BENCHES / "wide.toml", keys, [str(BENCHES / "wide.py"), "tradewind"])
    run.to_its_end()
    return GB / statistics.median(step["exchange_seconds"] for step in run.steps()[WARM:])


def bench() -> float:
    words = ["bench", "exchange", "--no-floor", "--json", "--runs", "3"]
    return json.loads(subprocess.check_output([options.programs / "tradewind", *words]))["gb_per_s"]["exchange"]


pairs = [(script(), bench()) for _ in range(options.pairs)]
told(
    "rate of an exchange of 100 MB from a tensor, over tradewind bench exchange",
    [ours / plain for ours, plain in pairs],
    script=[ours for ours, _ in pairs],
    bench=[plain for _, plain in pairs],
)
