"""deploy/mlperf/time_to_target.py, beside a program that leaves what a run leaves."""

import csv
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy/mlperf/time_to_target.py"

# In the place of `tradewind run CONFIG --out RUN --set …`: its measure falls to 1 / seed in three evaluations, one a
# second, after a first step half a second from the start. With seed 4 it stays at 1.
PROGRAM = """#!{python}
import json, os, sys, time
from pathlib import Path
run = Path(sys.argv[sys.argv.index("--out") + 1])
keys = dict(word.split("=", 1) for word in sys.argv if "=" in word)
assert os.listdir(json.loads(keys["loader.cache"])) == [], "it is to be copied anew"
Path(json.loads(keys["loader.cache"]), "copy").touch()
run.mkdir()
seed, begun = int(keys["run.seed"]), time.time() + 0.5
values = [1, 1, 1] if seed == 4 else [1, 0.5, 1 / seed]
def lines(name, rows):
    (run / name).write_text("".join(json.dumps(row) + "\\n" for row in rows))
lines("validation.jsonl", [
    {{"samples": 10 * n, "samples_applied": [10 * n, 10 * n + 4], "wall": begun + n,
      "measure": {{"name": "validation MAE", "value": value}}}} for n, value in enumerate(values, 1)])
lines("metrics.jsonl", [
    {{"wall": begun + n + 1, "data_seconds": 0.25, "compute_seconds": 0.5, "reduce_seconds": 0.25, "exchange_seconds": 0,
      "wait_seconds": 0}} for n in range(3)])
(run / "summary.json").write_text(json.dumps({{
    "wall_seconds": 4, "version": "0", "metric": {{"value": 0.3, "validation": {{"value": values[-1]}}}},
    "groups": [{{"staged_bytes": 5, "staged_seconds": 0.5}}, {{"staged_bytes": 6, "staged_seconds": 0.25}}]}}))
"""


class TimeToTarget(unittest.TestCase):
    def measure(self, target: list[str], seeds: str) -> tuple[str, list[dict[str, str]]]:
        """What it says, and the rows of its table."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "data").mkdir()
            (root / "data/file").write_bytes(b"samples")
            (root / "small.toml").write_text('[data]\nfolder = "data"\n')
            program = root / "tradewind"
            program.write_text(PROGRAM.format(python=sys.executable))
            program.chmod(0o755)
            words = [sys.executable, SCRIPT, root / "small.toml", *target, "--every-samples", "10"]
            words += ["--tradewind", program, "--out", root / "out", "--seeds", *seeds.split()]
            ended = subprocess.run(words, check=True, capture_output=True, text=True)
            self.assertFalse((root / "out/cache").exists(), "copies are not kept")
            with open(root / "out/small.csv") as file:
                return ended.stdout, list(csv.DictReader(file))

    def test_seconds_count_from_the_start_of_the_command(self) -> None:
        told, rows = self.measure(["--at-most", "0.5"], "2 3")
        self.assertIn("the mean of 2 runs, all of them", told)
        for row in rows:
            # The second evaluation is 2 s after a step that began half a second after the program did.
            self.assertGreaterEqual(float(row["seconds_to_target"]), 2.5)
            before = float(row["seconds_to_target"]) - float(row["seconds_to_first_step"])
            self.assertAlmostEqual(before, 2.0, delta=0.02)
            known = [row[key] for key in ["samples_to_target", "staged_bytes", "staged_seconds", "target"]]
            self.assertEqual(known, ["24", "11", "0.75", "validation MAE <= 0.5"])

    def test_a_run_that_misses_the_target_is_not_averaged_away(self) -> None:
        told, rows = self.measure(["--at-most", "0.5"], "2 4")
        self.assertIn("1 of 2 runs reached the target: there is no time", told)
        self.assertEqual([row["seconds_to_target"] != "" for row in rows], [True, False])
        told, _ = self.measure(["--at-least", "0.9"], "1")
        self.assertIn("validation MAE >= 0.9", told)

    def test_of_five_runs_the_fastest_and_the_slowest_are_left_out(self) -> None:
        told, _ = self.measure(["--at-most", "0.5"], "2 3 5 6 7")
        self.assertIn("the mean of 5 runs, without the fastest and the slowest", told)


if __name__ == "__main__":
    unittest.main()
