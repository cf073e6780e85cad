"""Exports runs to a real MLflow server on sqlite and with W&B's offline mode, and reads back what is there.

    python check_export.py target/debug/tradewind

It is called in the Python that has the clients. Runs are made up: a resolved configuration, and records as groups and the
evaluation write them, of few exchanges, so that each is a point of a curve.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONFIG = """
run.name = "made-up"
data.files = ["t.nc"]
data.variable = "t"
data.validation = [20, 25]
data.held_out = [30, 40]
train.samples = 400
train.consistency = "async"
optimizer.learning_rate = 0.1
"""
GROUPS = 2
SAMPLES = 8
BEGUN = 1_700_000_000.0

Curve = list[tuple[int, int, float]]


def check(is_right: bool, what: str) -> None:
    if not is_right:
        sys.exit(f"wrong: {what}")


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def step(number: int, late: float) -> dict[str, Any]:
    """An exchange; groups take turns."""
    return {
        "wall": BEGUN + late + number, "group": number % GROUPS, "clock": number // GROUPS, "loss": 2.0 / (number + 1.0),
        "samples": SAMPLES, "samples_applied": SAMPLES * (number + 1), "updates": number + 1, "lag": number % 2, "delay": 1,
        "dropped": 0, "skipped": False, "buckets_skipped": 0, "data_seconds": 0.0, "compute_seconds": 0.5,
        "reduce_seconds": 0.0, "exchange_seconds": 0.1, "exposed_seconds": 0.1, "wait_seconds": 0.0,
    }  # fmt: skip


class MadeUp:
    """The folder of a run that has ended, and what is to be found of it."""

    def __init__(self, tradewind: str, folder: Path) -> None:
        self.tradewind, self.folder = tradewind, folder
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(CONFIG)
        for name in ["loss.png", "model.safetensors"]:
            (folder / name).write_bytes(name.encode() * 100)
        self.rows = [step(number, 0.0) for number in range(50)]
        self.end(0.71)

    def end(self, metric: float) -> None:
        measure = {"name": "held-out RMSE", "unit": "K", "value": metric}
        evaluation = {
            "metric": measure, "better": "lower", "validation": measure | {"name": "validation RMSE"}, "baselines": [],
            "parts": [], "params_digest": f"{metric}", "parameters": 1, "picture": "",
        }  # fmt: skip
        summary = {
            "status": "completed", "version": "0.1.0", "train_seconds": 50.0, "loss": {"final": 0.04}, "metric": measure,
        }  # fmt: skip
        (self.folder / "evaluation.json").write_text(json.dumps(evaluation))
        (self.folder / "summary.json").write_text(json.dumps(summary))
        lines(self.folder / "metrics.jsonl", self.rows)

    def resume(self) -> None:
        """It is trained again from its 40th exchange on, and comes to another end."""
        self.rows = self.rows[:40] + [step(number, 1000.0) for number in range(40, 50)]
        self.end(0.69)

    def curve(self, name: str, key: str) -> Curve:
        group = int(name.split("/")[0].removeprefix("group-")) if name.startswith("group-") else None
        own = [row for row in self.rows if group is None or row["group"] == group]
        return [(row["samples_applied"], int(row["wall"] * 1000), row[key]) for row in own]

    def curves(self) -> dict[str, Curve]:
        """Some of those that are to be there."""
        keys = {"loss": "loss", "lag": "lag", "seconds/compute": "compute_seconds", "delay/max": "delay"}
        heads = ["", *(f"group-{group}/" for group in range(GROUPS))]
        return {head + name: self.curve(head + name, key) for head in heads for name, key in keys.items()}

    def export(self, *to: str, status: int = 0, python: str = sys.executable) -> str:
        command = [self.tradewind, "export-run", str(self.folder), *to, "--python", python]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        told = ended.stdout + ended.stderr
        check(ended.returncode == status, f"{command} ended with {ended.returncode}:\n{told}")
        return told.strip()


def expect(told: str, *parts: str) -> None:
    for part in parts:
        check(part in told, f"{part!r} is not in {told!r}")


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A server on sqlite."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    # Its jobs need more than its client.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("w") as log:
        # Of a process group of its own, with its workers.
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            check(server.poll() is None, f"MLflow's server has ended:\n{(folder / 'server.log').read_text()[-3000:]}")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=5):
                break
            time.sleep(0.5)
        else:
            sys.exit("MLflow's server does not answer")
        yield uri
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def in_mlflow(client: Any, run: MadeUp) -> str:
    """Compares what is there with the run; the number of the run there."""
    experiment = client.get_experiment_by_name("tradewind")
    found = client.search_runs([experiment.experiment_id])
    check(len(found) == 1, f"{len(found)} runs are there")
    (there,) = found
    check(there.info.run_name == run.folder.name and there.info.status == "FINISHED", f"{there.info}")
    parameters = there.data.params
    check(parameters["train.consistency"] == "async" and parameters["train.samples"] == "400", f"{parameters}")
    check(there.data.tags["tradewind.state"] == "completed", "the state")
    check(there.data.tags["tradewind.unit.held-out RMSE"] == "K", "the unit")
    for name, wanted in run.curves().items():
        history = client.get_metric_history(there.info.run_id, name)
        told = sorted((point.step, point.timestamp, point.value) for point in history)
        check(told == wanted, f"{name}: {told[:3]}…, {len(told)} points, instead of {wanted[:3]}…, {len(wanted)}")
    metric = json.loads((run.folder / "summary.json").read_text())["metric"]["value"]
    check(there.data.metrics["held-out RMSE"] == metric, "the metric")
    check(there.data.metrics["summary/train_seconds"] == 50.0, "what the summary has")
    files = {file.path for file in client.list_artifacts(there.info.run_id)}
    check(files == {"config.toml", "summary.json", "evaluation.json", "loss.png", "model.safetensors"}, f"{files}")
    model = Path(client.download_artifacts(there.info.run_id, "model.safetensors"))
    check(model.read_bytes() == (run.folder / "model.safetensors").read_bytes(), "the model")
    return str(there.info.run_id)


def check_mlflow(tradewind: str, root: Path) -> None:
    from mlflow import MlflowClient

    run = MadeUp(tradewind, root / "runs" / "a")
    with mlflow_server(root) as uri:
        client = MlflowClient(uri)
        expect(run.export("--mlflow", uri), "run a is in MLflow: run ", "of the experiment tradewind")
        first = in_mlflow(client, run)
        expect(run.export("--mlflow", uri), f"is in MLflow already, as it is now: run {first}")
        in_mlflow(client, run)
        # An export that was cut off is brought to its end: nothing is doubled.
        client.set_tag(first, "tradewind.exported", "half")
        client.log_metric(first, "loss", 2.0, int(BEGUN * 1000), SAMPLES)
        expect(run.export("--mlflow", uri), f"is brought up to date in MLflow: run {first}")
        in_mlflow(client, run)
        run.resume()
        expect(run.export("--mlflow", uri), "is in MLflow anew, as it is now: run ", f"the former run {first} is deleted there")
        check(in_mlflow(client, run) != first, "points that are void are there")
        told = run.export("--mlflow", uri, "--experiment", "another", "--without-model")
        expect(told, "of the experiment another")
        client.delete_experiment(client.get_experiment_by_name("another").experiment_id)
        expect(run.export("--mlflow", uri, "--experiment", "another", status=1), "its experiment another is deleted")
    expect(run.export("--mlflow", uri, status=1), f"MLflow at {uri}: ", "refused")
    expect(run.export("--mlflow", "nonsense://x", status=1), "MLflow at nonsense://x: ")
    print(f"MLflow has {len(run.curves())} curves, parameters, tags and files as they are in the run, once")


def records(log: bytes) -> Iterator[bytes]:
    """The records of W&B's file: LevelDB's log behind a head of 7 bytes, in blocks of 32 KiB."""
    check(log[:4] == b":W&B", f"a file of W&B begins with {log[:7]!r}")
    block, head, at, whole = 32768, struct.Struct("<IHB"), 7, b""
    while at + head.size <= len(log):
        if block - at % block < head.size:
            at += block - at % block
            continue
        _, length, kind = head.unpack_from(log, at)
        at += head.size
        whole += log[at : at + length]
        at += length
        # Whole, or its last part.
        if kind in (1, 4):
            yield whole
            whole = b""


def in_wandb(folder: Path, run: MadeUp) -> None:
    from wandb.proto import wandb_internal_pb2

    made = list((folder / "wandb").iterdir())
    check(len(made) == 1, f"{made}")
    (file,) = made[0].glob("run-*.wandb")
    config: dict[str, Any] = {}
    curves: dict[str, list[tuple[int, float]]] = {}
    name, walls, files = "", [], set()
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for update in record.run.config.update:
            config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        name = record.run.display_name or name
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for key, value in row.items():
            if not key.startswith("_"):
                curves.setdefault(key, []).append((record.history.step.num or row["_step"], value))
        walls += [row["_timestamp"]] if row else []
        files |= {file.path for file in record.files.files}
    check(name == run.folder.name, f"its name is {name}")
    check(config["train.samples"] == 400 and config["train.consistency"] == "async", f"{config}")
    for key, points in run.curves().items():
        wanted = [(samples, value) for samples, _, value in points]
        check(curves[key] == wanted, f"{key}: {curves[key][:3]} instead of {wanted[:3]}")
    check(all(math.isclose(wall, row["wall"]) for wall, row in zip(walls, run.rows)), "wall times")
    metric = json.loads((run.folder / "summary.json").read_text())["metric"]["value"]
    check(curves["held-out RMSE"] == [(400, metric)], "the metric")
    for file_name in ["model.safetensors", "loss.png", "config.toml"]:
        check(file_name in files, f"{file_name} is not among {files}")
        copied = (made[0] / "files" / file_name).read_bytes()
        check(copied == (run.folder / file_name).read_bytes(), f"{file_name} is another")


def check_wandb(tradewind: str, root: Path) -> None:
    run, folder = MadeUp(tradewind, root / "runs" / "b"), root / "offline"
    expect(run.export("--wandb-offline", str(folder)), "run b is in ", "`wandb sync` sends it")
    in_wandb(folder, run)
    expect(run.export("--wandb-offline", str(folder)), "already, as it is now")
    in_wandb(folder, run)
    run.resume()
    expect(run.export("--wandb-offline", str(folder)), "run b is brought up to date in ")
    in_wandb(folder, run)
    (root / "file").write_text("in the way")
    expect(run.export("--wandb-offline", str(root / "file" / "x"), status=1), "W&B at ", "NotADirectoryError")
    print(f"W&B has {len(run.curves())} curves, parameters and files as they are in the run, once")


def check_full_disk(tradewind: str, root: Path) -> None:
    """On a disk of 200 kB."""
    disk = root / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        print("skipped: a full disk, for which a file system is mounted as root")
        return
    try:
        run = MadeUp(tradewind, root / "runs" / "c")
        (run.folder / "model.safetensors").write_bytes(bytes(300_000))
        expect(run.export("--wandb-offline", str(disk), status=1), "W&B at ", "bytes in ", " are free")
        check(not list(disk.glob("wandb/*")), "something is left")
        expect(run.export("--mlflow", f"sqlite:///{disk}/mlflow.db", status=1), "MLflow at sqlite:", "disk")
        print("a full disk is told")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def main() -> None:
    tradewind = str(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory() as root:
        check_wandb(tradewind, Path(root))
        check_mlflow(tradewind, Path(root))
        check_full_disk(tradewind, Path(root))


if __name__ == "__main__":
    main()
