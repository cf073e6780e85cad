"""Scripts of the tests without PyTorch: `python array_scripts.py NAME` is a rank."""

import sys
from typing import Any

import numpy as np

from telling import join, told

SAMPLES = 256


def lines() -> tuple[np.ndarray, np.ndarray]:
    """Points of a plane."""
    x = np.random.default_rng(1).standard_normal((SAMPLES, 8)).astype(np.float32)
    return x, x @ np.arange(8, dtype=np.float32) / 8 + 1


def initial() -> dict[str, np.ndarray]:
    return {"weight": np.full(8, 0.1, np.float32), "bias": np.zeros((), np.float32)}


def gradients_of(values: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Mean squared error, and its gradient."""
    error = x @ values["weight"] + values["bias"] - y
    gradients = {"weight": 2 * x.T @ error / len(y), "bias": 2 * error.mean()}
    return float((error**2).mean()), gradients


def train() -> None:
    rank = join()
    x, y = lines()
    values = rank.share(initial(), samples=SAMPLES)

    @rank.evaluate
    def squared_error(values: dict[str, np.ndarray]) -> float:
        return gradients_of(values, x, y)[0]

    while not rank.done:
        for batch in rank.batches():
            loss, gradients = gradients_of(values, x[batch], y[batch])
            rank.exchange(gradients, loss=loss)
            told(f"batches-{rank.group}", batch)
    told("evaluated" if rank.evaluating else f"values-{rank.group}", {name: array.tolist() for name, array in values.items()})
    assert "torch" not in sys.modules


def exchanges_once(gradients: dict[str, Any]) -> None:
    rank = join()
    rank.share(initial(), samples=SAMPLES)
    for _ in rank.batches():
        rank.exchange(gradients)


def doubles() -> None:
    exchanges_once({"weight": np.zeros(8), "bias": np.zeros((), np.float32)})


def wrong_shape() -> None:
    exchanges_once({"weight": np.zeros((2, 4), np.float32), "bias": np.zeros((), np.float32)})


def wrong_names() -> None:
    exchanges_once({"weights": np.zeros(8, np.float32)})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
