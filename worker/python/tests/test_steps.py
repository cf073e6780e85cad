"""Steps of scripts in real runs: an optimizer of their own, accumulation, GradScaler, and what is refused."""

import subprocess
import sys
import unittest
from collections.abc import Iterator

import torch
from torch import nn

from runs import ASYNC, DILOCO, Alone, Keys, Run, RunCase
from scripts import Lines, loss_of, model

ELASTIC: Keys = {
    "local.algorithm": "easgd",
    "local.steps": 4,
    "optimizer.name": "elastic",
    "optimizer.learning_rate": 0.3,
    "train.consistency": "async",
    "script.attach": True,
}
PAIR = ["0-0", "0-1"]


class Plain:
    """What the scripts compute, without Tradewind: on the batches that a run's ranks have recorded."""

    def __init__(self, run: Run | Alone, ranks: list[str] = PAIR) -> None:
        self.net, self.data = model(), Lines()
        self._batches = [run.lines(f"batches-{rank}") for rank in ranks]

    def batches(self) -> Iterator[list[int]]:
        for numbers in zip(*self._batches, strict=True):
            yield [number for batch in numbers for number in batch]

    def backward(self, numbers: list[int], part: float = 1.0) -> float:
        loss = loss_of(self.net, [self.data.x[numbers], self.data.y[numbers], None])
        (loss * part).backward()
        return float(loss.detach())


class StepCase(RunCase):
    scripts = "steps.py"

    def same(self, run: Run | Alone, net: nn.Module, ranks: list[str] = PAIR) -> None:
        for rank in ranks:
            (values,) = run.lines(f"values-{rank}")
            for ours, plain in zip(values, net.parameters(), strict=True):
                torch.testing.assert_close(torch.tensor(ours), plain.detach().flatten(), rtol=1e-4, atol=1e-5)

    def logged(self, run: Run, losses: list[float], of_exchange: int) -> None:
        """The metrics have the mean loss of each exchange; of the last step it is that of the first rank alone."""
        records = run.lines("run/metrics.jsonl")
        told = torch.tensor([record.get("loss") for record in records if "clock" in record])
        want = torch.tensor(losses).view(-1, of_exchange).mean(1)
        self.assertEqual(len(told), len(want))
        torch.testing.assert_close(told[:-1], want[:-1], rtol=1e-4, atol=1e-5)


