"""Groups whose model is sharded by FSDP2 evaluate, are saved, and lose ranks."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
from torch.distributed.checkpoint import load

import tradewind as tw
from islands import ALONE, SMALL, HuggingFaceStorageReader, IslandCase, distance, error_of, island_scripts, ranks
from runs import ASYNC, Keys, Run


class Evaluating(IslandCase):
    """A run is evaluated by the ranks of its first island, none of which has the whole model."""

    def check(self, groups: list[int], island: int, keys: Keys = {}) -> Run:
        run = self.trained(groups, keys, 20)
        *_, net = self.in_one_process(run, groups)
        held = {rank: run.lines(f"evaluated-{rank}") for rank in ranks(groups)}
        of_island = {f"{island}-{rank}" for rank in range(groups[island])}
        self.assertEqual({rank for rank, lines in held.items() if lines}, of_island)
        elements = sum(parameter.numel() for parameter in net.parameters())
        self.assertEqual(sum(held[rank][0] for rank in of_island), elements)
        self.assertLess(max(held[rank][0] for rank in of_island), elements)
        # As a file and as a metric it is what was trained.
        saved = tw.load(run.told / "run/model.safetensors")
        self.assertEqual(saved.keys(), net.state_dict().keys())
        self.assertLess(distance(saved, net.state_dict(), list(saved)), 1e-6)
        found = run.json("evaluation.json")
        self.assertEqual(found["parameters"], elements)
        error = found["metric"]["value"]
        self.assertAlmostEqual(error, error_of(net), delta=1e-5 * error)
        self.assertIn(f"parameters by the {groups[island]} ranks of group {island}", run.text)
        return run

    def test_by_an_island_beside_a_rank_with_the_whole_model(self) -> None:
        run = self.check([1, 2], 1, {"evaluation.every_samples": 120})
        lines = (run.told / "run/validation.jsonl").read_text().splitlines()
        found = {line["samples"]: line["measure"]["value"] for line in map(json.loads, lines)}
        # A step has 24 samples.
        nets = enumerate(self.in_one_process(run, [1, 2]), start=1)
        want = {24 * step: error_of(net) for step, net in nets if step % 5 == 0}
        self.assertEqual(found.keys(), want.keys())
        for samples, error in want.items():
            self.assertAlmostEqual(found[samples], error, delta=1e-5 * error)

    def test_a_rank_that_fails_ends_the_evaluation(self) -> None:
        keys = {"script.fails": True, **SMALL}
        run = self.launch("train", keys, groups=[2], samples=160)
        status, text = run.end()
        self.assertEqual(status, 1, text)
        self.assertIn("the evaluation ended with status 1", text)
        self.assertIn("RuntimeError: no good", text)


class Saving(IslandCase):
    def test_a_model_in_shards_is_evaluated_and_saved(self) -> None:
        keys: Keys = {"script.model": "statistics", "script.saves": True}
        run = self.trained([2, 1], keys, 20)
        state = self.same(run, "state", [2, 1])
        net = island_scripts.model()
        folder = run.told / "own"
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertEqual(files, [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))])
        self.assertGreater(len(files), 2)
        # As torch.distributed.checkpoint reads it.
        distributed = net.state_dict()
        load(distributed, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
        self.assertEqual({path.name for path in folder.iterdir()}, {*files, "model.safetensors.index.json"})
        shards = {name: tensor for file in files for name, tensor in tw.load(folder / file).items()}
        one = tw.load(run.told / "own.safetensors")
        for saved in (one, shards, distributed, tw.load(run.told / "run/model.safetensors")):
            net.load_state_dict(saved)
            for name, values in net.state_dict().items():
                # Integers are each rank's own.
                if values.is_floating_point():
                    torch.testing.assert_close(values.flatten(), state[name], rtol=0, atol=0)
        error = error_of(net)
        self.assertAlmostEqual(run.json("summary.json")["metric"]["value"], error, delta=1e-5 * error)


class Memory(IslandCase):
    scripts = "../benches/wide.py"

    def test_a_rank_has_its_part_of_model_and_gradient(self) -> None:
        width, layers = 1000, 24
        wide = {"WIDTH": width, "LAYERS": layers, "PACE": 0, "STEPS": 0}
        # A threshold of the user's would stay as it is.
        own = [name for name in ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES") if name in os.environ]
        with mock.patch.dict(os.environ, {name: str(value) for name, value in wide.items()}):
            for name in own:
                del os.environ[name]
            with tempfile.TemporaryDirectory() as folder:
                os.environ["MEMORY"] = folder
                self.completes(self.launch("island", groups=[2], samples=32, forked=False))
                peaks = {path.name: int(path.read_text()) for path in Path(folder).iterdir()}
        self.assertEqual(set(peaks), {f"{kind}-0-{rank}" for kind in ("training", "evaluation") for rank in (0, 1)})
        part = 2 * 4 * layers * (width * width + width) / 2
        for name, peak in peaks.items():
            self.assertLess(peak, 1.6 * part, name)


class Faults(IslandCase):
    def check(self, keys: Keys) -> str:
        """All ranks of the island, which is group 1, have begun anew, from the servers; the other group has gone on.
        Returns what the launcher and the ranks have told.
        """
        run = self.launch("train", {**ASYNC, "pace.step_seconds": 0.05, **keys}, groups=[1, 2], samples=4000)
        happened = self.completes(run) + run.logs()
        self.assertEqual(len(run.lines("began-0-0")), 1, happened)
        for rank in ("1-0", "1-1"):
            self.assertGreater(len(run.lines(f"began-{rank}")), 1, happened)
            first, *later = run.lines(f"initial-{rank}")
            self.assertTrue(later, happened)
            self.assertTrue(all(state != first for state in later), "it has what was trained meanwhile")
        first, second = (self.state(run, "state", rank) for rank in ("1-0", "1-1"))
        for name, values in first.items():
            self.assertTrue(torch.equal(second[name], values), name)
        return happened

    def test_an_island_with_a_rank_that_is_killed_begins_anew(self) -> None:
        self.check({"script.killed": [1, 1]})

    def test_an_island_with_a_rank_that_hangs_begins_anew(self) -> None:
        happened = self.check({"script.hung": [1, 1], "liveness.lease_ms": 4000})
        # Whoever waits for it in a collective of FSDP2 ends by itself, not when somebody kills the one that hangs.
        self.assertIn("this rank's lease is lost: its process ends", happened)


class Refused(IslandCase):
    def test_a_model_of_another_shape(self) -> None:
        self.refused("is_another", "0.weight", of=[2, 2])

    def test_meshes_and_placements(self) -> None:
        way = "call fully_shard(model, mesh=rank.mesh())"
        for script, words in (
            ("is_not_the_groups_mesh", ("parameter 0.weight is sharded over", "not the mesh of the group's", way)),
            ("has_no_mesh", ("parameter 0.weight is sharded over", "not the mesh of the group's", way)),
            ("is_tensor_parallel", ("parameter 0.weight is a DTensor that fully_shard has not made", way)),
            ("shards_columns", ("parameter 0.weight is placed as Shard(dim=1)", "leave shard_placement_fn out")),
            ("shards_a_part", ("parameter 2.weight is not sharded, and others of the model are", way)),
            ("shards_halves", ("parameter 0.weight is torch.bfloat16", "MixedPrecisionPolicy")),
            ("waits_for_a_mesh", ("rank.mesh() needs PyTorch 2.6 or newer", "this is 2.5.1")),
        ):
            with self.subTest(script):
                run = self.alone(script)
                self.assertEqual(run.status, 1, run.text)
                for told in words:
                    self.assertIn(told, run.text)

    def test_settings_and_steps(self) -> None:
        self.refused("takes_a_step", "leave it out of the run's file", {**ALONE, "exchange.per_bucket": True})
        self.refused("takes_a_step", "lengths of whole tensors", {**ALONE, "optimizer.name": "lars"})
        self.refused("takes_a_step", "the gradient of 0.weight was taken away", {**ALONE, "script.forgets": True})


if __name__ == "__main__":
    unittest.main()
