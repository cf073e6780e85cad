"""What scripts of the tests have in common. Imports no torch."""

import json
import os

import tradewind as tw


def join() -> tw.Rank:
    """In a launched run, or alone."""
    return tw.join(os.environ.get("RUN"))


def told(name: str, value: object) -> None:
    """Writes a line for the test."""
    with open(os.path.join(os.environ["TOLD"], name), "a") as file:
        file.write(json.dumps(value) + "\n")


def told_in_training(name: str, value: object) -> None:
    """The same, but for the process that evaluates, which comes by the same lines."""
    if "evaluate" not in json.loads(os.environ.get("TRADEWIND_WORKER", "[]"))[:1]:
        told(name, value)
