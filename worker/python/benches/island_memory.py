"""The most memory that a rank of an island has, beside the bytes of its part of model and gradient: one that trains, and
one that evaluates and has its part of the model written.

Of 100 million parameters in 64 layers, in an island of four.
"""

import os
import tempfile
from pathlib import Path

from common import BENCHES, Run, arguments

options = arguments(
    ranks=(4, "ranks of the island"),
    layers=(64, "of 1.56 million parameters"),
    steps=(5, "steps"),
)
#: `exchange.bucket_bytes`, as it is.
BUCKET_BYTES = 1 << 20
WIDTH = 1250
KINDS = "training", "evaluation"

with tempfile.TemporaryDirectory() as folder:
    os.environ.update(MEMORY=folder, WIDTH=str(WIDTH), LAYERS=str(options.layers), PACE="0", STEPS="0")
    keys = {"cluster.groups": [options.ranks], "train.samples": 2 * options.ranks * options.steps}
    Run(options.programs, BENCHES / "wide.toml", keys, [str(BENCHES / "wide.py"), "island"]).to_its_end()
    peaks = {kind: [int(path.read_text()) for path in Path(folder).glob(f"{kind}-*")] for kind in KINDS}
parameters = options.layers * (WIDTH * WIDTH + WIDTH)
part = 8 * parameters / options.ranks + BUCKET_BYTES
for kind, of_ranks in peaks.items():
    if len(of_ranks) != options.ranks:
        raise SystemExit(f"{len(of_ranks)} of {options.ranks} ranks have told of their {kind}")
    print(
        f"peak memory of a rank in {kind}, {parameters / 1e6:.0f} M parameters, island of {options.ranks}: "
        f"{max(of_ranks) / 1e6:.0f} MB, {max(of_ranks) / part:.2f} of its part of model and gradient and one bucket "
        f"({part / 1e6:.0f} MB)"
    )
