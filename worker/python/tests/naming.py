"""Scripts of the tests of torch's names: `python naming.py NAME` is a rank."""

import os
import sys
import time
from datetime import timedelta

import eager  # noqa: F401
import torch
import torch.distributed as dist

import tradewind as tw
from scripts import Lines, killed_once, loss_of, model
from telling import told
from tradewind import _names

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def own_number(rank: tw.Rank) -> int:
    return 10 * rank.group + rank.rank


def sum_of(number: float) -> float:
    """Over the ranks of the group, by torch's own collectives."""
    total = torch.tensor([float(number)])
    dist.all_reduce(total)
    return total.item()


def place_of(rank: tw.Rank) -> str:
    return "evaluation" if rank.evaluating else f"{rank.group}-{rank.rank}"


def gathers() -> None:
    """Adds its own number in its group: before training, with each step, and when it is over."""
    rank = tw.join(os.environ.get("RUN"), torch_names=True)
    told(f"names-{place_of(rank)}", {name: os.environ[name] for name in NAMES})
    dist.init_process_group("gloo")
    told(f"sums-{place_of(rank)}", sum_of(own_number(rank)))
    net = model()
    opt = rank.optimizer(net)
    loader = rank.loader(Lines())
    taken = 0
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            opt.step()
            rank.log(loss=loss)
            taken += 1
            if not rank.done and rank.settings.get("sums", True):
                told(f"sums-{place_of(rank)}", sum_of(own_number(rank)))
            killed_once(rank, taken)
    told(f"sums-{place_of(rank)}", sum_of(own_number(rank)))
    dist.destroy_process_group()


class Lingers:
    """Keeps the interpreter busy while it ends."""

    def __del__(self) -> None:
        time.sleep(3)


class Slow:
    """A store whose calls take long, as where its machine is busy."""

    def __init__(self, store: dist.TCPStore) -> None:
        self._store = store

    def check(self, _: list[str]) -> bool:
        try:
            self._store.wait(["never"], timedelta(seconds=2))
        except RuntimeError:
            pass
        return False


def ends_while_it_is_watched() -> None:
    """The thread that watches the group's store stands in a call of it all the time."""
    global lingers
    lingers = Lingers()
    watch = _names.Names._watch

    def watch_slowly(names: _names.Names) -> None:
        names._store = Slow(names._store)
        watch(names)

    _names.Names._watch = watch_slowly
    _names._WATCH_SECONDS = 0.0
    gathers()


def asks_for_nothing() -> None:
    """Tells what it sees of a launcher's names."""
    rank = tw.join()
    seen = [name for name in os.environ if name in NAMES or name.startswith(("PMI", "SLURM_", "TORCHELASTIC"))]
    told("seen", sorted(seen))
    rank.optimizer(model())
    for _ in rank.loader(Lines()):
        break
    rank.leave()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
