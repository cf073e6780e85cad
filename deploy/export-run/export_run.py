"""Hands a run to MLflow, or to W&B's offline mode, through their own clients.

    python export_run.py mlflow URI < RUN
    python export_run.py wandb DIR < RUN

`tradewind export-run` starts it and writes what the run has to standard input: a line of JSON that describes it, then
one for each point of a curve, `[name, samples, wall, value]`. What there is to say it tells on standard output, as lines
of JSON: how far it is, and how it ended. Whatever else a client prints is not for people.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Most that MLflow takes in a request.
BATCH = 1000

# Where a folder of W&B says what it was made of.
NOTE = "tradewind.json"

# The tag of MLflow with the same, and that by which a run is found again.
EXPORTED = "tradewind.exported"
ID = "tradewind.id"


@dataclass
class Point:
    """A value of a curve."""

    name: str
    # Samples that were applied to the run.
    samples: int
    # Seconds since the Unix epoch.
    wall: float
    value: float

    def milliseconds(self) -> int:
        return int(self.wall * 1000)


@dataclass
class Run:
    """What is exported."""

    about: dict[str, Any]
    points: list[Point]
    # Of all of it.
    digest: str

    def __getitem__(self, key: str) -> Any:
        return self.about[key]


class Refused(Exception):
    """A reason for people."""


def tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def read() -> Run:
    content = sys.stdin.buffer.read()
    lines = content.splitlines()
    about = json.loads(lines[0])
    points = []
    for line in lines[1:]:
        name, samples, wall, value = json.loads(line)
        points.append(Point(name, samples, wall, math.nan if value is None else value))
    if len(points) != about["points"]:
        raise Refused(f"{len(points)} of {about['points']} points have come")
    return Run(about, points, hashlib.sha256(content).hexdigest())


def to_mlflow(uri: str, run: Run) -> str:
    # A server that is not there is told soon, and nothing of a user's is told to MLflow's makers.
    for name, value in [("MAX_RETRIES", "2"), ("TIMEOUT", "60")]:
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_TRUNCATE_LONG_VALUES", "true")
    import mlflow
    from mlflow.entities import Metric, Param, RunTag, ViewType

    for name in ["mlflow", "alembic", "urllib3"]:
        logging.getLogger(name).setLevel(logging.ERROR)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(run["experiment"])
    if experiment is None:
        experiment_id = client.create_experiment(run["experiment"])
    elif experiment.lifecycle_stage != "active":
        raise Refused(f"its experiment {run['experiment']} is deleted: restore it, or name another with --experiment")
    else:
        experiment_id = experiment.experiment_id
    parameters = {key: plain(value) for key, value in run["parameters"].items()}

    def written(run_id: str) -> set[tuple[str, int, int]]:
        """The points that are there: name, samples and milliseconds."""
        names = client.get_run(run_id).data.metrics
        histories = {name: client.get_metric_history(run_id, name) for name in names}
        return {(name, point.step, point.timestamp) for name, points in histories.items() for point in points}

    wanted = {(point.name, point.samples, point.milliseconds()): point for point in run.points}
    found = client.search_runs(
        [experiment_id], filter_string=f"tags.`{ID}` = '{run['id']}'", run_view_type=ViewType.ACTIVE_ONLY, max_results=1
    )
    how, beside, there, run_id = "is in MLflow", "", set[tuple[str, int, int]](), None
    if found:
        run_id, data = found[0].info.run_id, found[0].data
        if data.tags.get(EXPORTED) == run.digest:
            return f"is in MLflow already, as it is now: run {run_id} of the experiment {run['experiment']}"
        there, how = written(run_id), "is brought up to date in MLflow"
        differs = any(parameters.get(key, value) != value for key, value in data.params.items())
        if differs or not there <= wanted.keys():
            # Neither parameters nor points can be taken back.
            client.delete_run(run_id)
            how, beside = "is in MLflow anew, as it is now", f"; the former run {run_id} is deleted there"
            there, run_id = set(), None
    if run_id is None:
        made = client.create_run(
            experiment_id, start_time=int(run["begun"] * 1000), tags={ID: run["id"]}, run_name=run["name"]
        )
        run_id = made.info.run_id
    tags = [RunTag(key, value) for key, value in run["tags"].items()]
    client.log_batch(run_id, tags=tags)
    names = list(parameters)
    for first in range(0, len(names), 100):
        client.log_batch(run_id, params=[Param(name, parameters[name]) for name in names[first : first + 100]])
    missing = [point for place, point in wanted.items() if place not in there]
    done, of = 0, len(missing) + len(run["files"])
    for first in range(0, len(missing), BATCH):
        batch = missing[first : first + BATCH]
        client.log_batch(run_id, [Metric(one.name, one.value, one.milliseconds(), one.samples) for one in batch])
        done += len(batch)
        tell(done=done, of=of)
    for path, _ in run["files"]:
        client.log_artifact(run_id, path)
        done += 1
        tell(done=done, of=of)
    ended = {"completed": "FINISHED", "failed": "FAILED"}.get(run["state"], "KILLED")
    client.set_terminated(run_id, ended, int(run["ended"] * 1000))
    # Last: without it the next export goes on.
    client.set_tag(run_id, EXPORTED, run.digest)
    return f"{how}: run {run_id} of the experiment {run['experiment']}{beside}"


def plain(value: str) -> str:
    """A value of TOML without the quotes of a string."""
    return value.strip('"')


def typed(value: str) -> Any:
    """A value of TOML as JSON has it, where it does."""
    try:
        return json.loads(value)
    except ValueError:
        return plain(value)


def to_wandb(folder: str, run: Run) -> str:
    os.environ["WANDB_SILENT"] = "true"
    import wandb

    place = Path(folder).absolute() / "wandb"
    place.mkdir(parents=True, exist_ok=True)
    before = sorted(place.glob(f"offline-run-*-{run['id']}"))
    if before and noted(before[-1]) == run.digest:
        return f"is in {before[-1]} already, as it is now"
    needed = sum(size for _, size in run["files"]) + 100 * len(run.points)
    free = shutil.disk_usage(place).free
    if free < needed:
        raise Refused(f"it needs about {needed} bytes in {place}, where {free} are free")
    # Whole or not at all.
    with tempfile.TemporaryDirectory(prefix=".tradewind-", dir=place) as part:
        # Nothing of the machine that exports is the run's.
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True,
            x_disable_machine_info=True,
        )  # fmt: skip
        live = wandb.init(
            mode="offline", dir=part, project=run["experiment"], id=run["id"], name=run["name"],
            config={key: typed(value) for key, value in run["parameters"].items()} | {"tradewind": run["tags"]},
            settings=settings,
        )  # fmt: skip
        points: dict[int, list[Point]] = {}
        for point in run.points:
            points.setdefault(point.samples, []).append(point)
        done, of = 0, len(run.points) + len(run["files"])
        # Steps of W&B do not go back.
        for samples, here in sorted(points.items()):
            values: dict[str, Any] = {point.name: point.value for point in here}
            values["_timestamp"] = max(point.wall for point in here)
            live.log(values, step=samples)
            done += len(here)
            if done % BATCH < len(here):
                tell(done=done, of=of)
        for path, _ in run["files"]:
            shutil.copyfile(path, Path(live.dir, Path(path).name))
            live.save(Path(live.dir, Path(path).name), base_path=live.dir, policy="end")
            done += 1
            tell(done=done, of=of)
        live.finish(exit_code=0 if run["state"] == "completed" else 1)
        made = next(Path(part, "wandb").glob("offline-run-*"))
        (made / NOTE).write_text(json.dumps({"exported": run.digest}))
        for old in before:
            shutil.rmtree(old)
        os.replace(made, place / made.name)
    told = "is brought up to date" if before else "is"
    return f"{told} in {place / made.name}; `wandb sync` sends it"


def noted(folder: Path) -> str | None:
    """What a folder of W&B was made of; none if nothing says it."""
    try:
        return str(json.loads((folder / NOTE).read_text())["exported"])
    except (OSError, ValueError, KeyError):
        return None


def main() -> int:
    service, target = sys.argv[1:]
    try:
        run = read()
        told = {"mlflow": to_mlflow, "wandb": to_wandb}[service](target, run)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        reason = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        tell(failed=reason.strip().splitlines()[0])
        return 1
    tell(told=f"run {run['name']} {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
