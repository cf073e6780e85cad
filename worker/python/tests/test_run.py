"""Scripts in real runs. `make python-test` sets up what they need."""

import json
import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

import torch

import tradewind as tw
from runs import ASYNC, Alone, Run, RunCase
from scripts import SLOW, Lines, loss_of, model


class Runs(RunCase):
    def equals_the_plain_loop(self, run: Run | Alone, ranks: list[str], **tolerance: float) -> None:
        """The ranks have what one process has after steps with all their batches."""
        net, data = model(), Lines()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for numbers in zip(*(run.lines(f"batches-{rank}") for rank in ranks), strict=True):
            opt.zero_grad()
            together = [number for batch in numbers for number in batch]
            self.assertEqual(len(set(together)), 8 * len(ranks))
            loss_of(net, [data.x[together], data.y[together], None]).backward()
            opt.step()
        for rank in ranks:
            (values,) = run.lines(f"values-{rank}")
            for ours, plain in zip(values, net.parameters(), strict=True):
                torch.testing.assert_close(torch.tensor(ours), plain.detach().flatten(), **tolerance)

    def test_one_rank_equals_the_plain_loop(self) -> None:
        run = self.alone("train")
        self.completes(run)
        batches = run.lines("batches-0-0")
        self.assertEqual(len(batches), 100)
        # The first epoch has every sample once.
        first = [number for batch in batches[:32] for number in batch]
        self.assertEqual(sorted(first), list(range(256)))
        self.equals_the_plain_loop(run, ["0-0"], rtol=1e-5, atol=1e-6)

    def test_groups_of_ranks_equal_one_process_on_all_their_batches(self) -> None:
        run = self.launch("train", {"cluster.servers": 2, "script.workers": 2}, groups=[2, 1], samples=1200)
        text = self.completes(run)
        self.assertEqual(len(run.lines("batches-0-0")), 50)
        self.equals_the_plain_loop(run, ["0-0", "0-1", "1-0"], rtol=1e-4, atol=1e-5)
        # Without an evaluation there is no metric, and the model.
        self.assertIn("the script has registered no function with @rank.evaluate", text)
        self.assertIsNone(run.json("summary.json")["metric"])
        model().load_state_dict(tw.load(run.told / "run/model.safetensors"), strict=True)

    def test_workers_of_a_loader_fetch_ahead_what_is_leased(self) -> None:
        run = self.launch("train", {**ASYNC, "script.workers": 1}, groups=[2, 1], samples=1600)
        self.completes(run)
        used = [number for rank in ("0-0", "0-1", "1-0") for batch in run.lines(f"batches-{rank}") for number in batch]
        self.assertGreaterEqual(len(used), 1600)
        # Epochs are dealt evenly: none is used twice as often as another.
        counts = [used.count(number) for number in range(256)]
        self.assertGreaterEqual(min(counts), 3, counts)
        self.assertLessEqual(max(counts), 9, counts)

    def test_waiting_for_batches_is_counted_apart_from_computing(self) -> None:
        run = self.launch("train", {"script.slow": True}, groups=[1], samples=160)
        self.completes(run)
        records = [record for record in run.lines("run/metrics.jsonl") if "clock" in record]
        self.assertEqual(len(records), 20)
        parts = ("data_seconds", "compute_seconds", "reduce_seconds", "exchange_seconds", "wait_seconds")
        for before, record in zip([None, *records], records):
            self.assertGreaterEqual(record["data_seconds"], 8 * SLOW)
            if before:
                # Nothing is counted twice: a step begins when the one before it has ended.
                begun = record["wall"] - sum(record[part] for part in parts)
                self.assertGreater(begun, before["wall"] - 1e-3)

    def test_a_loader_for_each_epoch_goes_on_where_the_one_before_was_given_up(self) -> None:
        for consistency in ("sync", "async"):
            run = self.alone("loader_each_epoch", {"train.consistency": consistency}, samples=2048)
            self.assertNotIn("again", self.completes(run))
            used = [number for batch in run.lines("batches-0-0") for number in batch]
            for epoch in range(8):
                self.assertEqual(sorted(used[256 * epoch : 256 * (epoch + 1)]), list(range(256)), consistency)

    def test_a_rank_that_is_killed_comes_back_and_the_run_completes(self) -> None:
        run = self.launch("train", {**ASYNC, "script.killed": [1, 1]}, groups=[1, 2], samples=1600)
        text = self.completes(run)
        self.assertIn("rank 1 of group 1 was killed by signal 9", text)
        self.assertIn("broken", run.log("group-1-rank-0"))
        self.assertTrue(run.lines("values-1-1"), "the killed rank's next process was there at the end")

    def test_a_group_that_forms_again_at_its_end_has_no_process_started_again(self) -> None:
        run = self.launch("finishes_while_another_returns", ASYNC, groups=[2], samples=1600)
        text = self.completes(run)
        self.assertIn("rank 1 of group 0 was killed by signal 9", text)
        self.assertNotIn("rank 0 of group 0 ended", text)
        self.assertEqual(len(run.lines("ended-0")), 1, text)

    def test_a_rank_that_comes_back_when_the_others_are_done_ends_by_itself(self) -> None:
        keys = {**ASYNC, "liveness.reform_grace_ms": 500, "liveness.start_grace_ms": 600_000}
        run = self.launch("returns_when_the_others_are_done", keys, groups=[2], samples=1600)
        text = self.completes(run)
        self.assertIn("rank 1 of group 0 was killed by signal 9; restarted", text)
        self.assertEqual((len(run.lines("ended-0")), len(run.lines("ended-1"))), (1, 1), text)

    def test_a_rank_that_hangs_and_a_server_that_dies_are_survived(self) -> None:
        keys = {"cluster.servers": 3, "servers.replication": 2, "pace.step_seconds": 0.05}
        lease = {"liveness.lease_ms": 2000, "liveness.heartbeat_ms": 400}
        run = self.launch("hangs_and_loses_a_server", {**keys, **lease}, groups=[2], samples=2400)
        text = self.completes(run)
        self.assertRegex(text, "rank 1 of group 0 .*restarted")
        self.assertIn("server 0 was killed by signal 9", text)
        self.assertGreaterEqual(run.json("summary.json")["samples"]["applied"], 2400)
        self.assertEqual(run.lines("values-0-0")[-1], run.lines("values-0-1")[-1])

    def test_threads_of_a_script_run_while_it_waits(self) -> None:
        keys = {"liveness.start_grace_ms": 3_600_000}
        self.completes(self.launch("computes_while_it_waits", keys, groups=[1, 1], samples=160))

    def test_a_script_that_waits_hears_ctrl_c(self) -> None:
        run = self.launch("is_interrupted", groups=[1, 1])
        events = run.told / "run/events.jsonl"
        run.until(lambda: events.exists() and "group 0 is together" in events.read_text())
        os.kill(run.lines("waits")[0], signal.SIGINT)
        run.until(lambda: run.lines("interrupted") == [True])
        run.close()

    def test_a_worker_of_a_loader_dies_with_its_rank(self) -> None:
        run = self.alone("tells_signals", samples=16)
        self.completes(run)
        self.assertEqual(run.lines("signals"), [[signal.SIGKILL]] * 2)
        # The script's own beginning of a worker is called, too.
        self.assertEqual(run.lines("began"), [0])

    def test_threads_are_one_a_rank_or_as_many_as_a_person_says_and_an_evaluation_has_all(self) -> None:
        cores = min(2, len(os.sched_getaffinity(0)))
        # Torch takes no more threads than there are cores.
        for said, training, evaluation in ((None, 1, cores), (str(cores), cores, cores)):
            with mock.patch.dict(os.environ):
                os.environ.pop("OMP_NUM_THREADS", None)
                if said is not None:
                    os.environ["OMP_NUM_THREADS"] = said
                run = self.launch("tells_threads", groups=[2], samples=32, forked=False)
            self.completes(run)
            self.assertEqual(run.lines("training"), [[str(training), training]] * 2)
            self.assertEqual(run.lines("evaluation"), [[str(evaluation), evaluation]])

    def test_few_samples_are_fetched_ahead_no_further_than_a_group_may_lease(self) -> None:
        keys = {**ASYNC, "train.batch": 1, "train.chunk_samples": 64}
        run = self.launch("few_samples", {**keys, "script.samples": 2, "script.workers": 2}, samples=40)
        self.completes(run)
        kinds = [json.loads(line)["kind"] for line in (run.told / "run/events.jsonl").read_text().splitlines()]
        self.assertEqual(kinds.count("group_formed"), 1, kinds)
        words = "num_workers times prefetch_factor is 8, and a group may ask for 5 batches ahead, of data of 2 samples"
        self.refused("few_samples", words, {**keys, "script.samples": 2, "script.workers": 4})

    # The Gloo of torch 2.4 keeps the time-out that it met with.
    @unittest.skipIf(torch.__version__.startswith("2.4."), "docs/pytorch.md says what holds there")
    def test_a_rank_that_takes_longer_than_its_lease_for_a_step_keeps_its_group(self) -> None:
        lease = {"liveness.lease_ms": 1000, "liveness.heartbeat_ms": 200}
        run = self.launch("pauses", {**lease, "script.pause": 2.5}, groups=[2])
        self.completes(run)
        kinds = [json.loads(line)["kind"] for line in (run.told / "run/events.jsonl").read_text().splitlines()]
        self.assertEqual(kinds.count("group_formed"), 1, kinds)

    def test_a_rank_that_leaves_has_left(self) -> None:
        # It tells a launcher that the group has left.
        self.assertEqual(self.alone("leaves").status, 5)

    def test_a_run_that_diverges_is_not_tried_again(self) -> None:
        status, text = self.launch("diverges", samples=80_000).end()
        self.assertNotEqual(status, 0, text)
        self.assertIn("diverged", text)
        self.assertNotIn("restarted", text)

    def test_the_end_before_the_budget_is_a_failure(self) -> None:
        self.refused("stops_early", "call rank.leave()")

    def test_a_step_needs_backward(self) -> None:
        self.refused("without_backward", "call loss.backward() before opt.step()")

    def test_an_unused_parameter_is_named(self) -> None:
        self.refused("unused", "backward has not reached unused.weight, unused.bias: ", of=[1])

    def test_what_another_process_would_meet_ends_the_run_at_once(self) -> None:
        run = self.launch("unused", groups=[1, 1])
        status, text = run.end()
        self.assertNotEqual(status, 0, text)
        self.assertIn("backward has not reached unused.weight", text)
        self.assertNotIn("restarted", text)

    def test_a_second_join_is_refused(self) -> None:
        self.refused("twice", "call tradewind.join() once and keep the rank")

    def test_a_rate_of_ones_own_is_refused(self) -> None:
        self.refused("own_rate", "set optimizer.learning_rate and schedule.*")

    def test_another_batch_is_refused(self) -> None:
        self.refused("another_batch", "batch_size is 5, and train.batch of the run's file 8")

    def test_more_ahead_than_a_group_may_lease_is_refused(self) -> None:
        self.refused("far_ahead", "num_workers times prefetch_factor is 100, and a group may ask for", ASYNC)

    def test_what_the_run_decides_is_refused(self) -> None:
        self.refused("shuffles", "shuffle is the run's to decide")


class WithoutALauncher(unittest.TestCase):
    def test_the_way_is_named(self) -> None:
        code = "import sys, tradewind as tw\nassert 'torch' not in sys.modules\ntw.join()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tradewind run run.toml -- python", done.stderr)


if __name__ == "__main__":
    unittest.main()
