"""Reads what a run has written for TensorBoard with TensorBoard's own reader, and compares it with the run's records.

usage: check_tensorboard.py RUN, the folder of a run with telemetry.tensorboard = true and at most a thousand exchanges.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import (
    COMPRESSED_HISTOGRAMS,
    HISTOGRAMS,
    IMAGES,
    SCALARS,
    TENSORS,
    EventAccumulator,
)


def read(folder: Path) -> Any:
    """All events of a folder; 0 keeps all of a kind."""
    kept = {SCALARS: 0, HISTOGRAMS: 0, TENSORS: 0, IMAGES: 0, COMPRESSED_HISTOGRAMS: 0}
    return EventAccumulator(str(folder), size_guidance=kept).Reload()


def check(is_right: bool, what: str) -> None:
    if not is_right:
        sys.exit(f"wrong: {what}")


def close(a: float, b: float) -> bool:
    """Curves have f32."""
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-30)


def main(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    groups = sorted({row["group"] for row in rows})
    points = 0
    for group in groups:
        own = [row for row in rows if row["group"] == group]
        board = read(run / "tensorboard" / f"group-{group}")
        for tag, key in [("loss", "loss"), ("lag", "lag"), ("seconds/compute", "compute_seconds")]:
            shown = [(event.step, event.value) for event in board.Scalars(tag)]
            told = [(row["samples_applied"], row[key]) for row in own]
            check(len(shown) == len(told), f"{tag} of group {group}: {len(shown)} points of {len(told)} rows")
            for (step, value), (samples, wanted) in zip(shown, told):
                check(step == samples and close(value, wanted), f"{tag} of group {group} at {step}")
            points += len(shown)
        for tag in ["delay", "step_seconds"]:
            histograms = board.Histograms(tag)
            check(len(histograms) > 0, f"group {group} has no histogram of {tag}")
            counted = sum(event.histogram_value.num for event in histograms)
            check(0 < counted <= len(own), f"{tag} of group {group} counts {counted} of {len(own)} exchanges")
    everything = read(run / "tensorboard" / "run")
    text = everything.Tensors("configuration")[0].tensor_proto.string_val[0].decode()
    wanted = "".join(f"    {line}\n" for line in (run / "config.toml").read_text().splitlines())
    check(text == wanted, "the configuration")
    metric = json.loads((run / "summary.json").read_text())["metric"]
    tag = f"{metric['name']} ({metric['unit']})" if metric["unit"] else metric["name"]
    check(close(everything.Scalars(tag)[-1].value, metric["value"]), tag)
    print(f"{len(groups)} groups, {points} points, histograms, configuration and metric are as the run's records have them")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
