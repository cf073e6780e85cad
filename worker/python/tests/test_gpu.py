"""Scripts on GPUs that are played in main memory: CONTRIBUTING.md says how."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import eager  # noqa: F401
import torch

from runs import ASYNC, ROOT, RunCase

#: Status of the script that builds them, where CUDA's headers are missing.
NO_HEADERS = 77


@unittest.skipUnless(torch.__version__.startswith("2.11.") and torch.version.cuda, "they are played for CUDA 13")
class Gpus(RunCase):
    scripts = "gpu_scripts.py"

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        libraries = Path(torch.__file__).with_name("lib")
        built = subprocess.run(
            [ROOT / "tests/fake/gpu/build.sh", libraries, folder.name], stderr=subprocess.PIPE, text=True
        )
        if built.returncode == NO_HEADERS:
            raise unittest.SkipTest(built.stderr)
        if built.returncode:
            raise AssertionError(built.stderr)
        played = {"LD_PRELOAD": ":".join(map(str, Path(folder.name).glob("lib*"))), "FAKE_GPUS": "2"}
        os.environ.update(played)
        for name in played:
            cls.addClassCleanup(os.environ.pop, name)

    def test_a_rank_uses_its_own_gpu_alone(self) -> None:
        for mode in ({}, {"exchange.per_bucket": True}):
            with self.subTest(mode=mode):
                run = self.launch("train", {**ASYNC, **mode}, groups=[1, 1], samples=400)
                self.completes(run)
                for gpu in range(2):
                    self.assertEqual(run.lines(f"contexts-{gpu}"), [[gpu]])


if __name__ == "__main__":
    unittest.main()
