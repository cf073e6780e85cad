"""Evaluation, what a rank keeps and saves, and running alone. `make python-test` sets up what they need."""

import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

import torch
from torch.distributed import checkpoint

import tradewind as tw
from evaluating import Net, loss
from forks import command_of
from runs import ASYNC, COMMAND, PATIENCE, Alone, Keys, Run, RunCase, Told, text_of
from scripts import model

SCRIPTS = Path(__file__).with_name("evaluating.py")


def model_of(run: Run) -> dict[str, torch.Tensor]:
    """What the evaluation has left."""
    return tw.load(run.told / "run/model.safetensors")


class Case(RunCase):
    scripts = SCRIPTS.name

    def fails(self, run: Run, words: str) -> str:
        """In its evaluation."""
        status, text = run.end()
        self.assertEqual(status, 1, text)
        self.assertIn("evaluate.log", text)
        self.assertIn(words, run.log("evaluate"))
        return text


class Evaluations(Case):
    def test_what_the_function_returns_is_the_metric(self) -> None:
        run = self.launch("measures", ASYNC, groups=[2, 1], samples=1200)
        text = self.completes(run)
        self.assertIn("held_out_loss", text)
        metric = run.json("summary.json")["metric"]
        net = Net().eval()
        # Frozen, tied and integer tensors, and a mask, are all there.
        net.load_state_dict(model_of(run), strict=True)
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

    def test_an_evaluation_may_say_more_and_milestones_are_evaluated(self) -> None:
        run = self.launch("says_more", {**ASYNC, "evaluation.every_samples": 200})
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
        net.load_state_dict(model_of(run), strict=True)
        self.assertAlmostEqual(loss(net), found["metric"]["value"], places=6)

    def test_a_second_function_and_another_direction_are_refused(self) -> None:
        self.refused("twice", "a function is registered already")
        self.refused("sideways", "better is 'up': say \"lower\" or \"higher\"")


class OfArrays(Case):
    """Evaluations of scripts without PyTorch, which begin at once."""

    scripts = "array_scripts.py"

    def test_a_function_may_come_last_and_name_its_metric(self) -> None:
        run = self.launch("accuracy", ASYNC)
        self.completes(run)
        metric = run.json("summary.json")["metric"]
        self.assertEqual((metric["name"], metric["value"], metric["better"]), ("accuracy", 0.75, "higher"))

    def test_a_function_that_raises_fails_the_run(self) -> None:
        self.fails(self.launch("evaluation_raises", ASYNC), "ValueError: no such file: held-out.csv")

    def test_a_script_that_asks_for_no_batch_fails_the_run(self) -> None:
        self.fails(self.launch("never_iterates", ASYNC), "iterate over rank.loader(data)")

    def returns(self, kind: str, words: str) -> str:
        return self.fails(self.launch("returns", {**ASYNC, "script.returns": kind}), words)

    def test_a_metric_that_is_not_finite_has_diverged(self) -> None:
        self.assertIn("diverged", self.returns("nan", "accuracy is NaN: training has diverged"))

    def test_what_is_no_evaluation_is_named(self) -> None:
        self.returns("text", "accuracy returned 'good' of str: return a number")
        self.returns("nothing", "accuracy returned None of NoneType: return a number")

    def test_two_metrics_and_unfit_parts_are_refused(self) -> None:
        self.returns("many", "accuracy returned 2 values: return the metric alone")
        self.returns("parts", "part first has 1 baselines, and the evaluation 0")

    def test_experiments_compare_what_it_returns(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "run.toml").write_text(text_of({**ASYNC, "train.samples": 400}))
        command = json.dumps([sys.executable, str(SCRIPTS.with_name(self.scripts)), "by_learning"])
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
    def interrupted(self, run: Run) -> None:
        """In the midst, by Ctrl-C."""
        run.until(lambda: len(run.lines("steps-0-0")) >= 100)
        run.process.send_signal(signal.SIGINT)
        status, text = run.end()
        self.assertEqual(status, 130, text)

    def test_what_a_killed_rank_kept_is_there_again(self) -> None:
        run = self.launch("counts", {**ASYNC, "script.killed": [1, 0]}, groups=[1, 1], samples=1600)
        self.completes(run)
        first, second = run.lines("began-1-0")
        self.assertEqual(first, [0, 0])
        self.assertEqual(second, [19, 19])
        # Each group keeps its own, and the evaluation sees the first one's.
        self.assertEqual(run.lines("began-0-0"), [[0, 0]])
        metric = run.json("summary.json")["metric"]
        self.assertEqual(metric["value"], run.lines("steps-0-0")[-1])

    def test_a_resumed_run_goes_on_with_parameters_data_and_what_it_kept(self) -> None:
        run = self.launch("counts", {**ASYNC, "liveness.notice_ms": 120_000}, samples=40_000)
        self.interrupted(run)
        steps = run.lines("steps-0-0")[-1]
        run.resume("--set", f"train.samples={8 * steps + 800}")
        self.completes(run)
        self.assertEqual(run.lines("began-0-0"), [[0, 0], [steps, steps]])
        # No step was lost or taken twice: all left before the last snapshot.
        self.assertEqual(run.lines("steps-0-0"), list(range(1, steps + 101)))
        summary = run.json("summary.json")
        self.assertEqual(summary["samples"]["applied"], 8 * steps + 800)
        self.assertEqual(summary["metric"]["value"], steps + 100)

    def test_a_damaged_file_is_named_and_passed_over(self) -> None:
        run = self.launch("counts", {**ASYNC, "liveness.notice_ms": 120_000}, samples=40_000)
        self.interrupted(run)
        path = run.told / "run/kept/group-0-rank-0.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        steps = run.lines("steps-0-0")[-1]
        run.resume("--set", f"train.samples={8 * steps + 80}")
        self.completes(run)
        self.assertEqual(run.lines("began-0-0")[1], [0, 0])
        self.assertIn(f"what was kept is passed over: {path.resolve()}: it is damaged", run.log("group-0-rank-0"))

    def test_what_cannot_be_kept_is_refused(self) -> None:
        self.refused("keeps_twice", "'steps' is kept already")
        self.refused("keeps_an_object", "'loader' cannot be kept: ")


