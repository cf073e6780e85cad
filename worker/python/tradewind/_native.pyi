"""The native half: one rank of a run, on the exchange client."""

from collections.abc import Callable
from typing import Any, Literal

class TradewindError(RuntimeError):
    """What was asked of Tradewind cannot be done; the text says why, and what to do. It ends the run if the script does
    not catch it.
    """

class Unavailable(TradewindError):
    """A file, a disk or another rank is not there, and may be for the next process: the script is started again."""

class GroupBroken(TradewindError):
    """This incarnation of the group is over: a rank of it is gone, or the coordinator has taken it out."""

def failed_with() -> int:
    """The status of the failure that ends the process; 0 if there was none."""

KEPT_BYTES_MAX: int

def seal(key: bytes, name: str, value: bytes) -> bytes: ...
def write_kept(path: str, content: bytes) -> None: ...
def read_kept(path: str) -> bytes | None: ...
def take_copied() -> tuple[int, float]: ...
def save(path: str, tensors: list[Any], notes: dict[str, str]) -> None: ...
def save_sharded(folder: str, tensors: list[Any], notes: dict[str, str], shard_bytes_max: int) -> None: ...

class SampleField:
    name: str
    kind: str
    shape: list[int]
    rows_max: int | None

class Samples:
    fields: list[SampleField]
    described: str
    def __init__(
        self, path: str, layout: str | None, cache: tuple[str, int] | None, replaces_damaged: bool
    ) -> None: ...
    def part(self, begin: int, end: int) -> Samples: ...
    def __len__(self) -> int: ...
    def read(self, samples: list[int], memory: list[Any]) -> list[list[int] | None]: ...

class Placed:
    tensor: int
    begin: int
    elements: int

class Buckets:
    parameters: list[tuple[int, int]]
    buffers: tuple[int, int]

class Joined:
    incarnation: int
    group_rank: int
    group_size: int
    store_address: str
    prefix: str
    store_key: bytes
    slices: list[list[tuple[int, int]]]

class Stepped:
    skipped: bool
    end: Literal["applied", "left"] | None
    rate: float
    samples_applied: int
    left_out: int
    lost: bool

class InnerStep:
    skipped: bool
    exchange: bool

class Rank:
    run: str
    group: int
    rank: int
    local_rank: int
    group_size: int
    ranks: int
    threads: int
    host: str
    batch: int
    largest_batch: int
    is_local: bool
    seed: int
    settings: str
    lease_seconds: float
    folder: str | None
    evaluating: bool
    alone: bool
    per_bucket: bool
    scatter: bool
    keeps_values: bool
    clip_norm: float | None
    device: str
    tf32: bool
    deterministic: bool
    cache: tuple[str, int] | None
    replaces_damaged: bool
    @staticmethod
    def from_environment() -> Rank | None: ...
    @staticmethod
    def begin_alone(file: str, command: list[str], secret: str) -> Rank: ...
    def describe(
        self, tensors: list[tuple[str, list[int], bool]], epoch_samples: int, frozen: list[tuple[str, int]]
    ) -> tuple[int, list[Placed]]: ...
    def buckets(self) -> Buckets: ...
    def bind(
        self,
        values: Any,
        gradient: Any,
        on_gpu: bool = False,
        spent: Callable[[int, int], None] | None = None,
    ) -> None: ...
    def join(self, store_address: str) -> Joined: ...
    def breaks(self, break_group: Any) -> None: ...
    def enter(self, collectives: Any | None) -> Stepped: ...
    def batches_ahead(self, epoch_samples: int) -> int | None: ...
    def stage(self, samples: Samples) -> None: ...
    def copied(self, bytes: int, seconds: float) -> None: ...
    def next_batch(self) -> tuple[int, list[int]]: ...
    def handed_out(self, waited: float) -> None: ...
    def begin_backward(self, samples: int) -> None: ...
    def give(self, bucket: int) -> None: ...
    def step(
        self,
        samples: int,
        batches: int,
        overflowed: bool = False,
        loss_scale: float | None = None,
        loss_before: float = ...,
    ) -> Stepped: ...
    def inner_step(
        self,
        samples: int,
        batches: int,
        overflowed: bool = False,
        loss_scale: float | None = None,
        loss_before: float = ...,
        options: int = 0,
    ) -> InnerStep: ...
    def exchange_steps(self) -> Stepped: ...
    def meet(self, batches: int) -> None: ...
    def leave(self, loss_before: float = ...) -> None: ...
    def again(self, reason: str) -> bool: ...
    def pull(self) -> list[list[tuple[int, int]]]: ...
    def evaluation_key(self) -> bytes: ...
    def model_file(self) -> str: ...
    def evaluated(
        self, found: Any | None, torch: str, model: tuple[list[Any], dict[str, str]] | None = None
    ) -> None: ...
    def milestones(self, measure: Callable[[], Any]) -> None: ...
    @staticmethod
    def flush() -> None: ...
