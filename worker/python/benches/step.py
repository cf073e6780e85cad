"""A step of MNIST in one group of two ranks: a script beside the Rust worker, in turn."""

from common import EXAMPLES, ROOT, Run, arguments, told

options = arguments(pairs=(7, "pairs of runs"), steps=(1500, "steps of a run"))
keys = {
    "cluster.servers": 1,
    "cluster.groups": [2],
    "train.consistency": "async",
    "train.samples": options.steps * 64,
    "schedule.warmup_samples": 0,
}
ratios, milliseconds = [], {"script ms": [], "Rust worker ms": []}
for _ in range(options.pairs):
    python = Run(options.programs, EXAMPLES / "mnist.toml", keys, [str(EXAMPLES / "mnist.py")])
    rust = Run(options.programs, ROOT / "deploy/configs/mnist.toml", keys)
    for run, times in zip((python, rust), milliseconds.values()):
        run.to_its_end()
        times.append(1e3 * run.seconds_a_step(options.steps // 10))
    ratios.append(python.seconds_a_step(options.steps // 10) / rust.seconds_a_step(options.steps // 10))
told("step of MNIST, script over Rust worker", ratios, **milliseconds)