class Saved(Case):
    saves: ClassVar[Alone]

    @classmethod
    def setUpClass(cls) -> None:
        """One run for several tests."""
        cls.saves = Alone(command_of(cls.scripts, "saves"), {})
        cls.addClassCleanup(cls.saves.close)
        assert cls.saves.status == 0, cls.saves.text

    def test_a_saved_model_loads_again(self) -> None:
        state = torch.load(self.saves.told / "state.pt")
        saved = tw.load(self.saves.told / "own.safetensors")
        self.assertEqual(list(saved.keys() - state.keys()), [])
        for name, tensor in state.items():
            torch.testing.assert_close(saved[name], tensor, rtol=0, atol=0)
            self.assertEqual(saved[name].dtype, tensor.dtype)

    def test_shards_are_as_hugging_face_has_them(self) -> None:
        state = torch.load(self.saves.told / "state.pt")
        folder = self.saves.told / "sharded"
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

    @unittest.skipUnless(hasattr(checkpoint, "HuggingFaceStorageReader"), "this torch reads no such files")
    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "it reads them by the package safetensors")
    def test_shards_are_read_by_torchs_own_checkpoints(self) -> None:
        state = torch.load(self.saves.told / "state.pt")
        read = {name: torch.zeros_like(tensor) for name, tensor in state.items() if name != "tied.weight"}
        reader = checkpoint.HuggingFaceStorageReader(str(self.saves.told / "sharded"))
        checkpoint.load(read, storage_reader=reader, no_dist=True)
        for name, tensor in read.items():
            torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)

    def test_a_missing_folder_and_a_full_disk_are_named(self) -> None:
        self.refused("saves_nowhere", "cannot save /nowhere/model.safetensors: ")
        full = self.alone("saves_where_it_is_full")
        self.assertEqual(full.status, 1)
        self.assertIn(f"cannot save {full.told}/own.safetensors: ", full.text)
        self.assertEqual(list(full.told.glob("own*")), [])

    def test_a_file_that_is_no_model_is_named(self) -> None:
        header = b'\x1c\0\0\0\0\0\0\0{"a": {"dtype": "F32"}}    '
        for content in (b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"[:9], header):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                with self.assertRaisesRegex(tw.TradewindError, f"{file.name} is no whole file of safetensors"):
                    tw.load(file.name)


class WithoutALauncher(Case):
    #: Which is ignored.
    elsewhere: Keys = {"cluster.servers": 2, "cluster.groups": [2, 2], "script.width": 3}

    def test_a_script_trains_and_evaluates(self) -> None:
        run = self.alone("alone", self.elsewhere)
        text = self.completes(run)
        self.assertIn("this process is the only rank", text)
        self.assertRegex(text, "tradewind: held_out_loss is 0[.]")
        self.assertEqual(run.lines("alone"), [[0, 0, 3, True]])
        self.assertEqual(run.lines("batches"), [1] * 100)
        # Nothing else is on disk.
        self.assertEqual(sorted(path.name for path in run.told.iterdir()), ["alone", "batches", "run.toml"])

    def test_a_debugger_stops_in_it(self) -> None:
        told = Told(self.elsewhere)
        self.addCleanup(told.close)
        done = subprocess.run(
            [sys.executable, "-m", "pdb", SCRIPTS, "alone"],
            env={**os.environ, "TOLD": str(told.told), "RUN": str(told.file)},
            input="b evaluating.loss\nc\np 6 * 7\ncl 1\nc\nq\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertIn("42", done.stdout)
        self.assertIn("held_out_loss is", done.stdout)

    def test_a_file_that_is_no_runs_is_named(self) -> None:
        self.refused("alone", "run.toml", {"train": 5})
        self.refused("alone", "TradewindError", {"local.algorithm": "diloco"})
        code = "import tradewind as tw\ntw.join('nowhere.toml')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("TradewindError: cannot read the configuration nowhere.toml", done.stderr)


if __name__ == "__main__":
    unittest.main()
