"""Scripts without PyTorch in real runs."""

import unittest

import numpy as np

from array_scripts import gradients_of, initial, lines
from runs import RunCase


class Arrays(RunCase):
    scripts = "array_scripts.py"

    def test_groups_of_one_equal_one_process_on_all_their_batches(self) -> None:
        run = self.launch("train", {"cluster.servers": 2}, groups=[1, 1], samples=1600)
        self.completes(run)
        x, y = lines()
        values = initial()
        for numbers in zip(run.lines("batches-0"), run.lines("batches-1")):
            together = [number for batch in numbers for number in batch]
            self.assertEqual(len(set(together)), 16)
            _, gradients = gradients_of(values, x[together], y[together])
            values = {name: array - np.float32(0.05) * gradients[name] for name, array in values.items()}
        for group in (0, 1):
            (ours,) = run.lines(f"values-{group}")
            for name, plain in values.items():
                np.testing.assert_allclose(ours[name], plain, rtol=1e-4, atol=1e-5)
        metric = run.json("summary.json")["metric"]
        self.assertEqual(metric["name"], "squared_error")
        self.assertAlmostEqual(metric["value"], gradients_of(values, x, y)[0], places=5)
        self.assertTrue((run.told / "run/model.safetensors").exists())
        self.assertLess(float(np.abs(values["bias"] - 1)), 0.2, "it has learned")

    def test_arrays_of_others_are_read_by_pythons_protocol_or_dlpacks(self) -> None:
        run = self.alone("lends")
        self.completes(run)
        x, y = lines()
        values = initial()
        for batch in run.lines("batches-0"):
            _, gradients = gradients_of(values, x[batch], y[batch])
            values = {name: array - np.float32(0.05) * gradients[name] for name, array in values.items()}
        (ours,) = run.lines("values-0")
        for name, plain in values.items():
            np.testing.assert_allclose(ours[name], plain, rtol=1e-4, atol=1e-5)
        self.refused("on_a_gpu", "weight cannot be read in main memory: ")

    def test_a_group_of_two_ranks_needs_torch(self) -> None:
        self.refused("train", "cluster.groups = [1, 1]", of=[2])

    def test_a_group_that_leaves_has_left(self) -> None:
        status, text = self.launch("leaves").end()
        self.assertNotEqual(status, 0, text)
        self.assertNotIn("without progress", text)

    def test_the_end_before_the_budget_is_a_failure(self) -> None:
        self.refused("stops_early", "call rank.leave()", of=[1])

    def test_batches_are_of_samples_that_are_counted(self) -> None:
        self.refused("batches_first", "call rank.share(arrays, samples=…) first")

    def test_a_gradient_in_f64_is_named(self) -> None:
        self.refused("doubles", "weight is float64, not float32")

    def test_a_gradient_of_another_shape_is_named(self) -> None:
        self.refused("wrong_shape", "the gradient of weight has shape (2, 4), and weight has (8,)")

    def test_gradients_of_other_names_are_told(self) -> None:
        self.refused("wrong_names", "gradients are of weights, and rank.share has weight, bias")

    def test_what_fails_again_and_again_ends_the_run(self) -> None:
        # At the same time: each waits between its processes.
        raises, stranger = self.launch("always_raises"), self.launch("never_joins")
        for run, words in ((raises, "ValueError: a mistake of the script"), (stranger, "tradewind.join()")):
            status, text = run.end()
            self.assertNotEqual(status, 0, text)
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
