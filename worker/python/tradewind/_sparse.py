"""A vector in main memory of which a rank uses only some ranges."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import torch
from torch import Tensor

_PAGE = mmap.PAGESIZE
#: Address space that is not reserved: only pages that are written become memory. Python has no name for it before 3.13.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class Sparse:
    """So many f32, zeros at first. What is never written takes no memory."""

    def __init__(self, elements: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._memory: Any = mmap.mmap(-1, max(4 * elements, 1), flags=flags)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # A page of 2 MiB would bring blocks of other ranks with it.
            self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        #: The vector.
        self.values: Tensor = torch.frombuffer(self._memory, dtype=torch.float32)[:elements]

    def release(self, begin: int, end: int) -> None:
        """Gives back the memory of a range, but for pages that reach beyond it: zeros are there then."""
        first, behind = -(-4 * begin // _PAGE) * _PAGE, 4 * end // _PAGE * _PAGE
        if first < behind:
            self._memory.madvise(mmap.MADV_DONTNEED, first, behind - first)
