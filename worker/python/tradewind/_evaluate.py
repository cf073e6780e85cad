"""What a script's own evaluation returns, and when it is called. Imports torch only once there is a model."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Union

from ._native import TradewindError

if TYPE_CHECKING:
    import torch

    from ._rank import Rank

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Measure:
    """Something that was measured.

    Attributes:
        name: Such as ``held-out RMSE``.
        value: A finite number; one that is not ends the run as diverged.
        unit: Such as ``K`` or ``%``; empty for a pure number.
    """

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Part:
    """The metric on one part of the held-out data.

    Attributes:
        name: Of the part, such as that of a file.
        value: The metric on it.
        baselines: The baselines on it, in the order of `Evaluation.baselines`.
    """

    name: str
    value: float
    baselines: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation returns where one number does not say all.

    Attributes:
        metric: On the held-out data: what the summary has.
        validation: What experiments compare settings by while they choose, on data of its own; the metric if it
            is left out.
        baselines: The metric of simple models on the same held-out data, to compare with.
        parts: The metric on parts of the held-out data.
    """

    metric: Measure
    validation: Measure | None = None
    baselines: list[Measure] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


#: What a function given to `rank.evaluate` may return.
Returned = Union[float, "torch.Tensor", Mapping[str, float], Evaluation]


@dataclass(frozen=True)
class _Found:
    """An evaluation as the native half takes it."""

    metric: Measure
    higher: bool
    validation: Measure
    baselines: list[Measure]
    parts: list[Part]


class Evaluations:
    """The function that a script has registered, and whether it is time to call it."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._function: Callable[[Any], Returned] | None = None
        self._higher = False
        #: The model has the values that are to be evaluated.
        self._due = False
        self._done = False

    def register(self, function: Callable[[Any], Returned], better: Better) -> None:
        if self._function is not None:
            raise TradewindError(
                "a function is registered already: a run has one evaluation; return a tradewind.Evaluation to say more"
            )
        if better not in ("lower", "higher"):
            raise TradewindError(f'better is {better!r}: say "lower" or "higher"')
        if not callable(function):
            raise TradewindError("rank.evaluate takes a function of the model")
        self._function, self._higher = function, better == "higher"
        self._call()

    def due(self) -> None:
        """The model has the values that are to be evaluated."""
        self._due = True
        self._call()

    def pull(self) -> None:
        """Brings the servers' values into the model of a process that evaluates."""
        rank = self._rank
        if rank._replica is None:
            raise TradewindError("call rank.optimizer(model) or rank.share(arrays) before the first batch is taken")
        rank._replica.begin(rank._samples or 1)
        rank._replica.deal(rank._native.pull())
        rank._replica.fresh()
        self.due()

    def _call(self) -> None:
        """Evaluates, once there are both a function and values."""
        if self._done or not self._due or self._function is None:
            return
        self._done = True
        if not self._rank._native.evaluating:
            found = self._found()
            unit = f" {found.metric.unit}" if found.metric.unit else ""
            print(f"tradewind: {found.metric.name} is {found.metric.value:.6g}{unit}", flush=True)
            return
        self._write(self._found())
        self._rank._native.milestones(self._milestone)

    def _milestone(self) -> Measure:
        """What is found of values that the native half has put in the place of those before."""
        replica = self._rank._replica
        assert replica is not None
        replica.fresh()
        return self._found().validation

    def _write(self, found: _Found | None) -> None:
        """Writes the model and what was found: one process, or the first rank of those that have the model together."""
        replica, native = self._rank._replica, self._rank._native
        assert replica is not None
        model: tuple[list[Any], dict[str, str]] | None = None
        if replica.is_whole:
            stored = replica.stored()
            model = stored.tensors, stored.notes
        elif found is None or math.isfinite(found.metric.value + found.validation.value):
            replica.save(native.model_file(), None)
        if self._rank.rank == 0:
            native.evaluated(found, replica.library, model)

    def end(self) -> bool:
        """The script has come to its end. Whether the evaluation has, too."""
        if not self._due:
            text = (
                "tradewind: the script has ended without a batch asked for, so there was nothing to evaluate; "
                "iterate over rank.loader(data) as in training: it is empty here\n"
            )
            sys.stderr.write(text)
        elif not self._done:
            print("tradewind: nothing is registered with @rank.evaluate; only the model is saved", flush=True)
            self._write(None)
        return self._due

    def _found(self) -> _Found:
        """Calls the function, in evaluation mode and without gradients."""
        replica = self._rank._replica
        assert self._function is not None and replica is not None
        with replica.evaluating() as model:
            returned = self._function(model)
        return _found(returned, self._function, self._higher)


def _found(returned: Returned, function: Callable[[Any], Returned], higher: bool) -> _Found:
    name = getattr(function, "__name__", "metric")
    if name == "<lambda>":
        name = "metric"
    if isinstance(returned, Evaluation):
        evaluation = returned
    elif isinstance(returned, Mapping):
        if len(returned) != 1:
            raise TradewindError(
                f"{name} returned {len(returned)} values: return the metric alone, such as "
                '{"accuracy": 0.98}, or a tradewind.Evaluation'
            )
        ((named, value),) = returned.items()
        evaluation = Evaluation(Measure(str(named), value))
    else:
        evaluation = Evaluation(Measure(name, returned))  # type: ignore[arg-type]
    metric = _measure(evaluation.metric, name)
    baselines = [_measure(baseline, name) for baseline in evaluation.baselines]
    parts = []
    for part in evaluation.parts:
        if len(part.baselines) != len(baselines):
            raise TradewindError(
                f"{name}: part {part.name} has {len(part.baselines)} baselines, and the evaluation {len(baselines)}"
            )
        values = [_number(value, name) for value in part.baselines]
        parts.append(Part(part.name, _number(part.value, name), values))
    validation = metric if evaluation.validation is None else _measure(evaluation.validation, name)
    return _Found(metric, higher, validation, baselines, parts)


def _measure(measure: Measure, function: str) -> Measure:
    if not isinstance(measure, Measure):
        raise TradewindError(f"{function} has {measure!r} where a tradewind.Measure belongs")
    return Measure(measure.name, _number(measure.value, function), measure.unit)


def _number(value: Any, function: str) -> float:
    """A number of Python's, NumPy's or torch's."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TradewindError(
            f"{function} returned {value!r} of {type(value).__name__}: return a number, one under its name such as "
            '{"accuracy": 0.98}, or a tradewind.Evaluation'
        ) from None