class Attached(StepCase):
    def test_diloco_equals_the_plain_algorithm(self) -> None:
        run = self.launch("attaches", DILOCO, groups=[2])
        self.completes(run)
        plain = Plain(run)
        inner = torch.optim.SGD(plain.net.parameters(), lr=0.05, momentum=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 10, gamma=0.5)
        outer_net = model()
        outer = torch.optim.SGD(outer_net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        losses = []
        for number, batch in enumerate(plain.batches(), 1):
            inner.zero_grad()
            losses.append(plain.backward(batch))
            inner.step()
            scheduler.step()
            if number % 4 == 0:
                with torch.no_grad():
                    for own, kept in zip(plain.net.parameters(), outer_net.parameters()):
                        kept.grad = kept - own
                    outer.step()
                    for own, kept in zip(plain.net.parameters(), outer_net.parameters()):
                        own.copy_(kept)
        self.assertEqual(len(losses), 52, "the budget, in whole exchanges")
        self.same(run, plain.net)
        self.assertEqual(run.lines("rates-0-0"), [scheduler.get_last_lr()[0]])
        self.logged(run, losses, 4)

    def test_elastic_averaging_equals_the_plain_algorithm(self) -> None:
        run = self.launch("attaches", ELASTIC, groups=[2])
        self.completes(run)
        plain = Plain(run)
        inner = torch.optim.SGD(plain.net.parameters(), lr=0.05, momentum=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 10, gamma=0.5)
        centre = [parameter.detach().clone() for parameter in plain.net.parameters()]
        for number, batch in enumerate(plain.batches(), 1):
            inner.zero_grad()
            plain.backward(batch)
            inner.step()
            scheduler.step()
            if number % 4 == 0:
                with torch.no_grad():
                    for own, middle in zip(plain.net.parameters(), centre):
                        apart = 0.3 * (own - middle)
                        own.sub_(apart)
                        middle.add_(apart)
        self.same(run, plain.net)

    def test_a_rank_that_is_killed_or_raises_comes_back(self) -> None:
        for keys in (DILOCO, {**ELASTIC, "script.raises": [0, 0]}):
            keys = {**keys, **ASYNC, "script.killed": [0, 1]}
            run = self.launch("attaches_and_dies", keys, groups=[2], samples=1600)
            text = self.completes(run)
            self.assertIn("rank 1 of group 0 was killed by signal 9", text)
            if "script.raises" in keys:
                how = "ended with status 1 (ValueError: a mistake of the script)"
                self.assertIn(f"rank 0 of group 0 {how}; restarted", text)
            # A rank that was done may be started again with its group, and ends once more. With elastic averaging those
            # are other values: the servers', from which its own had kept a distance.
            ends = run.lines("values-0-0"), run.lines("values-0-1")
            self.assertTrue(all(ends), ends)
            self.assertEqual(ends[0][-1], ends[1][-1])

    def test_what_does_not_fit_is_named(self) -> None:
        self.refused("attaches_anyway", "the run's file has no local.algorithm")
        self.refused("takes_theirs", "call rank.attach(model, opt)", DILOCO)
        self.refused("lacks_some", "the optimizer lacks 0.weight, 0.bias: ", DILOCO)
        words = "parameters that are not the model's (group 0, shape [5, 3]; group 0, shape [5])"
        self.refused("has_others", words, DILOCO)

    def test_ranks_with_other_rates_are_told(self) -> None:
        self.refused("own_rates", "such as the learning rate: all ranks set the same", DILOCO, of=[2])

    def test_keys_of_the_inner_optimizer_are_the_scripts(self) -> None:
        status, text = self.launch("attaches", {**DILOCO, "local.learning_rate": 0.1}).end()
        self.assertNotEqual(status, 0)
        self.assertIn("local.learning_rate = 0.1 is the script's to decide", text)


class Start(unittest.TestCase):
    def test_torchs_compiler_is_not_imported(self) -> None:
        script = """
import sys, types, torch
from tradewind._optimizer import Optimizer
net = torch.nn.Linear(2, 1)
Optimizer(None, types.SimpleNamespace(parameters=list(net.named_parameters())))
sys.exit("torch._dynamo" in sys.modules)
"""
        subprocess.run([sys.executable, "-c", script], check=True)


class Accumulation(StepCase):
    def test_batches_of_a_step_add_up(self) -> None:
        keys = {"train.batches_per_step": 3, "script.count": 3}
        run = self.launch("accumulates", keys, groups=[2, 1], samples=1440)
        self.completes(run)
        ranks = [*PAIR, "1-0"]
        plain = Plain(run, ranks)
        opt = torch.optim.SGD(plain.net.parameters(), lr=0.05)
        steps = 0
        for number, batch in enumerate(plain.batches(), 1):
            self.assertEqual(len(set(batch)), 24)
            plain.backward(batch, 1 / 3)
            if number % 3 == 0:
                opt.step()
                opt.zero_grad()
                steps += 1
        self.assertEqual(steps, 20)
        self.same(run, plain.net, ranks)
        # Every sample of the first epoch was used once.
        first = [number for batch in list(plain.batches())[:10] for number in batch]
        self.assertEqual(len(set(first)), 240)

    def test_without_a_bound_a_step_has_as_many_batches_as_are_taken(self) -> None:
        keys = {**ASYNC, "script.count": 2, "script.workers": 1, "train.chunk_samples": 64}
        run = self.launch("accumulates", keys, groups=[2], samples=1600)
        self.completes(run)
        plain = Plain(run)
        opt = torch.optim.SGD(plain.net.parameters(), lr=0.05)
        losses: list[float] = []
        for number, batch in enumerate(plain.batches(), 1):
            losses.append(plain.backward(batch, 1 / 2))
            if number % 2 == 0:
                opt.step()
                opt.zero_grad()
        self.assertEqual(len(losses), 100)
        self.same(run, plain.net)
        self.logged(run, losses, 2)

    def test_local_steps_accumulate_too_and_groups_push_what_they_came_to(self) -> None:
        keys = {**DILOCO, "train.batches_per_step": 2, "script.count": 2}
        run = self.launch("accumulates", keys, groups=[2, 1], samples=1200)
        self.completes(run)
        batches = run.lines("batches-0-0")
        self.assertEqual(len(batches) % 8, 0)
        (first,), (second,), (other,) = (run.lines(f"values-{rank}") for rank in (*PAIR, "1-0"))
        self.assertEqual(first, second)
        self.assertEqual(first, other)

    def test_another_number_of_batches_under_sync_is_refused(self) -> None:
        words = "2 batches were taken for this step, and under train.consistency"
        self.refused("accumulates", words, {"script.count": 2})

    def test_a_rank_that_takes_more_batches_than_others_is_told(self) -> None:
        words = "the ranks of the group have taken different numbers of batches since the last step"
        for no_sync in (True, False):
            for attach in ({}, DILOCO):
                self.refused("one_takes_more", words, {**attach, **ASYNC, "script.no_sync": no_sync}, of=[2])

    def test_a_step_after_backward_without_averaging_is_refused(self) -> None:
        self.refused("always_alone", "the last backward before opt.step() is outside of rank.no_sync()", of=[2])

    def test_more_batches_than_a_group_may_hold_are_refused(self) -> None:
        words = "batches were taken since the last step, beside 0 that are fetched ahead"
        self.refused("too_many", words, ASYNC)


class Overflow(StepCase):
    def overflows(self, keys: Keys) -> Run:
        """All ranks have skipped the steps that overflowed on one of them, with a scaler and without."""
        run = self.launch("overflows", keys, groups=[2])
        self.completes(run)
        for rank in PAIR:
            still = run.lines(f"still-{rank}")
            self.assertEqual([at for at, is_still in enumerate(still, 1) if is_still], [3, 6, 9])
            scales = run.lines(f"scales-{rank}")
            self.assertEqual(scales[:7], [1024.0, 1024.0, 512.0, 512.0, 512.0, 256.0, 256.0])
            self.assertEqual(set(scales[5:]), {256.0})
        norms = run.lines("norms-0-0")
        self.assertEqual(str(norms), str(run.lines("norms-0-1")))
        self.assertEqual(sum(norm != norm or norm == float("inf") for norm in norms), 1)
        self.assertEqual(run.lines("values-0-0"), run.lines("values-0-1"))
        self.assertNotIn("nan", str(run.lines("buffers-0-0")).lower())
        return run

    def test_it_is_skipped_by_all_and_clipped_gradients_are_the_same(self) -> None:
        run = self.overflows({})
        plain = Plain(run)
        opt = torch.optim.SGD(plain.net.parameters(), lr=0.05)
        for number, batch in enumerate(plain.batches(), 1):
            opt.zero_grad()
            if number in (3, 6, 9):
                continue
            plain.backward(batch)
            if number % 2 == 1:
                torch.nn.utils.clip_grad_norm_(plain.net.parameters(), 0.1)
            opt.step()
        self.same(run, plain.net)

    def test_so_it_is_with_an_optimizer_of_the_scripts(self) -> None:
        self.overflows(DILOCO)


class Misuse(StepCase):
    def test_a_scheduler_is_refused_where_servers_have_the_rate(self) -> None:
        self.refused("schedules", "set optimizer.learning_rate and schedule.* in the run's file, instead of a")

    def test_groups_of_parameters_are_refused(self) -> None:
        for script in ("groups_of_parameters", "a_group_more", "other_options"):
            self.refused(script, "optimizer.decay_exempt spares some")

    def test_a_parameter_that_was_replaced_is_named(self) -> None:
        for attach in (DILOCO, {}):
            for how in ("data", "dtype", "object"):
                words = "parameter 0.bias was replaced" if how != "dtype" else "parameter 0.weight was replaced"
                self.refused("replaces", words, {**attach, "script.how": how})

    def test_another_optimizer_is_refused(self) -> None:
        for attach in (DILOCO, {}):
            self.refused("another_optimizer", "a step of another optimizer would change 0.weight", attach)

    def test_a_loader_of_ones_own_is_refused(self) -> None:
        self.refused("own_loader", "no batch was taken yet: iterate over rank.loader(data)")
        self.refused("own_loader_beside", "no batch of rank.loader(data) was taken since the last step")

    def test_a_forked_child_is_refused(self) -> None:
        run = self.alone("forks", samples=24)
        self.completes(run)
        self.assertEqual(run.lines("child"), [3, 3])
        refused = run.lines("refused")
        for name in ("log", "leave", "step", "loader"):
            (line, *_) = [line for line in refused if line.startswith(name)]
            self.assertIn("this process was forked from a rank", line)

    def test_workers_of_a_loader_prepare_samples_and_no_more(self) -> None:
        self.refused("worker_logs", "this process was forked from a rank")

    def test_loaders_end_with_the_budget(self) -> None:
        run = self.alone("outlives", samples=400)
        self.completes(run)
        self.assertEqual(run.lines("after"), [[0, 0, 0]])

    def test_what_a_broken_off_iteration_has_fetched_comes_next(self) -> None:
        for consistency in ("sync", "async"):
            run = self.alone("breaks_off", {"train.consistency": consistency}, samples=160)
            self.completes(run)
            used = [number for batch in run.lines("batches-0-0") for number in batch]
            self.assertEqual(len(set(used)), 160, consistency)

    def test_two_iterations_at_once_are_refused(self) -> None:
        self.refused("two_at_once", "another iteration over this rank's batches has begun")

    def test_a_batch_may_be_taken_before_the_step_of_the_one_before(self) -> None:
        run = self.alone("reads_ahead")
        self.completes(run)
        plain = Plain(run, ["0-0"])
        opt = torch.optim.SGD(plain.net.parameters(), lr=0.05)
        for batch in plain.batches():
            opt.zero_grad()
            plain.backward(batch)
            opt.step()
        self.same(run, plain.net, ["0-0"])

    def test_a_batch_taken_before_a_group_forms_again_is_trained_on_where_it_is_dealt_to(self) -> None:
        # Under sync a step's samples follow from its number, so that a fault changes nothing.
        undisturbed = self.launch("reads_ahead", groups=[2])
        self.completes(undisturbed)
        run = self.launch("reads_ahead", {"script.killed": [0, 1]}, groups=[2])
        text = self.completes(run)
        self.assertIn("rank 1 of group 0 was killed by signal 9", text)
        self.assertIn("taken a batch ahead of its step", run.log("group-0-rank-0"))
        for rank in PAIR:
            ours, plain = run.lines(f"values-{rank}"), undisturbed.lines(f"values-{rank}")
            self.assertTrue(ours)
            for a, b in zip(ours[-1], plain[-1], strict=True):
                torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=1e-6, atol=1e-7)


if __name__ == "__main__":
    unittest.main()
