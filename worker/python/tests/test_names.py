"""Torch's names in scripts: RANK and so on, of a rank in its group."""

import os
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from runs import ASYNC, Keys, Run, RunCase

from tradewind import TradewindError, _names


class Names(RunCase):
    scripts = "naming.py"

    def sums(self, run: Run, rank: str) -> set[float]:
        lines = run.lines(f"sums-{rank}")
        self.assertTrue(lines, rank)
        return set(lines)

    def test_a_script_adds_its_own_numbers_in_its_group(self) -> None:
        run = self.launch("gathers", groups=[2, 2])
        self.completes(run)
        ports = []
        for group, total in ((0, 1), (1, 21)):
            for rank in (0, 1):
                self.assertEqual(self.sums(run, f"{group}-{rank}"), {total})
                (names,) = run.lines(f"names-{group}-{rank}")
                ports.append(names.pop("MASTER_PORT"))
                self.assertTrue(names.pop("MASTER_ADDR"))
                own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
                self.assertEqual(names, own)
        self.assertEqual((ports[0], ports[2]), (ports[1], ports[3]))
        self.assertNotEqual(ports[0], ports[2])
        # The script that evaluates is alone, whatever the file says.
        (names,) = run.lines("names-evaluation")
        self.assertEqual((names["RANK"], names["WORLD_SIZE"]), ("0", "1"))
        self.assertEqual(self.sums(run, "evaluation"), {0})

    def check_anew(self, killed: int, keys: Keys) -> None:
        """A rank of group 1 dies: both of its ranks begin anew, with names of their own, and no other does."""
        keys = {**ASYNC, "pace.step_seconds": 0.05, "script.killed": [1, killed], **keys}
        run = self.launch("gathers", keys, groups=[1, 2], samples=4000)
        happened = self.completes(run) + run.logs()
        self.assertEqual(len(run.lines("names-0-0")), 1, happened)
        last = set()
        for rank in ("1-0", "1-1"):
            ports = [names["MASTER_PORT"] for names in run.lines(f"names-{rank}")]
            self.assertGreater(len(set(ports)), 1, happened)
            last.add(ports[-1])
            self.assertEqual(self.sums(run, rank), {21})
        self.assertEqual(len(last), 1)
        log = run.log(f"group-1-rank-{1 - killed}")
        told = "has a new process, and torch's names are of its former one" if killed else "rank 0 of group 1 has ended"
        if keys.get("script.sums") is False:
            self.assertIn(told, log)

    def test_where_a_rank_dies_between_collectives_the_group_begins_anew(self) -> None:
        self.check_anew(1, {"script.sums": False})

    def test_where_the_first_rank_dies_the_group_begins_anew(self) -> None:
        self.check_anew(0, {"script.sums": False})

    def test_where_a_rank_dies_and_others_wait_in_a_collective_the_group_begins_anew(self) -> None:
        self.check_anew(1, {})

    def test_nobody_looks_at_the_store_while_the_interpreter_ends(self) -> None:
        run = self.launch("ends_while_it_is_watched", groups=[2])
        text = self.completes(run)
        self.assertNotIn("signal", text + run.logs())
        self.assertEqual(run.lines("names-0-0")[0]["WORLD_SIZE"], "2")

    def test_a_script_that_is_alone_is_a_group_of_one(self) -> None:
        run = self.alone("gathers")
        self.completes(run)
        (names,) = run.lines("names-0-0")
        self.assertEqual((names["RANK"], names["WORLD_SIZE"]), ("0", "1"))
        self.assertEqual(set(run.lines("sums-0-0")), {0})

    def test_without_asking_a_script_sees_no_names(self) -> None:
        others = {"RANK": "7", "WORLD_SIZE": "9", "PMI_RANK": "7", "SLURM_PROCID": "7", "TORCHELASTIC_RUN_ID": "x"}
        with mock.patch.dict(os.environ, others):
            run = self.launch("asks_for_nothing")
        run.until(lambda: bool(run.lines("seen")))
        self.assertEqual(run.lines("seen")[0], [])

    def test_ranks_that_do_not_come_are_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(_names, "_WAIT_SECONDS", 0.3):
            native = types.SimpleNamespace(folder=folder, host="127.0.0.1", ranks=3)
            rank = types.SimpleNamespace(_native=native, evaluating=False, group=1, group_size=3, rank=0)
            words = "rank 1, rank 2 of group 1 did not come within 0 s, and torch_names=True needs all ranks"
            with self.assertRaisesRegex(TradewindError, words):
                _names.Names(rank)
            # What it has left behind leads nobody astray.
            self.assertTrue(Path(folder, "names/group-1.json").exists())
            rank.rank = 2
            with self.assertRaisesRegex(TradewindError, "^rank 0 of group 1 did not come"):
                _names.Names(rank)


if __name__ == "__main__":
    unittest.main()
