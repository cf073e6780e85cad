"""The store in which the ranks of a group meet: nobody else is believed, and it listens on one address."""

import socket
import threading
import unittest
from datetime import timedelta

import eager  # noqa: F401
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

from tradewind import TradewindError
from tradewind._sealed import SealedStore, serve

SOON = timedelta(seconds=10)
KEY = bytes(range(32))


class Store(unittest.TestCase):
    def test_what_a_stranger_writes_is_not_believed(self) -> None:
        served = serve("127.0.0.1", SOON)
        one, other = SealedStore(served, KEY), SealedStore(served, KEY)
        of_another = SealedStore(served, bytes(32))
        stranger = TCPStore("127.0.0.1", served.port, timeout=SOON)
        one.set("0", b"10.0.0.1:4000")
        self.assertEqual(other.get("0"), b"10.0.0.1:4000")
        one.set("1", b"10.0.0.2:4000")
        for foreign in (b"", b"10.6.6.6:4000", bytes(100), stranger.get("1")):
            stranger.set("0", foreign)
            with self.assertRaisesRegex(TradewindError, "does not know the run's token"):
                one.get("0")
        of_another.set("0", b"10.6.6.6:4000")
        with self.assertRaisesRegex(TradewindError, "does not know the run's token"):
            other.get("0")

    def test_nobody_reaches_it_on_another_address(self) -> None:
        served = serve("127.0.0.1", SOON)
        socket.create_connection(("127.0.0.1", served.port), timeout=5).close()
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.2", served.port), timeout=5).close()

    def meets(self, keys: list[bytes]) -> list[object]:
        """What ranks sum up that meet with these keys, or what each ends with."""
        served = serve("127.0.0.1", SOON)
        came: list[object] = [None] * len(keys)

        def rank(number: int) -> None:
            try:
                store = SealedStore(TCPStore("127.0.0.1", served.port, timeout=SOON), keys[number])
                group = ProcessGroupGloo(PrefixStore("p", store), number, len(keys), SOON)
                value = torch.ones(1) * (number + 1)
                group.allreduce([value]).wait()
                came[number] = value.item()
            except (RuntimeError, TradewindError) as error:
                came[number] = error

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(keys))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return came

    def test_ranks_of_one_run_meet_and_others_do_not(self) -> None:
        self.assertEqual(self.meets([KEY, KEY]), [3.0, 3.0])
        for error in self.meets([KEY, bytes(32)]):
            self.assertIsInstance(error, Exception)


if __name__ == "__main__":
    unittest.main()
