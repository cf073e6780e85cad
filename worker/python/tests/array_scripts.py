"""Scripts of the tests without PyTorch: `python array_scripts.py NAME` is a rank."""

import array
import sys
from typing import Any

import numpy as np

import tradewind as tw
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
    ended = {name: array.tolist() for name, array in values.items()}
    told("evaluated" if rank.evaluating else f"values-{rank.group}", ended)
    assert "torch" not in sys.modules


def train_silently(rank: tw.Rank) -> None:
    """Tells nothing."""
    x, y = lines()
    values = rank.share(initial(), samples=SAMPLES)
    while not rank.done:
        for batch in rank.batches():
            rank.exchange(gradients_of(values, x[batch], y[batch])[1])


def by_learning() -> None:
    """What experiments compare: lower with what the setting is."""
    rank = join()
    rank.evaluate(lambda _: {"distance": abs(rank.settings["width"] - 3)})
    train_silently(rank)


def accuracy() -> None:
    """Registered behind the loop, with a name of its own."""
    rank = join()
    train_silently(rank)
    rank.evaluate(better="higher")(lambda _: {"accuracy": np.float32(0.75)})


def evaluation_raises() -> None:
    rank = join()

    @rank.evaluate
    def accuracy(values: dict[str, np.ndarray]) -> float:
        raise ValueError("no such file: held-out.csv")

    train_silently(rank)


def returns() -> None:
    """Nonsense, as the test says which."""
    rank = join()
    kinds: dict[str, Any] = {
        "nan": float("nan"),
        "text": "good",
        "nothing": None,
        "many": {"accuracy": 0.5, "loss": 1.0},
        "parts": tw.Evaluation(tw.Measure("a", 1.0), parts=[tw.Part("first", 1.0, [2.0])]),
    }

    @rank.evaluate
    def accuracy(values: dict[str, np.ndarray]) -> Any:
        return kinds[rank.settings["returns"]]

    train_silently(rank)


def never_iterates() -> None:
    rank = join()
    if not rank.evaluating:
        train_silently(rank)


def takes_one_step() -> tw.Rank:
    rank = join()
    x, y = lines()
    values = rank.share(initial(), samples=SAMPLES)
    batch = next(iter(rank.batches()))
    rank.exchange(gradients_of(values, x[batch], y[batch])[1])
    return rank


def stops_early() -> None:
    takes_one_step()


def leaves() -> None:
    takes_one_step().leave()


def always_raises() -> None:
    rank = join()
    rank.share(initial(), samples=SAMPLES)
    for _ in rank.batches():
        raise ValueError("a mistake of the script")


def never_joins() -> None:
    """A script that knows nothing of Tradewind."""
    x, y = lines()
    values = initial()
    for _ in range(10):
        _, gradients = gradients_of(values, x, y)
        values = {name: array - np.float32(0.05) * gradients[name] for name, array in values.items()}


def batches_first() -> None:
    join().batches()


def exchanges_once(gradients: dict[str, Any]) -> None:
    rank = join()
    rank.share(initial(), samples=SAMPLES)
    for _ in rank.batches():
        rank.exchange(gradients)


class Lends:
    """Has DLPack's protocol and no other, as arrays of other libraries may."""

    def __init__(self, values: np.ndarray, on_a_gpu: bool = False) -> None:
        self._values, self._on_a_gpu = values, on_a_gpu

    def __dlpack__(self, **how: Any) -> Any:
        if self._on_a_gpu:
            raise BufferError("it is on a GPU")
        return self._values.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self._on_a_gpu else self._values.__dlpack_device__()


def lends() -> None:
    """Values by Python's buffer protocol, and gradients by DLPack's."""
    rank = join()
    x, y = lines()
    first = {name: own if own.ndim == 0 else array.array("f", own) for name, own in initial().items()}
    values = rank.share(first, samples=SAMPLES)
    while not rank.done:
        for batch in rank.batches():
            loss, gradients = gradients_of(values, x[batch], y[batch])
            rank.exchange({name: Lends(np.float32(gradient)[...]) for name, gradient in gradients.items()}, loss=loss)
            told(f"batches-{rank.group}", batch)
    told(f"values-{rank.group}", {name: ours.tolist() for name, ours in values.items()})


def on_a_gpu() -> None:
    exchanges_once({"weight": Lends(np.zeros(8, np.float32), on_a_gpu=True), "bias": np.zeros((), np.float32)})


def doubles() -> None:
    exchanges_once({"weight": np.zeros(8), "bias": np.zeros((), np.float32)})


def wrong_shape() -> None:
    exchanges_once({"weight": np.zeros((2, 4), np.float32), "bias": np.zeros((), np.float32)})


def wrong_names() -> None:
    exchanges_once({"weights": np.zeros(8, np.float32)})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
