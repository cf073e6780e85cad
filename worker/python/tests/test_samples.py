"""Samples in files, alone and in runs."""

import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

import tradewind as tw
from built_in import tradewind
from runs import ASYNC, Keys, Run, RunCase
from sample_scripts import prepared

SAMPLES = 64
#: Of files with one sample each, and with several.
ONE, SEVERAL = "number=number,image=image", "number=number[samples],image=image[samples]"


def arrays(samples: int = SAMPLES) -> dict[str, np.ndarray]:
    """Samples with a number, and an image of that number."""
    numbers = np.arange(samples, dtype="i4")
    return {"number": numbers, "image": np.broadcast_to(numbers[:, None, None], (samples, 2, 3)).astype("u1")}


def packed(test: unittest.TestCase, root: Path, *, files: int = 1) -> Path:
    """The same in packed files."""
    folder, out = root / "arrays", root / "packed"
    folder.mkdir()
    for name, values in arrays().items():
        np.save(folder / f"{name}.npy", values)
    tradewind(test, "data", "pack", folder, out, "--files", str(files))
    return out


def damage(folder: Path, sample: int) -> None:
    """Changes a byte of the image of this one, in the packed file that has it."""
    for path in sorted(folder.glob("*.pack")):
        content = bytearray(path.read_bytes())
        at = content.find(bytes([sample]) * 6)
        if at >= 0:
            content[at + 2] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError(f"sample {sample} is nowhere")


class InAFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)


class Forms(InAFolder):
    def test_each_form_has_the_same_samples(self) -> None:
        want = arrays()
        forms: list[tuple[Path, str | None]] = [(packed(self, self.root), None), (self.root / "arrays", None)]
        np.savez(self.root / "samples.npz", **want)
        forms.append((self.root / "samples.npz", None))
        (self.root / "one").mkdir()
        for number in range(SAMPLES):
            with h5py.File(self.root / f"one/{number}.h5", "w") as file:
                for name, values in want.items():
                    file[name] = values[number]
        forms.append((self.root / "one", ONE))
        with h5py.File(self.root / "several.h5", "w") as file:
            for name, values in want.items():
                file[name] = values
        forms.append((self.root / "several.h5", SEVERAL))
        for path, layout in forms:
            with self.subTest(path=path.name):
                samples = tw.Samples(path, layout)
                self.assertEqual(len(samples), SAMPLES)
                read = samples[17]
                self.assertEqual(read.keys(), want.keys())
                for name, values in want.items():
                    self.assertEqual((read[name].dtype, read[name].shape), (values.dtype, values.shape[1:]))
                    np.testing.assert_array_equal(read[name], values[17])
                several = samples.__getitems__([3, 63, 3])
                np.testing.assert_array_equal([sample["number"] for sample in several], [3, 63, 3])
                self.assertIn(f"<64 samples of {path}: ", repr(samples))
                self.assertIn("image u8 [2, 3]", repr(samples))
                # Workers are forked from a process that has the files open.
                batches = list(DataLoader(samples, batch_size=16, num_workers=2, multiprocessing_context="fork"))
                numbers = torch.cat([batch["number"] for batch in batches])
                self.assertEqual(numbers.tolist(), list(range(SAMPLES)))
                np.testing.assert_array_equal(torch.cat([batch["image"] for batch in batches]), want["image"])
                self.assertEqual(samples[5]["number"], 5)

    def test_numbers_are_of_the_kind_that_files_have(self) -> None:
        values = np.array([[-1.5, 2, 100], [0.25, 3, 7]], "f4")
        kinds = {"f32": ("f4", values), "f16": ("f2", values), "bf16": ("f4", values)}
        kinds |= {"i32": ("i4", values.astype("i4")), "i16": ("i2", values.astype("i4")), "u8": ("u1", [[1, 2, 3]] * 2)}
        with h5py.File(self.root / "a.h5", "w") as file:
            for kind, (_, of_kind) in kinds.items():
                file[kind] = of_kind
        layout = ",".join(f"{kind}={kind}[samples]:{kind}" for kind in kinds)
        tradewind(self, "data", "pack", self.root / "a.h5", self.root / "packed", "--layout", layout)
        for samples in (tw.Samples(self.root / "a.h5", layout), tw.Samples(self.root / "packed")):
            for number in range(2):
                for kind, (dtype, of_kind) in kinds.items():
                    read = samples[number][kind]
                    self.assertEqual(read.dtype, np.dtype(dtype), kind)
                    np.testing.assert_array_equal(read, np.asarray(of_kind)[number].astype(dtype), kind)

    def test_rows_vary_as_the_files_say(self) -> None:
        counts = [2, 0, 3]
        for number, count in enumerate(counts):
            with h5py.File(self.root / f"{number}.h5", "w") as file:
                file["boxes"] = np.full((count, 4), number, "f4")
                file["number"] = np.int32(number)
        samples = tw.Samples(self.root, "boxes=boxes[rows<=5],number=number")
        for read in ([samples[number] for number in range(3)], samples.__getitems__([0, 1, 2])):
            self.assertEqual([sample["boxes"].shape for sample in read], [(count, 4) for count in counts])
            np.testing.assert_array_equal(read[2]["boxes"], np.full((3, 4), 2))
            self.assertEqual([int(sample["number"]) for sample in read], [0, 1, 2])


