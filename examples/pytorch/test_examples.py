"""The examples in their small form: `make python-examples` sets up what they need.

Each is a run of its own, whose values are exported and judged by the example's own `evaluate`. The summary has to
have the same metric, by what the example gives to `rank.evaluate`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file

import tradewind as tw

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
COMMAND = ROOT / "target/debug/tradewind"
PYTHON: list[str | Path] = [sys.executable]
#: Ranks that import torch in a third of the time. What builds on torch's compiler has torch as it is.
EAGER: list[str | Path] = [*PYTHON, ROOT / "worker/python/tests/eager.py"]
#: Of a GPT that is trained in seconds.
SMALL = {"script.context": 64, "script.width": 32, "script.depth": 2, "train.samples": 4800}


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_of(self, name: str, keys: dict[str, Any], python: list[str | Path] = PYTHON) -> tuple[dict[str, Any], Path]:
        """Runs an example with these keys; its settings, and a file with what it has trained."""
        run, model = self.folder / name, self.folder / f"{name}.safetensors"
        words = [f"--set={key}={value}" for key, value in keys.items()]
        script = [*python, FOLDER / f"{name}.py"]
        self.calls("run", FOLDER / f"{name}.toml", "--out", run, *words, "--", *script, logs=run / "logs")
        self.calls("export", run, "--out", model)
        self.metric = json.loads((run / "summary.json").read_text())["metric"]
        return tomllib.loads((run / "config.toml").read_text()).get("script", {}), model

    def calls(self, *words: str | Path, logs: Path | None = None) -> None:
        done = subprocess.run([COMMAND, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)
        told = done.stdout + done.stderr
        if done.returncode != 0 and logs is not None:
            told += "".join(log.read_text() for log in sorted(logs.glob("*rank*.log")))
        self.assertEqual(done.returncode, 0, told)

    def learns(self, before: float, after: float, bound: float) -> None:
        """The last run's metric is `after`, and better than `bound`; nothing that is not trained is, as `before`."""
        sign = -1 if self.metric["better"] == "higher" else 1
        self.assertGreater(sign * before, sign * bound)
        self.assertLess(sign * after, sign * bound)
        self.assertAlmostEqual(self.metric["value"], after, delta=1e-3 * abs(after))

    def test_mnist(self) -> None:
        import mnist

        digits(self.folder, "train", 1200)
        digits(self.folder, "t10k", 200)
        keys = {"script.folder": self.folder, "train.samples": 12800, "schedule.warmup_samples": 640}
        _, model = self.run_of("mnist", {**keys, "cluster.groups": [2]})
        net, data = mnist.Net(), mnist.Digits(str(self.folder), "test")
        before = mnist.evaluate(net, data)
        net.load_state_dict(load_file(model))
        self.learns(before, mnist.evaluate(net, data), 50)

    def test_gpt_and_lora(self) -> None:
        import gpt
        import lora

        settings, model = self.run_of("gpt", {**SMALL, "cluster.groups": [1, 1]}, EAGER)
        net, (_, data) = gpt.model_of(settings), gpt.reference(settings["context"])
        before = gpt.evaluate(net, data)
        net.load_state_dict(load_file(model))
        # A model that knows how often each character occurs, and nothing else, is at 3.2.
        self.learns(before, gpt.evaluate(net, data), 2.9)

        base = {name: value.clone() for name, value in net.state_dict().items()}
        _, data = lora.sources(settings["context"])
        before = lora.evaluate(net, data)
        keys = {"script.base": model, "optimizer.learning_rate": 5e-3, "train.samples": 3200}
        _, matrices_file = self.run_of("lora", {**SMALL, **keys}, EAGER)
        trained = load_file(matrices_file)
        lora.with_lora(net, settings_of("lora")["lora_rank"])
        # Nothing else was exchanged.
        matrices = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
        self.assertEqual(set(trained), matrices)
        net.load_state_dict(trained, strict=False)
        self.learns(before, lora.evaluate(net, data), before - 0.04)
        kept = net.state_dict()
        self.assertTrue(torch.equal(kept["blocks.0.qkv.base.weight"], base["blocks.0.qkv.weight"]))

    def test_islands_gpt(self) -> None:
        """A rank of an island is killed on the way."""
        import gpt

        run = self.folder / "run"
        keys = {**SMALL, "train.samples": 9600, "pace.step_seconds": 0.1}
        words = [f"--set={key}={value}" for key, value in keys.items()]
        script = [sys.executable, FOLDER / "islands_gpt.py"]
        call = [COMMAND, "run", FOLDER / "islands_gpt.toml", "--out", run, *words, "--", *script]
        process = subprocess.Popen(
            [str(word) for word in call], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.addCleanup(process.kill)

        def steps(group: int) -> list[dict[str, Any]]:
            path = run / "metrics.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            return [line for line in lines if line.get("group") == group]

        while process.poll() is None and len(steps(1)) < 5:
            time.sleep(0.1)
        before = steps(1)[-1]["clock"]
        processes = json.loads((run / "processes.json").read_text())
        (killed,) = (each["pid"] for each in processes if (each.get("group"), each.get("group_rank")) == (1, 1))
        os.kill(killed, signal.SIGKILL)
        told, _ = process.communicate(timeout=300)
        logs = "".join(log.read_text() for log in sorted((run / "logs").glob("*rank*.log")))
        self.assertEqual(process.returncode, 0, told + logs)
        self.assertGreater(steps(1)[-1]["clock"], before + 5)
        self.calls("export", run, "--out", self.folder / "model.safetensors")
        self.metric = json.loads((run / "summary.json").read_text())["metric"]
        settings = tomllib.loads((run / "config.toml").read_text())["script"]
        net, (_, data) = gpt.model_of(settings), gpt.reference(settings["context"])
        untrained = gpt.evaluate(net, data)
        net.load_state_dict(load_file(self.folder / "model.safetensors"))
        self.learns(untrained, gpt.evaluate(net, data), 2.9)

    def test_climate(self) -> None:
        import climate

        keys = {"script.width": 32, "train.samples": 2752, "cluster.groups": [2], "train.consistency": "sync"}
        settings, model = self.run_of("climate", keys)
        files = [str(ROOT / file) for file in settings["files"]]
        data = climate.Years(files, climate.HELD_OUT)
        net = climate.model_of(settings, data)
        # Untrained it forecasts the mean of the history.
        before = climate.evaluate(net, data)
        net.load_state_dict(load_file(model))
        self.learns(before, climate.evaluate(net, data), 0.722)

    def test_cosmoflow(self) -> None:
        import cosmoflow

        data, cache = self.folder / "cosmology", self.folder / "cache"
        self.calls("data", "make", "cosmology", "--samples", "320", "--out", data)
        keys = {"script.folder": data, "script.widths": [8, 12, 16], "script.hidden": 16, "train.samples": 1920}
        of_cache = {"loader.cache": cache, "loader.cache_bytes": 1 << 30}
        settings, model = self.run_of("cosmoflow", {**keys, **of_cache, "schedule.warmup_samples": 64})
        held_out = tw.Samples(data / "held_out", transform=cosmoflow.prepared)
        net = cosmoflow.model_of(settings)
        before = cosmoflow.evaluate(net, held_out)
        # Integers, which count batches, are in the run's own file.
        missing = net.load_state_dict(load_file(model), strict=False)
        self.assertTrue(all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing)
        # The mean of all universes comes to 0.48. How far it gets depends on delays, which a busy machine draws out.
        self.learns(before, cosmoflow.evaluate(net, held_out), 0.43)
        copied = sum(path.stat().st_size for path in cache.glob("*.copy"))
        files = [path for part in ("train", "held_out") for path in (data / part).glob("*.pack")]
        self.assertEqual(copied, sum(path.stat().st_size for path in files))

    def test_lightning(self) -> None:
        import gpt

        settings, model = self.run_of("lightning_gpt", {**SMALL, "cluster.groups": [1, 1]})
        net, (_, data) = gpt.model_of(settings), gpt.reference(settings["context"])
        before = gpt.evaluate(net, data)
        net.load_state_dict(load_file(model))
        self.learns(before, gpt.evaluate(net, data), 2.9)

    def test_trainer(self) -> None:
        import gpt
        import hf_trainer

        settings, model = self.run_of("hf_trainer", {**SMALL, "cluster.groups": [2]})
        net, (_, data) = hf_trainer.model_of(settings), gpt.reference(settings["context"])
        before = hf_trainer.evaluate(net, data)
        # The last layer is the first one's weights.
        missing = net.load_state_dict(load_file(model), strict=False)
        self.assertEqual((missing.missing_keys, missing.unexpected_keys), (["lm_head.weight"], []))
        self.learns(before, hf_trainer.evaluate(net, data), 2.9)

    def test_the_page_of_islands_opens_with_an_example_that_runs(self) -> None:
        self.opens_with_an_example("islands.md")

    def test_the_page_opens_with_an_example_that_runs(self) -> None:
        run = self.opens_with_an_example("pytorch.md")
        metric = json.loads((run / "summary.json").read_text())["metric"]
        self.assertEqual(metric["name"], "held_out_error")
        # That of a model that is trained on nothing is 80.
        self.assertLess(metric["value"], 30)

    def opens_with_an_example(self, of: str) -> Path:
        """The folder of its run."""
        page = (ROOT / "docs" / of).read_text()
        for name, kind in (("train.py", "python"), ("run.toml", "toml")):
            (self.folder / name).write_text(page.split(f"```{kind}\n")[1].split("```")[0])
        run = self.folder / "run"
        words: list[str | Path] = [self.folder / "run.toml", "--out", run, "--set=train.samples=20000"]
        self.calls("run", *words, "--", sys.executable, self.folder / "train.py", logs=run / "logs")
        return run

    def test_numpy_only(self) -> None:
        import numpy_only

        _, model = self.run_of("numpy_only", {"train.samples": 10240})
        data = numpy_only.Line(1)
        untrained = {"w": np.zeros(numpy_only.FEATURES), "b": np.zeros(1)}
        before = numpy_only.evaluate(untrained, data)
        # The noise alone is 0.01.
        self.learns(before, numpy_only.evaluate(load_arrays(model), data), 0.02)


def settings_of(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())["script"]


def digits(folder: Path, name: str, count: int) -> None:
    """Files as MNIST's, with ten patterns under noise in place of digits."""
    patterns = np.random.default_rng(1).integers(0, 200, (10, 28, 28))
    drawn = np.random.default_rng(count)
    labels = drawn.integers(0, 10, count).astype(np.uint8)
    images = (patterns[labels] + drawn.integers(0, 56, (count, 28, 28))).astype(np.uint8)
    for what, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = np.array([0x800 + array.ndim, *array.shape], dtype=">u4")
        (folder / f"{name}-{what}-ubyte").write_bytes(head.tobytes() + array.tobytes())


if __name__ == "__main__":
    unittest.main()
