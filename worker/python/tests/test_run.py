"""Scripts in real runs. `make python-test` sets up what they need."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import torch

from scripts import Lines, loss_of, model

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ROOT / "target/debug/tradewind"
SCRIPTS = Path(__file__).with_name("scripts.py")
RUN = """
[run]
name = "script"
[cluster]
servers = {servers}
groups = {groups}
[train]
samples = {samples}
batch = 8
consistency = "{consistency}"
[optimizer]
name = "sgd"
momentum = 0.0
learning_rate = 0.05
[script]
workers = {workers}
"""


class Run:
    """A run of one of the scripts, in a folder of its own."""

    def __init__(self, script: str, *, groups: list[int], samples: int = 800, **settings: object) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.told = Path(self.folder.name)
        defaults = {"servers": 1, "consistency": "sync", "workers": 0}
        text = RUN.format(**{**defaults, **settings, "groups": groups, "samples": samples})
        file = self.told / "run.toml"
        file.write_text(text)
        self.process = subprocess.Popen(
            [COMMAND, "run", file, "--out", self.told / "run", "--", sys.executable, SCRIPTS, script],
            env={**os.environ, "TOLD": str(self.told)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        """The status and what was printed."""
        text, _ = self.process.communicate(timeout=300)
        return self.process.returncode, text

    def lines(self, name: str) -> list:
        path = self.told / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def log(self, rank: str) -> str:
        return (self.told / f"run/logs/{rank}.log").read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()


class Runs(unittest.TestCase):
    def run_of(self, script: str, **settings) -> Run:
        run = Run(script, **settings)
        self.addCleanup(run.close)
        return run

    def completes(self, run: Run) -> str:
        status, text = run.end()
        self.assertEqual(status, 0, text)
        return text

    def test_one_rank_equals_the_plain_loop(self) -> None:
        run = self.run_of("train", groups=[1])
        self.completes(run)
        batches = run.lines("batches-0-0")
        self.assertEqual(len(batches), 100)
        # The first epoch has every sample once.
        first = [number for batch in batches[:32] for number in batch]
        self.assertEqual(sorted(first), list(range(256)))
        net, data = model(), Lines()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for numbers in batches:
            opt.zero_grad()
            x, y = data.x[numbers], data.y[numbers]
            loss_of(net, [x, y, None]).backward()
            opt.step()
        (values,) = run.lines("values-0-0")
        for ours, plain in zip(values, net.parameters()):
            torch.testing.assert_close(torch.tensor(ours), plain.detach().flatten(), rtol=1e-5, atol=1e-6)

    def test_groups_of_ranks_equal_one_process_on_all_their_batches(self) -> None:
        run = self.run_of("train", groups=[2, 1], servers=2, samples=1200)
        self.completes(run)
        ranks = ["0-0", "0-1", "1-0"]
        batches = [run.lines(f"batches-{rank}") for rank in ranks]
        net, data = model(), Lines()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for numbers in zip(*batches):
            opt.zero_grad()
            together = [number for batch in numbers for number in batch]
            self.assertEqual(len(set(together)), 24)
            loss_of(net, [data.x[together], data.y[together], None]).backward()
            opt.step()
        for rank in ranks:
            (values,) = run.lines(f"values-{rank}")
            for ours, plain in zip(values, net.parameters()):
                torch.testing.assert_close(torch.tensor(ours), plain.detach().flatten(), rtol=1e-4, atol=1e-5)

    def test_workers_of_a_loader_fetch_ahead_what_is_leased(self) -> None:
        run = self.run_of("train", groups=[2, 2], consistency="async", samples=1600, workers=1)
        self.completes(run)
        used = [number for g in (0, 1) for r in (0, 1) for batch in run.lines(f"batches-{g}-{r}") for number in batch]
        self.assertGreaterEqual(len(used), 1600)
        # Epochs are dealt evenly: none is used twice as often as another.
        counts = [used.count(number) for number in range(256)]
        self.assertGreaterEqual(min(counts), 3, counts)
        self.assertLessEqual(max(counts), 9, counts)

    def test_a_rank_that_is_killed_comes_back_and_the_run_completes(self) -> None:
        run = self.run_of("train", groups=[2, 2], consistency="async", samples=12_000)
        deadline = time.time() + 120
        while len(run.lines("batches-1-1")) < 20:
            self.assertLess(time.time(), deadline, "it never trained")
            time.sleep(0.05)
        processes = json.loads((run.told / "run/processes.json").read_text())
        (victim,) = [
            one for one in processes if (one["role"], one["group"], one["group_rank"]) == ("worker", 1, 1)
        ]
        os.kill(victim["pid"], signal.SIGKILL)
        self.completes(run)
        self.assertIn("broken", run.log("group-1-rank-0"))
        self.assertTrue(run.lines("values-1-1"), "the killed rank's next process was there at the end")

    def test_a_group_that_leaves_has_left(self) -> None:
        status, text = self.run_of("leaves", groups=[1]).end()
        self.assertNotEqual(status, 0, text)
        self.assertNotIn("without progress", text)

    def test_a_run_that_diverges_is_not_tried_again(self) -> None:
        status, text = self.run_of("diverges", groups=[1], samples=80_000).end()
        self.assertNotEqual(status, 0, text)
        self.assertIn("diverged", text)
        self.assertNotIn("restarted", text)

    def refused(self, script: str, words: str, **settings: object) -> None:
        run = self.run_of(script, groups=[1], **settings)
        deadline = time.time() + 120
        while True:
            path = run.told / "run/logs/group-0-rank-0.log"
            if path.exists() and words in path.read_text():
                return
            if run.process.poll() is not None or time.time() > deadline:
                self.fail(path.read_text() if path.exists() else run.end()[1])
            time.sleep(0.1)

    def test_the_end_before_the_budget_is_a_failure(self) -> None:
        self.refused("stops_early", "call rank.leave()")

    def test_a_step_needs_backward(self) -> None:
        self.refused("without_backward", "call loss.backward() before opt.step()")

    def test_an_unused_parameter_is_named(self) -> None:
        self.refused("unused", "backward has not reached unused.weight, unused.bias: ")

    def test_a_second_join_is_refused(self) -> None:
        self.refused("twice", "call tradewind.join() once and keep the rank")

    def test_a_rate_of_ones_own_is_refused(self) -> None:
        self.refused("own_rate", "set optimizer.learning_rate and schedule.*")

    def test_another_batch_is_refused(self) -> None:
        self.refused("another_batch", "batch_size is 5, and train.batch of the run's file 8")

    def test_more_ahead_than_a_group_may_lease_is_refused(self) -> None:
        words = "num_workers times prefetch_factor is 100, and a group may ask for"
        self.refused("far_ahead", words, consistency="async")

    def test_what_the_run_decides_is_refused(self) -> None:
        self.refused("shuffles", "shuffle is the run's to decide")


class Alone(unittest.TestCase):
    def test_without_a_launcher_the_way_is_named(self) -> None:
        code = "import sys, tradewind as tw\nassert 'torch' not in sys.modules\ntw.join()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tradewind run run.toml -- python", done.stderr)


if __name__ == "__main__":
    unittest.main()
