"""Evaluation, what a rank keeps and saves, and running alone. `make python-test` sets up what they need."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import torch

import tradewind as tw
from evaluating import Net, loss
from scripts import model
from test_run import COMMAND, RUN
from test_run import Run as AnyRun

SCRIPTS = Path(__file__).with_name("evaluating.py")


class Run(AnyRun):
    """A run of one of the scripts of `evaluating.py`; `more` is added to its file, behind section `script`."""

    def __init__(self, script: str, *, groups: list[int] = [1], samples: int = 800, more: str = "") -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.told = Path(self.folder.name)
        settings = {"servers": 1, "consistency": "async", "workers": 0, "groups": groups, "samples": samples}
        (self.told / "run.toml").write_text(RUN.format(**settings) + more)
        self.script = script
        self.begin()

    def begin(self, *arguments: str) -> None:
        words = [COMMAND, "run", self.told / "run.toml", "--out", self.told / "run", *arguments]
        self.process = subprocess.Popen(
            [*words, "--", sys.executable, SCRIPTS, self.script],
            env={**os.environ, "TOLD": str(self.told)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def again(self, *arguments: str) -> None:
        """Goes on in the same folder."""
        self.process.stdout.close()
        self.begin("--resume", *arguments)

    def wait(self, name: str, lines: int) -> None:
        """Until the script has told so much."""
        self.until(lambda: len(self.lines(name)) >= lines)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.time() + 300
        while not holds():
            if self.process.poll() is not None or time.time() > deadline:
                self.process.kill()
                raise AssertionError(self.end()[1])
            time.sleep(0.05)

    def json(self, name: str) -> dict:
        return json.loads((self.told / "run" / name).read_text())

    def model(self) -> dict[str, torch.Tensor]:
        return tw.load(self.told / "run/model.safetensors")


class Case(unittest.TestCase):
    def run_of(self, script: str, **settings) -> Run:
        run = Run(script, **settings)
        self.addCleanup(run.close)
        return run

    def completes(self, run: Run) -> str:
        status, text = run.end()
        self.assertEqual(status, 0, text)
        return text

    def fails(self, run: Run, words: str) -> str:
        """In its evaluation."""
        status, text = run.end()
        self.assertEqual(status, 1, text)
        self.assertIn("evaluate.log", text)
        self.assertIn(words, run.log("evaluate"))
        return text

    def refused(self, run: Run, words: str) -> None:
        """To a rank, which is started again and again."""
        log = run.told / "run/logs/group-0-rank-0.log"
        run.until(lambda: log.exists() and words in log.read_text())
        run.close()


class Evaluations(Case):
    def test_what_the_function_returns_is_the_metric(self) -> None:
        run = self.run_of("measures", groups=[2, 1], samples=2400)
        text = self.completes(run)
        self.assertIn("held_out_loss", text)
        metric = run.json("summary.json")["metric"]
        net = Net().eval()
        # Frozen, tied and integer tensors, and a mask, are all there.
        net.load_state_dict(run.model(), strict=True)
        self.assertIs(net.tied.weight, net.into.weight)
        self.assertEqual(metric["name"], "held_out_loss")
        self.assertEqual(metric["better"], "lower")
        self.assertAlmostEqual(metric["value"], loss(net), places=6)
        self.assertEqual(metric["validation"]["value"], metric["value"])
        self.assertEqual(run.lines("modes"), [[False, False, True]])
        # The script ran on to its end, with the model as it was.
        self.assertEqual(run.lines("model")[-1], [True, loss(net)])
        evaluation = run.json("evaluation.json")
        self.assertEqual(evaluation["libtorch"], torch.__version__)
        self.assertEqual(run.json("summary.json")["params_digest"], evaluation["params_digest"])
        with open(run.told / "run/model.safetensors", "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        self.assertNotIn("tied.weight", header)
        self.assertEqual(header["__metadata__"], {"format": "pt", "tied.weight": "into.weight"})

    def test_a_function_may_come_last_and_name_its_metric(self) -> None:
        run = self.run_of("accuracy")
        self.completes(run)
        metric = run.json("summary.json")["metric"]
        self.assertEqual((metric["name"], metric["value"], metric["better"]), ("accuracy", 0.75, "higher"))

    def test_an_evaluation_may_say_more_and_milestones_are_evaluated(self) -> None:
        run = self.run_of("says_more", more="[evaluation]\nevery_samples = 200\n")
        text = self.completes(run)
        found = run.json("evaluation.json")
        self.assertEqual(found["baselines"], [{"name": "mean", "unit": "K", "value": 4.0}])
        self.assertEqual(found["parts"], [{"name": "first", "value": 1.5, "baselines": [5.0]}])
        self.assertEqual(found["validation"]["name"], "validation loss")
        self.assertIn("network's error is lower by", text)
        lines = (run.told / "run/validation.jsonl").read_text().splitlines()
        validations = [json.loads(line) for line in lines]
        self.assertEqual([line["samples"] for line in validations], [200, 400, 600, 800])
        measures = [line["measure"] for line in validations]
        self.assertEqual({measure["name"] for measure in measures}, {"validation loss"})
        # It has learnt, and the last saving is the end.
        self.assertLess(measures[3]["value"], measures[0]["value"])
        self.assertAlmostEqual(measures[3]["value"], found["validation"]["value"], places=6)
        net = model()
        net.load_state_dict(run.model(), strict=True)
        self.assertAlmostEqual(loss(net), found["metric"]["value"], places=6)

    def test_a_script_without_an_evaluation_completes_without_a_metric(self) -> None:
        run = self.run_of("saves")
        text = self.completes(run)
        self.assertIn("the script has registered no function with @rank.evaluate", text)
        self.assertIsNone(run.json("summary.json")["metric"])
        Net().load_state_dict(run.model(), strict=True)

    def test_a_function_that_raises_fails_the_run(self) -> None:
        self.fails(self.run_of("raises"), "ValueError: no such file: held-out.csv")

    def test_a_script_that_asks_for_no_batch_fails_the_run(self) -> None:
        self.fails(self.run_of("never_iterates"), "iterate over rank.loader(data)")

    def returns(self, kind: str, words: str) -> str:
        return self.fails(self.run_of("returns", more=f'returns = "{kind}"\n'), words)

    def test_a_metric_that_is_not_finite_has_diverged(self) -> None:
        self.assertIn("diverged", self.returns("nan", "accuracy is NaN: training has diverged"))

    def test_what_is_no_evaluation_is_named(self) -> None:
        self.returns("text", "accuracy returned 'good' of str: return a number")
        self.returns("nothing", "accuracy returned None of NoneType: return a number")

    def test_two_metrics_and_unfit_parts_are_refused(self) -> None:
        self.returns("many", "accuracy returned 2 values: return the metric alone")
        self.returns("parts", "part first has 1 baselines, and the evaluation 0")

    def test_a_second_function_and_another_direction_are_refused(self) -> None:
        self.refused(self.run_of("twice"), "a function is registered already")
        self.refused(self.run_of("sideways"), "better is 'up': say \"lower\" or \"higher\"")

    def test_experiments_compare_what_it_returns(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        settings = {"servers": 1, "consistency": "async", "workers": 0, "groups": [1], "samples": 400}
        (folder / "run.toml").write_text(RUN.format(**settings))
        command = json.dumps([sys.executable, str(SCRIPTS), "by_learning"])
        (folder / "widths.toml").write_text(
            f'command = {command}\n[experiment]\nname = "widths"\nbase = "run.toml"\nseeds = [1]\n'
            "[axes]\nscript.width = [1, 3]\n"
            '[target]\nmetric = "distance"\nat_most = 0.5\nevery_samples = 100\n'
        )
        done = subprocess.run(
            [COMMAND, "experiment", folder / "widths.toml", "--out", folder / "out"],
            env={**os.environ, "TOLD": str(folder)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        summaries = [json.loads(path.read_text()) for path in folder.glob("out/**/summary.json")]
        self.assertEqual(sorted(summary["metric"]["value"] for summary in summaries), [0.0, 2.0])
        page = next(folder.glob("out/**/*.html")).read_text()
        # One setting reaches the target.
        self.assertIn("distance ≤ 0.5", page)


class Kept(Case):
    def test_what_a_killed_rank_kept_is_there_again(self) -> None:
        run = self.run_of("counts", groups=[1, 1], samples=8000)
        run.wait("steps-1-0", 30)
        processes = run.json("processes.json")
        (victim,) = [one for one in processes if (one["role"], one["group"]) == ("worker", 1)]
        os.kill(victim["pid"], signal.SIGKILL)
        self.completes(run)
        first, second = run.lines("began-1-0")
        self.assertEqual(first, [0, 0])
        self.assertGreaterEqual(second[0], 29)
        self.assertEqual(second[0], second[1])
        # Each group keeps its own, and the evaluation sees the first one's.
        self.assertEqual(run.lines("began-0-0"), [[0, 0]])
        metric = run.json("summary.json")["metric"]
        self.assertEqual(metric["value"], run.lines("steps-0-0")[-1])

    def test_a_resumed_run_goes_on_with_parameters_data_and_what_it_kept(self) -> None:
        run = self.run_of("counts", samples=40_000, more="[liveness]\nnotice_ms = 120000\n")
        run.wait("steps-0-0", 400)
        run.process.send_signal(signal.SIGINT)
        status, text = run.end()
        self.assertEqual(status, 130, text)
        steps = run.lines("steps-0-0")[-1]
        run.again("--set", f"train.samples={8 * steps + 800}")
        self.completes(run)
        self.assertEqual(run.lines("began-0-0"), [[0, 0], [steps, steps]])
        # No step was lost or taken twice: all left before the last snapshot.
        self.assertEqual(run.lines("steps-0-0"), list(range(1, steps + 101)))
        summary = run.json("summary.json")
        self.assertEqual(summary["samples"]["applied"], 8 * steps + 800)
        self.assertEqual(summary["metric"]["value"], steps + 100)

    def test_a_damaged_file_is_named_and_passed_over(self) -> None:
        run = self.run_of("counts", samples=40_000)
        run.wait("steps-0-0", 400)
        run.process.send_signal(signal.SIGINT)
        run.end()
        path = run.told / "run/kept/group-0-rank-0.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        steps = run.lines("steps-0-0")[-1]
        run.again("--set", f"train.samples={8 * steps + 80}")
        self.completes(run)
        self.assertEqual(run.lines("began-0-0")[1], [0, 0])
        self.assertIn(f"what was kept is passed over: {path.resolve()}: it is damaged", run.log("group-0-rank-0"))

    def test_what_cannot_be_kept_is_refused(self) -> None:
        self.refused(self.run_of("keeps_twice"), "'steps' is kept already")
        self.refused(self.run_of("keeps_an_object"), "'loader' cannot be kept: ")


class Saved(Case):
    def test_a_saved_model_loads_again(self) -> None:
        run = self.run_of("saves")
        self.completes(run)
        state = torch.load(run.told / "state.pt")
        saved = tw.load(run.told / "own.safetensors")
        self.assertEqual(list(saved.keys() - state.keys()), [])
        for name, tensor in state.items():
            torch.testing.assert_close(saved[name], tensor, rtol=0, atol=0)
            self.assertEqual(saved[name].dtype, tensor.dtype)

    def test_shards_are_as_hugging_face_has_them(self) -> None:
        run = self.run_of("saves")
        self.completes(run)
        state = torch.load(run.told / "state.pt")
        folder = run.told / "sharded"
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 1)
        self.assertEqual(files, [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))])
        together = {}
        for file in files:
            shard = tw.load(folder / file)
            together |= {name: shard[name] for name, place in index["weight_map"].items() if place == file}
        self.assertEqual(state.keys() - together.keys(), {"tied.weight"})
        for name, tensor in together.items():
            torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)
        total = sum(tensor.numel() * tensor.element_size() for tensor in together.values())
        self.assertEqual(index["metadata"]["total_size"], total)

    def test_a_missing_folder_and_a_full_disk_are_named(self) -> None:
        self.refused(self.run_of("saves_nowhere"), "cannot save /nowhere/model.safetensors: ")
        full = self.run_of("saves_where_it_is_full")
        log = full.told / "run/logs/group-0-rank-0.log"
        full.until(lambda: log.exists() and f"cannot save {full.told}/own.safetensors: " in log.read_text())
        self.assertEqual(list(full.told.glob("own*")), [])

    def test_a_file_that_is_no_model_is_named(self) -> None:
        for content in (b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"[:9], b'\x1c\0\0\0\0\0\0\0{"a": {"dtype": "F32"}}    '):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                with self.assertRaisesRegex(tw.TradewindError, f"{file.name} is no whole file of safetensors"):
                    tw.load(file.name)


class Alone(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def script(self, more: str = "", input: str | None = None, *python: str) -> subprocess.CompletedProcess:
        settings = {"servers": 2, "consistency": "sync", "workers": 0, "groups": [2, 2], "samples": 800}
        file = self.folder / "run.toml"
        file.write_text(RUN.format(**settings) + more)
        environment = {**os.environ, "TOLD": str(self.folder), "RUN": str(file)}
        words = [sys.executable, *python, SCRIPTS, "alone"]
        return subprocess.run(words, env=environment, input=input, capture_output=True, text=True, timeout=120)

    def told(self, name: str) -> list:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def test_a_script_trains_and_evaluates_without_a_launcher(self) -> None:
        done = self.script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("this process is the only rank", done.stderr)
        self.assertRegex(done.stdout, "tradewind: held_out_loss is 0[.]")
        self.assertEqual(self.told("alone"), [[0, 0, 0, True]])
        self.assertEqual(self.told("batches"), [1] * 100)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["alone", "batches", "run.toml"])

    def test_a_debugger_stops_in_it(self) -> None:
        commands = "b evaluating.loss\nc\np 6 * 7\ncl 1\nc\nq\n"
        done = self.script("", commands, "-m", "pdb")
        self.assertIn("42", done.stdout)
        self.assertIn("held_out_loss is", done.stdout)

    def test_a_file_that_is_no_runs_is_named(self) -> None:
        done = self.script("[train]\nsamples = 5\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("run.toml", done.stderr)
        done = self.script("[local]\nalgorithm = 'diloco'\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("TradewindError", done.stderr)
        code = "import tradewind as tw\ntw.join('nowhere.toml')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("TradewindError: cannot read the configuration nowhere.toml", done.stderr)


if __name__ == "__main__":
    unittest.main()
