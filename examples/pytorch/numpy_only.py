"""Linear regression with NumPy: no torch is needed where a script has its gradients from elsewhere.

    pip install numpy
    tradewind run examples/pytorch/numpy_only.toml -- python examples/pytorch/numpy_only.py

Groups have one rank: what a group's ranks would average is the script's to average.
"""

import numpy as np

import tradewind as tw

FEATURES = 16
SAMPLES = 4096


class Line:
    """y = w·x + b with a little noise: inputs `[SAMPLES, FEATURES]` and outputs `[SAMPLES]`, f32."""

    def __init__(self, seed: int) -> None:
        drawn = np.random.default_rng(seed)
        self.w, self.b = drawn.normal(size=FEATURES), drawn.normal()
        self.x = drawn.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
        noise = 0.1 * drawn.normal(size=SAMPLES)
        self.y = (self.x @ self.w + self.b + noise).astype(np.float32)


def evaluate(values: dict[str, np.ndarray], data: Line) -> float:
    """The mean square error."""
    return float(np.square(data.x @ values["w"] + values["b"] - data.y).mean())


def main() -> None:
    rank = tw.join()
    data = Line(rank.seed)
    # From the first batch on these arrays hold the run's values.
    values = rank.share({"w": np.zeros(FEATURES, np.float32), "b": np.zeros(1, np.float32)}, samples=SAMPLES)

    @rank.evaluate
    def mean_square_error(values: dict[str, np.ndarray]) -> float:
        return evaluate(values, data)

    while not rank.done:
        for numbers in rank.batches():
            x, y = data.x[numbers], data.y[numbers]
            error = x @ values["w"] + values["b"] - y
            gradient = 2 * error / len(numbers)
            rank.exchange({"w": x.T @ gradient, "b": gradient.sum(keepdims=True)}, loss=np.square(error).mean())


if __name__ == "__main__":
    main()
