"""Checks the logs of `tradewind report --mllog` with MLPerf's own compliance checker, by the rules of HPC 3.0.

    python check_log.py target/debug/tradewind

The run is made up, since small runs do not reach MLPerf's targets: a resolved configuration, and records as groups and
the evaluation write them, in which the error falls to 0.12. One that ends above the target has to fail, and for no
other reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parent.parent / "configs" / "cosmoflow.toml"
SAMPLES = {"train": 6, "validation": 2, "held_out": 2}


def array(path: Path, shape: tuple[int, ...]) -> None:
    """Zeros, as NumPy writes them."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    size = 4
    for extent in shape:
        size *= extent
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(size))


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def step(begun: float, clock: int) -> dict[str, Any]:
    return {
        "wall": begun + clock + 1.0, "group": 0, "clock": clock, "loss": 0.5, "samples": 6,
        "samples_applied": 6 * (clock + 1), "updates": clock + 1, "lag": 0, "delay": 0, "dropped": 0,
        "skipped": False, "buckets_skipped": 0, "data_seconds": 0.0, "compute_seconds": 0.5,
        "reduce_seconds": 0.0, "exchange_seconds": 0.1, "exposed_seconds": 0.1, "wait_seconds": 0.0,
    }  # fmt: skip


def make_up(run: Path, tradewind: str, errors: list[float]) -> None:
    """The folder of a run whose evaluations came to these errors."""
    data = run / "data"
    for split, samples in SAMPLES.items():
        (data / split).mkdir(parents=True)
        array(data / split / "volume.npy", (samples, 4, 8, 8, 8))
        array(data / split / "target.npy", (samples, 4))
    command = [tradewind, "config", str(CONFIG), "--set", f'data.folder="{data}"']
    resolved = subprocess.run(command, check=True, capture_output=True, text=True)
    (run / "config.toml").write_text(resolved.stdout)
    begun = time.time() + 1.0
    lines(run / "metrics.jsonl", [step(begun, clock) for clock in range(len(errors))])
    measures = [{"name": "validation MAE", "unit": "", "value": error} for error in errors]
    lines(
        run / "validation.jsonl",
        [
            {"samples": 6 * (n + 1), "samples_applied": [6 * (n + 1)] * 2, "updates": n + 1, "wall": begun + n + 1.0, "measure": measure}
            for n, measure in enumerate(measures)
        ],
    )
    summary = {
        "status": "completed", "version": "0.1.0", "wall_seconds": 9.0, "train_seconds": 8.0, "samples": {"applied": 60},
        "groups": [], "loss": {"final": 0.5},
        "metric": {"name": "held-out MAE", "unit": "", "value": errors[-1], "better": "lower", "validation": measures[-1]},
    }  # fmt: skip
    (run / "summary.json").write_text(json.dumps(summary))


def complaints(tradewind: str, errors: list[float]) -> list[str]:
    """What the checker says of the log of such a run."""
    from mlperf_logging.compliance_checker.mlp_compliance import make_checker  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        run, logs = Path(folder) / "run", Path(folder) / "logs"
        make_up(run, tradewind, errors)
        subprocess.run([tradewind, "report", str(run), "--mllog", str(logs)], check=True)
        checker = make_checker("hpc", "3.0.0", quiet=False, werror=True)
        is_right = checker.check_file(str(logs / "result_0.txt"), "hpc_3.0.0/common.yaml")
        messages = [*checker.not_overwritable, *checker.overwritable.values()]
        assert is_right == (not messages), messages
        return [str(message) for message in messages]


def main() -> None:
    tradewind = sys.argv[1]
    reached = complaints(tradewind, [0.5, 0.3, 0.2, 0.12])
    if reached:
        sys.exit("the checker complains of a run that reached the target:\n" + "\n".join(reached))
    missed = complaints(tradewind, [0.5, 0.3, 0.2, 0.13])
    if len(missed) != 1 or "eval_error" not in missed[0]:
        sys.exit("of a run that missed the target the checker says:\n" + "\n".join(missed))
    print("MLPerf's checker (hpc 3.0.0) accepts a log that reached the target, and refuses one that missed it")


if __name__ == "__main__":
    main()