class AsADataSet(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.path = packed(self, self.root)
        self.samples = tw.Samples(self.path)

    def numbers(self, samples: tw.Samples) -> list[int]:
        return [int(sample["number"]) for sample in samples]

    def test_they_are_counted_as_lists_are(self) -> None:
        self.assertEqual(self.numbers(self.samples), list(range(SAMPLES)))
        self.assertEqual(self.samples[-1]["number"], 63)
        self.assertEqual(self.samples[np.int64(5)]["number"], 5)
        for number in (64, -65):
            with self.assertRaisesRegex(IndexError, f"there are samples 0..64, asked for {number}"):
                self.samples[number]

    def test_a_slice_is_samples(self) -> None:
        part = self.samples[10:-4][5:10]
        self.assertEqual(self.numbers(part), list(range(15, 20)))
        self.assertEqual((len(self.samples), len(self.samples[9:3])), (SAMPLES, 0))
        with self.assertRaisesRegex(IndexError, "there are samples 0..5, asked for 5"):
            part[5]
        with self.assertRaisesRegex(tw.TradewindError, "torch.utils.data.Subset"):
            self.samples[::2]

    def test_a_loader_has_the_same_batches_whichever_way_its_workers_start(self) -> None:
        for part, first in ((self.samples, 0), (self.samples[8:], 8), (Subset(self.samples, range(16, 48)), 16)):
            for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
                with self.subTest(first=first, workers=workers, context=context):
                    loader = DataLoader(part, batch_size=8, num_workers=workers, multiprocessing_context=context)
                    batches = list(loader)
                    self.assertEqual(len(batches), len(part) // 8)
                    self.assertEqual(batches[0]["image"].dtype, torch.uint8)
                    self.assertEqual(tuple(batches[0]["image"].shape), (8, 2, 3))
                    got = torch.cat([batch["number"] for batch in batches])
                    self.assertEqual(got.tolist(), list(range(first, first + len(part))))
        # Workers have files of their own: this process reads on.
        self.assertEqual(self.samples[63]["number"], 63)

    def test_they_are_what_a_transform_makes_of_them(self) -> None:
        samples = tw.Samples(self.path, transform=prepared)
        image, number = samples[32]
        self.assertEqual((image.dtype, image[0, 0], number), (np.float32, 0.5, 32))
        self.assertEqual(samples[32:][0][1], 32)

    def test_another_process_opens_them_anew(self) -> None:
        part = tw.Samples(self.path, transform=prepared)[3:]
        text = pickle.dumps(part)
        again = pickle.loads(text)
        self.assertEqual((len(again), again[1][1]), (61, 4))
        shutil.rmtree(self.path)
        with self.assertRaisesRegex(tw.TradewindError, "packed: No such file"):
            pickle.loads(text)[0]


class Refusals(InAFolder):
    def refused(self, words: str, path: Path, layout: str | None = None) -> None:
        with self.assertRaisesRegex(tw.TradewindError, words):
            tw.Samples(path, layout)

    def test_files_that_cannot_be_used(self) -> None:
        self.refused("none: No such file", self.root / "none")
        self.refused("the folder is empty", self.root)
        path = packed(self, self.root)
        self.refused("there is no layout \"depcam\"; perhaps \"deepcam\"", path, "depcam")
        self.refused("leave the layout away", path, "x=x")
        with h5py.File(self.root / "a.h5", "w") as file:
            file["image"] = np.zeros((2, 3))
        self.refused("a.h5.*no data set .*img.*image", self.root / "a.h5", "image=img")

    def test_a_damaged_sample_is_named_whoever_reads_it(self) -> None:
        path = packed(self, self.root, files=2)
        damage(path, 40)
        samples = tw.Samples(path)
        self.assertEqual(samples[39]["number"], 39)
        named = r"sample 40, .*\.pack"
        with self.assertRaisesRegex(tw.TradewindError, named):
            samples[40]
        for context in ("fork", "spawn"):
            loader = DataLoader(samples, batch_size=8, num_workers=1, multiprocessing_context=context)
            with self.assertRaisesRegex(tw.TradewindError, named):
                list(loader)

    def test_a_damaged_sample_is_replaced_by_one_of_the_same_part(self) -> None:
        path = packed(self, self.root)
        damage(path, 40)
        rank: Any = SimpleNamespace(_native=SimpleNamespace(cache=None, replaces_damaged=True))
        samples = tw.Samples(path, rank=rank)
        for begin, end in ((38, 42), (0, 41), (39, 41)):
            instead = samples[begin:end][40 - begin]["number"]
            self.assertIn(instead, set(range(begin, end)) - {40})

    def test_numpy_is_imported_when_it_is_needed(self) -> None:
        code = "import sys, tradewind\nassert 'numpy' not in sys.modules\n"
        code += "sys.modules['numpy'] = None\ntradewind.Samples('.')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("samples need NumPy, which is missing: pip install numpy", done.stderr)


class InRuns(RunCase, InAFolder):
    scripts = "sample_scripts.py"

    def setUp(self) -> None:
        super().setUp()
        self.path = packed(self, self.root, files=4)
        self.cache = self.root / "cache"

    def keys(self, **script: object) -> Keys:
        """Of runs with sets and a cache."""
        return {
            **ASYNC,
            "loader.sets": 4,
            "loader.cache": str(self.cache),
            "loader.cache_bytes": 1 << 20,
            "script.samples": str(self.path),
            **{f"script.{name}": value for name, value in script.items()},
        }

    def read(self, run: Run, *ranks: str) -> list[int]:
        """The numbers of the samples that ranks have trained on, which had what was in their files."""
        pairs = [pair for rank in ranks for batch in run.lines(f"read-{rank}") for pair in batch]
        self.assertTrue(all(number == read for number, read in pairs), pairs)
        return [number for number, _ in pairs]

    def staged(self, run: Run) -> int:
        return sum(group["staged_bytes"] for group in run.json("summary.json")["groups"])

    def bytes_in(self, folder: Path, ending: str) -> int:
        return sum(path.stat().st_size for path in folder.glob(f"*{ending}"))

    def test_each_file_is_copied_once_and_each_sample_read_once_an_epoch(self) -> None:
        for workers, spawn in ((0, False), (1, False), (1, True)):
            with self.subTest(workers=workers, spawn=spawn):
                shutil.rmtree(self.cache, ignore_errors=True)
                keys = self.keys(workers=workers, spawn=spawn)
                first = self.launch("train", keys, samples=3 * SAMPLES)
                self.completes(first)
                read = self.read(first, "0-0")
                for epoch in range(3):
                    self.assertEqual(sorted(read[SAMPLES * epoch : SAMPLES * (epoch + 1)]), list(range(SAMPLES)))
                files = self.bytes_in(self.path, ".pack")
                self.assertEqual((self.bytes_in(self.cache, ".copy"), self.staged(first)), (files, files))
                self.assertIn("files are on this node's disk", first.logs())
        second = self.launch("train", self.keys(), samples=SAMPLES)
        self.completes(second)
        self.assertEqual(self.staged(second), 0, "the copies are there")

    def test_groups_and_a_rank_that_is_killed_share_copies_and_samples(self) -> None:
        keys = {**self.keys(workers=1), "script.killed": [1, 1]}
        run = self.launch("train", keys, groups=[1, 2], samples=20 * SAMPLES)
        self.assertIn("rank 1 of group 1 was killed by signal 9", self.completes(run))
        read = self.read(run, "0-0", "1-0", "1-1")
        self.assertGreaterEqual(len(read), 20 * SAMPLES)
        counts = [read.count(number) for number in range(SAMPLES)]
        # A step that the dead rank took part in may be taken again, and the last epochs are not whole.
        self.assertGreaterEqual(min(counts), 17, counts)
        self.assertLessEqual(max(counts), 24, counts)
        self.assertEqual(self.bytes_in(self.cache, ".copy"), self.bytes_in(self.path, ".pack"))
        self.assertEqual(self.bytes_in(self.cache, ".part"), 0)

    def test_a_damaged_sample_ends_the_run_or_is_replaced(self) -> None:
        damage(self.path, 40)
        keys = self.keys(workers=1)
        for workers in (0, 1):
            ends = self.launch("train", {**keys, "script.workers": workers}, samples=2 * SAMPLES)
            status, text = ends.end()
            self.assertNotEqual(status, 0, text)
            self.assertRegex(text, r"sample 40, .*\.pack")
            self.assertNotIn("restarted", text)
        replaced = self.launch("train", {**keys, "loader.damaged": "replace"}, samples=2 * SAMPLES)
        self.completes(replaced)
        # By the worker that has read it, which was forked.
        self.assertRegex(replaced.logs(), r"left out: sample 40, .*\.pack")
        counts = [self.read(replaced, "0-0").count(number) for number in range(SAMPLES)]
        self.assertEqual((counts[40], sum(counts), sorted(counts)[1]), (0, 2 * SAMPLES, 2))

    def test_without_the_rank_keys_would_have_no_effect(self) -> None:
        words = "open them with tradewind.Samples(path, rank=rank)"
        self.refused("of_no_rank", words, self.keys())
        self.refused("of_no_rank", words, {"script.samples": str(self.path), "loader.damaged": "replace"})


if __name__ == "__main__":
    unittest.main()
