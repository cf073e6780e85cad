"""Measures seconds to a target as MLPerf HPC does: from the start of the command, with the copies of samples.

    python time_to_target.py cosmoflow.toml --at-most 0.28 --every-samples 1636 --seeds 1 2 3

For each seed it trains with `tradewind run`, with the samples in a folder of files that are copied to an empty cache
first (`loader.cache`), and with no page of them in main memory. The time goes from the start of the command to when
the last block came to the first evaluation that reaches the target. A table goes to OUT/CONFIG.csv; at the
end stands the mean, from five runs on without the fastest and the slowest, if all have reached the target.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

COLUMNS = [
    "configuration",
    "target",
    "seed",
    "seconds_to_target",
    "seconds_to_first_step",
    "samples_to_target",
    "staged_bytes",
    "staged_seconds",
    "wall_seconds",
    "metric_validation",
    "metric_held_out",
    "version",
]

# Bytes of the cache; a file that has no place in it is read where it is.
CACHE_BYTES = 16 * 10**9


def forget(folder: Path) -> None:
    """Takes a folder's files out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begun(row: dict[str, Any]) -> float:
    """When the step of a row of metrics.jsonl began."""
    parts = ["data", "compute", "reduce", "exchange", "wait"]
    return float(row["wall"]) - sum(float(row[f"{part}_seconds"]) for part in parts)


def measure(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One run."""
    name = f"{asked.config.stem}-{seed}"
    run, cache = asked.out / name, asked.out / "cache"
    for folder in [run, cache]:
        shutil.rmtree(folder, ignore_errors=True)
    cache.mkdir(parents=True)
    config = tomllib.loads(asked.config.read_text())
    forget(asked.config.parent / config["data"]["folder"])
    settings = {
        "run.seed": seed,
        "evaluation.every_samples": asked.every_samples,
        "loader.cache": f'"{cache.absolute()}"',
        "loader.cache_bytes": CACHE_BYTES,
    }
    command = [asked.tradewind, "run", asked.config, "--out", run]
    for setting in [f"{key}={value}" for key, value in settings.items()] + asked.set:
        command += ["--set", setting]
    start = time.time()
    subprocess.run(command, check=True)
    summary = json.loads((run / "summary.json").read_text())
    measures = sorted(rows(run / "validation.jsonl"), key=lambda row: int(row["samples"]))
    reached = next((row for row in measures if is_met(asked, row["measure"]["value"])), None)
    groups, metric = summary["groups"], summary["metric"]
    shutil.rmtree(cache)
    return {
        "configuration": asked.config.name,
        "target": f"{measures[0]['measure']['name']} {goal(asked)}",
        "seed": seed,
        "seconds_to_target": reached and round(reached["wall"] - start, 2),
        "seconds_to_first_step": round(min(map(begun, rows(run / "metrics.jsonl"))) - start, 2),
        "samples_to_target": reached and reached["samples_applied"][1],
        "staged_bytes": sum(group["staged_bytes"] for group in groups),
        "staged_seconds": round(sum(group["staged_seconds"] for group in groups), 2),
        "wall_seconds": round(summary["wall_seconds"], 2),
        "metric_validation": metric["validation"]["value"],
        "metric_held_out": metric["value"],
        "version": summary["version"],
    }


def is_met(asked: argparse.Namespace, value: float) -> bool:
    if asked.at_most is not None:
        return value <= float(asked.at_most)
    return value >= float(asked.at_least)


def goal(asked: argparse.Namespace) -> str:
    return f"<= {asked.at_most}" if asked.at_most is not None else f">= {asked.at_least}"


def result(seconds: list[float | None]) -> str:
    """What runs come to, by the rule of MLPerf: of five or more the fastest and the slowest are left out."""
    known = sorted(second for second in seconds if second is not None)
    if len(known) < len(seconds):
        return f"{len(known)} of {len(seconds)} runs reached the target: there is no time"
    kept = known[1:-1] if len(known) >= 5 else known
    left_out = "without the fastest and the slowest" if len(known) >= 5 else "all of them"
    return f"{sum(kept) / len(kept):.1f} s to the target, the mean of {len(known)} runs, {left_out}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--at-most", type=float)
    target.add_argument("--at-least", type=float)
    parser.add_argument("--every-samples", type=int, required=True, help="applied samples between two evaluations")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--tradewind", type=Path, default=Path("target/release/tradewind"))
    parser.add_argument("--out", type=Path, default=Path("experiments/time-to-target"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of `tradewind run`")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    measured: list[dict[str, Any]] = []
    for seed in asked.seeds:
        measured.append(measure(asked, seed))
        with open(asked.out / f"{asked.config.stem}.csv", "w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(measured)
        print({key: measured[-1][key] for key in COLUMNS[2:8]}, file=sys.stderr)
    print(f"{measured[0]['configuration']}, {measured[0]['target']}: {result([row['seconds_to_target'] for row in measured])}")


if __name__ == "__main__":
    main()
