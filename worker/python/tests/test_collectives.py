"""The collectives of a sharded model: what ranks have after them, and the memory that they lie in."""

import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from runs import RunCase
from tradewind._collectives import AllGather, ReduceScatter, Reused

try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:
    # Of a torch before 2.6.
    FSDPModule = None

#: Elements of the least memory that is kept: 1 MiB.
KEPT = 1 << 18
CPU = torch.device("cpu")
F32: Any = {"dtype": torch.float32, "device": CPU}


class Act:
    """Something that has begun, and has ended when it was waited for."""

    def __init__(self, end: Callable[[], Any]) -> None:
        self.wait = end


class Played:
    """One rank of a group whose ranks are threads."""

    def __init__(self, rank: int, size: int, messages: dict[tuple[int, int, int], Queue[Tensor]]) -> None:
        self.rank, self.size = (lambda: rank), (lambda: size)
        self._messages = messages

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Act:
        self._queue(self.rank(), to, tag).put(tensors[0].clone())
        return Act(lambda: None)

    def recv(self, tensors: list[Tensor], of: int, tag: int) -> Act:
        return Act(lambda: tensors[0].copy_(self._queue(of, self.rank(), tag).get(timeout=60)))

    def _queue(self, of: int, to: int, tag: int) -> Queue[Tensor]:
        return self._messages.setdefault((of, to, tag), Queue())


def on_ranks(size: int, act: Callable[[Any], Tensor]) -> list[Tensor]:
    """What each rank has of it."""
    messages: dict[tuple[int, int, int], Queue[Tensor]] = {}
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(lambda rank: act(Played(rank, size, messages)), range(size)))


class OverRanks(unittest.TestCase):
    def test_each_has_all_parts_in_the_order_of_ranks(self) -> None:
        def gather(group: Any) -> Tensor:
            comm = AllGather(Reused())
            whole = comm.allocate((3 * group.size(),), **F32)
            # FSDP2 lays a rank's part where it will be; others may have it elsewhere.
            part = whole[3 * group.rank() :][:3] if group.rank() % 2 else torch.empty(3)
            part[:] = torch.tensor([1.0, 2.0, 3.0]) + 10 * group.rank()
            comm(whole, part, group)
            return whole

        for size in (2, 3):
            want = [digit + 10.0 * rank for rank in range(size) for digit in (1, 2, 3)]
            for got in on_ranks(size, gather):
                self.assertEqual(got.tolist(), want)

    def test_each_has_its_part_of_sum_or_mean(self) -> None:
        for size, op in ((2, ReduceOp.SUM), (2, ReduceOp.AVG), (3, ReduceOp.SUM), (3, ReduceOp.AVG)):
            torch.manual_seed(5)
            given = torch.randn(size, size * 500)

            def reduce(group: Any) -> Tensor:
                comm = ReduceScatter(Reused())
                whole, part = comm.allocate((size * 500,), **F32), comm.allocate((500,), **F32)
                whole.copy_(given[group.rank()])
                comm(part, whole, group, op)
                return part

            # Rank by rank, so that bits repeat.
            want = sum(given[1:], start=given[0]) / (size if op == ReduceOp.AVG else 1)
            self.assertTrue(torch.equal(torch.cat(on_ranks(size, reduce)), want), f"{size} ranks, {op}")

    def test_a_gradient_does_not_take_memory_that_is_kept(self) -> None:
        memory = Reused()
        comm = ReduceScatter(memory)
        for _ in range(2):
            whole, part = comm.allocate((2 * KEPT,), **F32), comm.allocate((KEPT,), **F32)
            at = whole.data_ptr()
            del whole, part
        # The part's memory would fit better.
        self.assertEqual(memory.tensor(KEPT).data_ptr(), at)


class OfMemory(unittest.TestCase):
    def test_it_is_used_again_once_no_tensor_lies_there(self) -> None:
        memory = Reused()
        whole = memory.tensor(2 * KEPT)
        at, part = whole.data_ptr(), whole.view(2, -1)[1].detach()
        del whole
        # A view of it is left.
        other = memory.tensor(2 * KEPT).zero_()
        part.fill_(7.0)
        self.assertEqual(float(other.abs().max()), 0.0)
        del part
        half = memory.tensor(3 * KEPT, torch.bfloat16)
        self.assertEqual((half.dtype, half.data_ptr()), (torch.bfloat16, at))

    def test_the_smallest_that_fits_is_taken_and_the_largest_are_kept(self) -> None:
        memory = Reused()
        tensors = [memory.tensor(KEPT * size) for size in (4, 1, 3, 2)]
        places = [tensor.data_ptr() for tensor in tensors]
        del tensors
        again = [memory.tensor(KEPT * size) for size in (1, 3, 4)]
        self.assertEqual([tensor.data_ptr() for tensor in again], [places[3], places[2], places[0]])


@unittest.skipIf(not hasattr(FSDPModule, "set_custom_all_gather"), "this torch has Gloo's collectives alone")
class Launched(RunCase):
    scripts = "island_scripts.py"

    def test_gloos_own_collectives_are_not_asked_for(self) -> None:
        run = self.launch("counts_collectives", groups=[2], samples=80)
        self.completes(run)
        for rank in ("0-0", "0-1"):
            self.assertEqual(run.lines(f"asked-{rank}"), [0])


if __name__ == "__main__":
    unittest.main()
