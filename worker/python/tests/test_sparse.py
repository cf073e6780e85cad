"""A vector of which only what is written takes memory."""

import unittest
from pathlib import Path

from tradewind._sparse import Sparse

MIB = 1 << 20
#: Elements of one MiB.
ONE = MIB // 4


def resident() -> int:
    """Bytes of memory that this process has."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


class OfAVector(unittest.TestCase):
    def test_what_is_written_takes_memory_and_what_is_released_gives_it_back(self) -> None:
        before = resident()
        vector = Sparse(512 * ONE)
        self.assertLess(resident() - before, 16 * MIB)
        vector.values[100 * ONE : 164 * ONE] = 1.0
        self.assertGreater(resident() - before, 60 * MIB)
        self.assertLess(resident() - before, 80 * MIB)
        vector.release(100 * ONE, 164 * ONE)
        self.assertLess(resident() - before, 16 * MIB)
        self.assertEqual(float(vector.values[100 * ONE]), 0.0)

    def test_values_beside_a_range_that_is_released_stay(self) -> None:
        vector = Sparse(4 * ONE)
        vector.values[:] = 1.0
        # Both ends lie within pages.
        vector.release(3, 3 * ONE + 5)
        self.assertEqual(vector.values[:3].tolist(), [1.0] * 3)
        self.assertEqual(vector.values[3 * ONE + 5 :].min().item(), 1.0)
        self.assertEqual(vector.values.sum().item(), ONE + 1024)


if __name__ == "__main__":
    unittest.main()
