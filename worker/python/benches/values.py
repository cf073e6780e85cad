"""After 200 steps of MNIST from the same initial values: a script's values beside the Rust worker's."""

import torch
from safetensors.torch import load_file

from common import BENCHES, EXAMPLES, ROOT, Run, arguments

options = arguments(steps=(200, "steps"))
BATCH = 32
keys = {
    "cluster.servers": 1,
    "cluster.groups": [1],
    "train.consistency": "sync",
    "train.samples": options.steps * BATCH,
    "schedule.warmup_samples": 10 * BATCH,
}
built_in = ROOT / "deploy/configs/mnist.toml"


def flat(run: Run) -> dict[str, torch.Tensor]:
    run.to_its_end()
    return load_file(run.export())


# A step at rate 0 leaves the initial values.
untrained = Run(options.programs, built_in, {**keys, "train.samples": BATCH, "optimizer.learning_rate": 0})
initial = flat(untrained)
script = [str(BENCHES / "mnist_from.py"), str(untrained.folder / "model.safetensors")]
rust = flat(Run(options.programs, built_in, keys))
python = flat(Run(options.programs, EXAMPLES / "mnist.toml", keys, script))


def norm(difference: dict[str, torch.Tensor]) -> float:
    return float(torch.cat([values.flatten().double() for values in difference.values()]).norm())


apart = norm({name: python[name].double() - rust[name].double() for name in rust})
moved = norm({name: rust[name].double() - initial[name].double() for name in rust})
print(f"values after {options.steps} steps, script and Rust worker: {apart / norm(rust):.2e} apart, relative L2")
print(f"of how far training has moved them: {apart / moved:.2e}")
