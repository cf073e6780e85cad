"""The native half: one rank of a run, on the exchange client."""

from typing import Any, Literal

class TradewindError(RuntimeError):
    """What was asked of Tradewind cannot be done; the text says why, and what to do."""

class GroupBroken(TradewindError):
    """This incarnation of the group is over: a rank of it is gone, or the coordinator has taken it out."""

def failed_with() -> int:
    """The status of the failure that ends the process; 0 if there was none."""

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
    slices: list[list[tuple[int, int]]]

class Stepped:
    skipped: bool
    end: Literal["applied", "left"] | None
    rate: float
    samples_applied: int
    left_out: int

class Rank:
    run: str
    group: int
    rank: int
    local_rank: int
    group_size: int
    threads: int
    host: str
    batch: int
    largest_batch: int
    batches_ahead: int | None
    seed: int
    settings: str
    lease_seconds: float
    per_bucket: bool
    scatter: bool
    device: str
    tf32: bool
    deterministic: bool
    @staticmethod
    def from_environment() -> Rank | None: ...
    def describe(
        self, tensors: list[tuple[str, list[int], bool]], epoch_samples: int, frozen: list[tuple[str, int]]
    ) -> tuple[int, list[Placed]]: ...
    def buckets(self) -> Buckets: ...
    def bind(self, values: Any, gradient: Any) -> None: ...
    def join(self, store_address: str) -> Joined: ...
    def enter(self, collectives: Any | None, break_group: Any | None) -> Stepped: ...
    def next_batch(self) -> tuple[int, list[int]]: ...
    def handed_out(self) -> None: ...
    def begin_backward(self, samples: int) -> None: ...
    def give(self, bucket: int) -> None: ...
    def step(
        self,
        samples: int,
        finite: bool | None = None,
        loss: float | None = None,
        loss_before: float | None = None,
    ) -> Stepped: ...
    def leave(self, loss_before: float | None = None) -> None: ...
    def again(self, reason: str) -> bool: ...
    @staticmethod
    def flush() -> None: ...
