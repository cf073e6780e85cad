"""Samples in files, in the forms that `tradewind data` knows. Imports no torch, and NumPy when it reads."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, overload

from . import _native
from ._native import TradewindError

if TYPE_CHECKING:
    import numpy
    from torch.utils.data import Dataset

    from ._rank import Rank

    _Dataset = Dataset[Any]
else:
    # They have what a DataLoader asks of one, and need no torch.
    _Dataset = object

#: What arrays have of each kind of number. NumPy has no bf16: its bits are read, and widened.
_DTYPES = {"u8": "<u1", "i16": "<i2", "i32": "<i4", "f16": "<f2", "bf16": "<u2", "f32": "<f4"}


class Samples(_Dataset):
    """Samples in files, as a data set for `rank.loader`, a DataLoader or a loop.

        train = tw.Samples("packed/train", rank=rank, transform=lambda sample: (sample["image"] / 255, sample["label"]))
        image, label = train[7]

    A sample is a dict of NumPy arrays, by the names of its fields, of the kinds that files have: u8, i16, i32, f16 or
    f32; bf16, which NumPy does not have, comes as f32. A field without extents is a number. One whose rows vary, such
    as boxes, has a first extent of as many as the sample has.

    `samples[-1000:]` are the last thousand, as samples of their own.

    Each process that has them opens the files for itself, so workers of a loader may be forked or spawned.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: str | None = None,
        *,
        rank: Rank | None = None,
        transform: Callable[[dict[str, numpy.ndarray]], Any] | None = None,
    ) -> None:
        """Opens them; what is in the files is read when it is asked for.

        Args:
            path: A packed file or a folder of them, a folder of HDF5 files or its manifest, an .npy or .npz file.
            layout: What the data sets of HDF5 files are, as ``tradewind data --layout`` takes it: ``deepcam``,
                ``cosmoflow``, ``hep``, or such as ``image=climate/data:f32``. If it is left out, the one that fits.
            rank: Reads them as section `loader` of the run's file says: with `loader.cache` files are copied to a
                disk of this machine when they are read first, and those of training data ahead of that where
                `loader.sets` says which ones the group takes; with ``loader.damaged = "replace"`` another sample is
                read in the place of a damaged one. Without a rank files are read where they are, and a damaged
                sample is an error.
            transform: Makes of each sample what the loader is given.

        Raises:
            TradewindError: For files that cannot be used, and without NumPy.
        """
        native = None if rank is None else rank._native
        self._path, self._layout, self._transform = os.fspath(path), layout, transform
        self._cache = None if native is None else native.cache
        self._replaces_damaged = native is not None and native.replaces_damaged
        #: Numbers of the first and behind the last in the files; all without.
        self._part: tuple[int, int] | None = None
        _numpy()
        self._open()

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return f"<{len(self)} samples of {self._path}: {self._opened().described}>"

    @overload
    def __getitem__(self, number: int) -> Any: ...

    @overload
    def __getitem__(self, number: slice) -> Samples: ...

    def __getitem__(self, number: int | slice) -> Any:
        if not isinstance(number, slice):
            return self.__getitems__([number])[0]
        begin, end, step = number.indices(len(self))
        if step != 1:
            raise TradewindError(
                f"a part of samples is such that follow one another, and the step is {step}: take "
                "torch.utils.data.Subset(samples, numbers)"
            )
        first = self._part[0] if self._part else 0
        part = copy(self)
        part._part = first + begin, first + max(begin, end)
        part._take(self._opened().part(*part._part))
        return part

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several samples at once, which costs less than one by one; a DataLoader takes a batch so.

        Raises:
            IndexError: For a number that there is not.
            TradewindError: For a sample that cannot be read, by its name.
        """
        np, native, count = _numpy(), self._opened(), len(numbers)
        memory = [np.empty(count * math.prod(shape) * dtype.itemsize, "u1") for _, shape, dtype, _ in self._fields]
        offsets = native.read([self._number(number) for number in numbers], memory)
        samples: list[dict[str, numpy.ndarray]] = [{} for _ in numbers]
        for (name, shape, dtype, is_bf16), begins, values in zip(self._fields, offsets, memory, strict=True):
            extents = [count, *shape] if begins is None else [begins[-1], *shape[1:]]
            rows = values.view(dtype)[: math.prod(extents)].reshape(extents)
            if is_bf16:
                rows = (rows.astype("<u4") << 16).view("<f4")
            for nth, sample in enumerate(samples):
                sample[name] = rows[nth] if begins is None else rows[begins[nth] : begins[nth + 1]]
        return samples if self._transform is None else [self._transform(sample) for sample in samples]

    def _number(self, number: int) -> int:
        """Counted from the first."""
        number = operator.index(number)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are samples 0..{len(self)}, asked for {number}")
        return number % len(self)

    def _open(self) -> None:
        whole = _native.Samples(self._path, self._layout, self._cache, self._replaces_damaged)
        self._take(whole if self._part is None else whole.part(*self._part))

    def _take(self, native: _native.Samples) -> None:
        self._native, self._process, self._len = native, os.getpid(), len(native)
        dtype = _numpy().dtype
        #: Of each field its name, extents with the most rows, type, and whether it is bf16.
        self._fields = [
            (
                field.name,
                [*([] if field.rows_max is None else [field.rows_max]), *field.shape],
                dtype(_DTYPES[field.kind]),
                field.kind == "bf16",
            )
            for field in native.fields
        ]

    def _opened(self) -> _native.Samples:
        """As this process has opened them."""
        if self._process != os.getpid():
            self._open()
        return self._native

    def __copy__(self) -> Samples:
        # The same process goes on with what it has opened.
        other = object.__new__(Samples)
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens them anew.
        return {**self.__dict__, "_native": None, "_process": None, "_fields": None}


def _numpy() -> Any:
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise TradewindError("samples need NumPy, which is missing: pip install numpy") from None
    return numpy
