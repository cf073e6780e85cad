"""What a script's model may be made of, and the keys of the run's file that act on its tensors."""

import json
import subprocess
import unittest
from collections.abc import Callable

import torch

import tensor_scripts
from runs import COMMAND, Alone, Keys, Run, RunCase
from scripts import Lines

#: Of groups of two ranks and of one, of the first of them, and of a rank that is alone.
RANKS = ["0-0", "0-1", "1-0"]
PAIR = RANKS[:2]
ALONE = RANKS[:1]
PLAIN: Keys = {"script.model": "plain"}
#: So small that tensors span blocks and buckets.
SMALL: Keys = {"exchange.block_bytes": 64, "exchange.bucket_bytes": 128}
PER_BUCKET: Keys = {"exchange.per_bucket": True}
SCATTER: Keys = {"exchange.reduce": "scatter"}
LARS: Keys = {"optimizer.name": "lars", "optimizer.trust": 0.1}

#: Makes new values of values and their gradient.
Update = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Tensors(RunCase):
    scripts = "tensor_scripts.py"

    def trained(self, model: str, keys: Keys = {}, *, ranks: list[str] = RANKS, samples: int = 1200) -> Run | Alone:
        keys = {"cluster.servers": 2, "script.model": model, **keys}
        if ranks == ALONE:
            run = self.alone("train", keys, samples=samples)
        else:
            run = self.launch("train", keys, groups=[2, 1] if ranks == RANKS else [2], samples=samples)
        self.completes(run)
        return run

    def state(self, run: Run | Alone, rank: str) -> dict[str, torch.Tensor]:
        (state,) = run.lines(f"state-{rank}")
        return {name: torch.tensor(values) for name, values in state.items()}

    def equals(
        self, run: Run | Alone, model: str, update: Update, ranks: list[str] = RANKS, **tolerance: float
    ) -> None:
        """The ranks have what one process has that takes `update`s with the mean gradient of their batches."""
        net, data = tensor_scripts.MODELS[model](), Lines()
        masters = {name: p.detach().float() for name, p in net.named_parameters() if p.requires_grad}
        for numbers in zip(*(run.lines(f"batches-{rank}") for rank in ranks)):
            gradients = {name: torch.zeros_like(master) for name, master in masters.items()}
            for batch in numbers:
                tensor_scripts.loss_of(net, data.x[batch], data.y[batch]).backward()
                for name, parameter in net.named_parameters():
                    if name in masters:
                        gradients[name] += parameter.grad.float() / len(numbers)
                        parameter.grad = None
            for name, parameter in net.named_parameters():
                if name in masters:
                    masters[name] = update(masters[name], gradients[name])
                    parameter.data.copy_(masters[name])
        for rank in ranks:
            state = self.state(run, rank)
            for name, want in net.state_dict().items():
                torch.testing.assert_close(state[name], want.float(), **tolerance)

    def sgd(self, values: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return values - 0.05 * gradient

    def test_a_gradient_that_leaves_bucket_by_bucket_is_the_same(self) -> None:
        run = self.trained("plain", {**PER_BUCKET, **SMALL})
        self.equals(run, "plain", self.sgd, rtol=1e-4, atol=1e-5)

    def test_a_gradient_of_which_each_rank_has_a_part_is_the_same(self) -> None:
        run = self.trained("plain", {**SCATTER, **SMALL})
        self.equals(run, "plain", self.sgd, rtol=1e-4, atol=1e-5)

    @unittest.skipIf(hasattr(torch.Tensor, "grad_dtype"), "this torch gives tensors in bf16 gradients in f32")
    def test_a_model_in_bf16_is_refused_where_torch_gives_it_no_gradient_in_f32(self) -> None:
        run = self.alone("train", {"script.model": "mixed"})
        self.assertNotEqual(run.status, 0)
        self.assertIn("gives it no gradient of f32: update it", run.text)

    @unittest.skipUnless(hasattr(torch.Tensor, "grad_dtype"), "this torch gives tensors in bf16 no gradients in f32")
    def test_a_model_in_bf16_has_masters_in_f32(self) -> None:
        def update(values: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
            return values - 0.0002 * gradient

        for ranks in (ALONE, PAIR):
            # A step is less than a bit of most parameters.
            keys = {"optimizer.learning_rate": 0.0002}
            run = self.trained("mixed", keys, ranks=ranks, samples=1600 * len(ranks))
            self.equals(run, "mixed", update, ranks, rtol=0.01, atol=1e-4)
            state, begin = self.state(run, "0-0"), tensor_scripts.mixed().state_dict()
            moved = (state["first.weight"] != begin["first.weight"].float()).float().mean().item()
            self.assertGreater(moved, 0.5, "parameters in bf16 stand still without masters")

    def test_frozen_and_tied_parameters_and_the_norms_of_whole_tensors(self) -> None:
        def update(values: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
            return values - 0.05 * 0.1 * values.norm() / gradient.norm() * gradient

        keys = {**LARS, "optimizer.weight_decay": 0, **SMALL}
        for ranks in (ALONE, PAIR):
            run = self.trained("tied", keys, ranks=ranks)
            self.equals(run, "tied", update, ranks, rtol=1e-4, atol=1e-5)
            state = self.state(run, ranks[-1])
            torch.testing.assert_close(state["last.weight"], state["first.weight"], rtol=0, atol=0)
        exported = subprocess.run([COMMAND, "status", run.told / "run"], capture_output=True, text=True)
        self.assertNotIn("base", exported.stdout)

    def test_only_statistics_travel(self) -> None:
        run = self.trained("statistics")
        states = [self.state(run, rank) for rank in RANKS]
        for state in states:
            self.assertTrue((state["mask"] == float("-inf")).all())
            torch.testing.assert_close(state["table"], torch.tensor([0.1, 0.2, 0.7]), rtol=0, atol=0)
            self.assertEqual(state["1.num_batches_tracked"].item(), 50)
            torch.testing.assert_close(state["1.running_mean"], states[0]["1.running_mean"], rtol=0, atol=0)
        self.assertGreater(states[0]["1.running_mean"].abs().max().item(), 0)

    def test_staging_changes_no_bit(self) -> None:
        clip: Keys = {"script.clip": 0.1}
        overlap: Keys = {"train.overlap": 1, **LARS}
        cases = [(ALONE, clip), (ALONE, overlap), (ALONE, PER_BUCKET), (PAIR, {**clip, **overlap}), (RANKS, PER_BUCKET)]
        for ranks, keys in cases:
            with self.subTest(ranks=ranks, keys=keys):
                keys, samples = {**keys, **SMALL}, 160 * len(ranks)
                shared = self.trained("statistics", keys, ranks=ranks, samples=samples)
                staged = self.trained("statistics", {**keys, "script.staged": True}, ranks=ranks, samples=samples)
                for rank in ranks:
                    self.assertGreaterEqual(len(shared.lines(f"batches-{rank}")), 20)
                    self.assertEqual(shared.lines(f"batches-{rank}"), staged.lines(f"batches-{rank}"))
                    self.assertEqual(*(self.pushed(run, rank, keys) for run in (shared, staged)))

    def pushed(self, run: Run | Alone, rank: str, keys: Keys) -> str:
        """What a rank has at the end, without statistics of a step that was not pushed."""
        (state,) = run.lines(f"state-{rank}")
        if "train.overlap" in keys:
            state = {name: values for name, values in state.items() if "running" not in name}
        return json.dumps(state)

    def test_what_the_runs_file_says_of_exchanges_holds_for_scripts(self) -> None:
        slow: Keys = {"train.consistency": "async"}
        cases: list[Keys] = [
            {"exchange.up": "int8", "exchange.down": "bf16"},
            {"exchange.up": "topk", "exchange.topk_fraction": 0.3},
            {"train.overlap": 1},
            {**slow, "staleness.policy": "scale", "optimizer.momentum": 0.5},
            {**slow, "momentum.policy": "closed-loop", "optimizer.momentum": 0.5},
            {"optimizer.name": "larc", "optimizer.trust": 0.1, "schedule.warmup_samples": 80},
        ]
        plain = self.state(self.trained("plain", ranks=ALONE, samples=400), "0-0")
        for keys in cases:
            with self.subTest(keys=keys):
                run = self.trained("plain", {**keys, **SMALL}, ranks=ALONE, samples=400)
                state = self.state(run, "0-0")
                net, data = tensor_scripts.MODELS["plain"](), Lines()
                before = tensor_scripts.loss_of(net, data.x, data.y).item()
                net.load_state_dict(state)
                self.assertLess(tensor_scripts.loss_of(net, data.x, data.y).item(), 0.9 * before)
                # It is another way, and does something.
                self.assertFalse(all(torch.equal(plain[name], values) for name, values in state.items()))

    def test_a_gradient_that_is_too_long_is_shortened(self) -> None:
        most = 0.1
        for keys in ({}, SCATTER):
            with self.subTest(keys=keys):
                run = self.trained("plain", {**keys, **SMALL, "optimizer.clip_norm": most}, ranks=PAIR, samples=320)
                net, data = tensor_scripts.MODELS["plain"](), Lines()
                longer = 0
                for numbers in zip(*(run.lines(f"batches-{rank}") for rank in PAIR)):
                    together = [number for batch in numbers for number in batch]
                    net.zero_grad()
                    tensor_scripts.loss_of(net, data.x[together], data.y[together]).backward()
                    longer += torch.nn.utils.clip_grad_norm_(net.parameters(), most) > most
                    with torch.no_grad():
                        for parameter in net.parameters():
                            parameter.copy_(self.sgd(parameter, parameter.grad))
                self.assertGreater(longer, 10)
                for rank in PAIR:
                    for name, want in net.state_dict().items():
                        torch.testing.assert_close(self.state(run, rank)[name], want, rtol=1e-4, atol=1e-5)

    def test_a_parameter_of_f64_is_named(self) -> None:
        self.refused("doubles", "parameter 0.weight is torch.float64: train in torch.float32, ")

    def test_another_frozen_value_is_named(self) -> None:
        for groups in ([1, 1], [2]):
            self.refused("other_base", "list of frozen tensors: number 1 is base.bias of digest ", of=groups)

    def test_another_tensor_is_named(self) -> None:
        for groups in ([1, 1], [2]):
            self.refused("other_shape", "list of tensors: number 4 is ", of=groups)

    def test_what_has_left_cannot_be_changed(self) -> None:
        words = "the gradient was changed after backward, when exchange.per_bucket had sent it"
        self.refused("train", words, {**PLAIN, **PER_BUCKET, "script.clip": 0.1})

    def test_what_a_rank_has_a_part_of_cannot_be_changed(self) -> None:
        words = "the gradient was changed after backward, and with exchange.reduce"
        self.refused("train", words, {**PLAIN, **SCATTER, "script.clip": 0.1}, of=[2])

    def test_a_second_backward_of_a_batch_that_has_left_is_refused(self) -> None:
        self.refused("backward_twice", "take a step after each backward", PER_BUCKET)

    def test_precision_is_the_scripts(self) -> None:
        self.refused("train", "compute in torch.autocast", {**PLAIN, "compute.precision": "bf16"})
        self.refused("train", "set memory_format in the script", {**PLAIN, "compute.channels_last": True})

    def test_a_gpu_that_is_not_there_is_named(self) -> None:
        words = 'compute.device = "cuda" asks for GPU 0, and torch.cuda sees 0'
        self.refused("train", words, {**PLAIN, "compute.device": "cuda"})


if __name__ == "__main__":
    unittest.main()
