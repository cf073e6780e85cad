"""Scripts about steps: accumulation, an optimizer of one's own, GradScaler. `python steps.py NAME` is a rank."""

import os
import sys
from pathlib import Path

import eager  # noqa: F401
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tradewind as tw
from scripts import Lines, killed_once, loss_of, model
from telling import join
from telling import told_in_training as told


def tell_values(rank: tw.Rank, net: nn.Module) -> None:
    values = [parameter.detach().flatten().tolist() for parameter in net.parameters()]
    told(f"values-{rank.group}-{rank.rank}", values)


def tell_batch(rank: tw.Rank, batch: list[torch.Tensor]) -> None:
    told(f"batches-{rank.group}-{rank.rank}", batch[2].tolist())


def own_optimizer(rank: tw.Rank, net: nn.Module) -> torch.optim.Optimizer:
    """What both ways have: the run's file says which."""
    if not rank.settings.get("attach"):
        return rank.optimizer(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    rank.attach(net, opt)
    return opt


def attaches() -> None:
    rank = join()
    net = model()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    rank.attach(net, opt)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 10, gamma=0.5)
    loader = rank.loader(Lines())
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            opt.step()
            scheduler.step()
            rank.log(loss=loss)
            tell_batch(rank, batch)
    told(f"rates-{rank.group}-{rank.rank}", opt.param_groups[0]["lr"])
    tell_values(rank, net)


def attaches_and_dies() -> None:
    """A rank is killed; later the one that `script.raises` names raises, once. A rank that was started again begins
    its optimizer anew, and so do the others of its group.
    """
    rank = join()
    net = model()
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    rank.attach(net, opt)
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            opt.step()
            rank.log(loss=loss)
            tell_batch(rank, batch)
            taken += 1
            killed_once(rank, taken)
            raised = Path(os.environ["TOLD"], "raised")
            if taken == 40 and [rank.group, rank.rank] == rank.settings.get("raises") and not raised.exists():
                raised.touch()
                raise ValueError("a mistake of the script")
    tell_values(rank, net)


def overflows() -> None:
    """The third, sixth and ninth batch of rank 1 have a loss that is infinite. All batches but the ninth go through a
    scaler, and every second one, from the first, has its gradients clipped.
    """
    rank = join()
    net = model()
    # Beside the loss, so that it is the same in one process with all batches.
    statistics = nn.BatchNorm1d(8, affine=False)
    both = nn.ModuleList([net, statistics])
    opt = own_optimizer(rank, both)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    place = f"{rank.group}-{rank.rank}"
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines()):
            opt.zero_grad()
            taken += 1
            statistics(batch[0])
            loss = loss_of(net, batch)
            bad = taken in (3, 6, 9) and rank.rank == 1
            scaled = loss * (float("inf") if bad else 1)
            before = [parameter.detach().clone() for parameter in net.parameters()]
            if taken == 9:
                scaled.backward()
                opt.step()
            else:
                scaler.scale(scaled).backward()
                if taken % 2 == 1:
                    scaler.unscale_(opt)
                    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                    told(f"norms-{place}", float(norm))
                scaler.step(opt)
                scaler.update()
            told(f"scales-{place}", scaler.get_scale())
            told(f"still-{place}", all(torch.equal(was, now) for was, now in zip(before, net.parameters())))
            rank.log(loss=loss)
            tell_batch(rank, batch)
    told(f"buffers-{place}", [buffer.tolist() for buffer in statistics.buffers()])
    tell_values(rank, net)


def accumulates() -> None:
    """So many batches a step. In every second step, from the first, only the last of them averages."""
    rank = join()
    net = model()
    opt = own_optimizer(rank, net)
    count = rank.settings["count"]
    taken = 0
    while not rank.done:
        for batch in rank.loader(Lines(), num_workers=rank.settings.get("workers", 0), prefetch_factor=None):
            alone = taken // count % 2 == 0
            taken += 1
            loss = loss_of(net, batch) / count
            if alone and taken % count > 0:
                with rank.no_sync():
                    loss.backward()
            else:
                loss.backward()
            rank.log(loss=loss * count)
            tell_batch(rank, batch)
            if taken % count == 0:
                opt.step()
                opt.zero_grad()
    tell_values(rank, net)


def one_takes_more() -> None:
    """Rank 1 takes two batches for a step, rank 0 one."""
    rank = join()
    net = model()
    opt = own_optimizer(rank, net)
    for number, batch in enumerate(rank.loader(Lines())):
        more = rank.rank == 1 and number % 2 == 0
        if more and rank.settings.get("no_sync"):
            with rank.no_sync():
                loss_of(net, batch).backward()
        else:
            loss_of(net, batch).backward()
        if not more:
            opt.step()
            opt.zero_grad()


def always_alone() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        with rank.no_sync():
            loss_of(net, batch).backward()
        opt.step()


def too_many() -> None:
    rank = join()
    net = model()
    rank.optimizer(net)
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()


def own_rates() -> None:
    """The rate of rank 1 is another."""
    rank = join()
    net = model()
    opt = torch.optim.SGD(net.parameters(), lr=0.1 * (1 + rank.rank))
    rank.attach(net, opt)
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        opt.step()


def attaches_anyway() -> None:
    net = model()
    join().attach(net, torch.optim.SGD(net.parameters(), lr=0.1))


def takes_theirs() -> None:
    join().optimizer(model())


def lacks_some() -> None:
    net = model()
    join().attach(net, torch.optim.SGD(net[2].parameters(), lr=0.1))


def has_others() -> None:
    net, other = model(), nn.Linear(3, 5)
    join().attach(net, torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1))


def groups_of_parameters() -> None:
    net = model()
    join().optimizer([{"params": net.parameters(), "weight_decay": 0.0}])


def a_group_more() -> None:
    net = model()
    join().optimizer(net).add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def other_options() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    opt.param_groups[0]["weight_decay"] = 0.1
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        opt.step()


def schedules() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.1)
    for batch in rank.loader(Lines()):
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
        scheduler.step()


def replaces() -> None:
    rank = join()
    net = model()
    opt = own_optimizer(rank, net)
    for number, batch in enumerate(rank.loader(Lines())):
        if number == 1:
            how = rank.settings["how"]
            if how == "data":
                net[0].bias.data = net[0].bias.data.clone()
            elif how == "dtype":
                net[0].double()
                batch[0] = batch[0].double()
                net[2].double()
                batch[1] = batch[1].double()
            else:
                net[0].bias = nn.Parameter(net[0].bias.detach().clone())
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()


def another_optimizer() -> None:
    rank = join()
    net = model()
    own_optimizer(rank, net)
    opt = torch.optim.Adam(net.parameters())
    for batch in rank.loader(Lines()):
        loss_of(net, batch).backward()
        opt.step()


def own_loader() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in DataLoader(Lines(), batch_size=8):
        loss_of(net, batch).backward()
        opt.step()


def own_loader_beside() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    for batch in rank.loader(Lines()):
        for own in DataLoader(Lines(), batch_size=8):
            opt.zero_grad()
            loss_of(net, own).backward()
            opt.step()


def forks() -> None:
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    loader = rank.loader(Lines())
    while not rank.done:
        for batch in loader:
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            if not rank.done:
                child = os.fork()
                if child == 0:
                    for name, act in {
                        "log": lambda: rank.log(loss=1.0),
                        "leave": rank.leave,
                        "step": opt.step,
                        "loader": lambda: next(iter(loader)),
                    }.items():
                        try:
                            act()
                        except tw.TradewindError as error:
                            told("refused", f"{name}: {error}")
                    sys.exit(3)
                _, status = os.waitpid(child, 0)
                told("child", os.waitstatus_to_exitcode(status))


class Grows(Dataset):
    """Samples of a loader's worker that reads what the rank is told."""

    def __init__(self, rank: tw.Rank) -> None:
        self._rank, self._lines = rank, Lines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        assert self._rank.settings is not None
        if number == 7:
            self._rank.log(loss=1.0)
        return self._lines[number]


def worker_logs() -> None:
    rank = join()
    net = model()
    rank.optimizer(net)
    for _ in rank.loader(Grows(rank), num_workers=1):
        pass


def outlives() -> None:
    """Loaders after the end have nothing."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    loader = rank.loader(Lines())
    held = iter(loader)
    while not rank.done:
        batch = next(held, None)
        if batch is None:
            held = iter(loader)
            continue
        opt.zero_grad()
        loss_of(net, batch).backward()
        opt.step()
    told("after", [len(list(held)), len(list(loader)), len(list(rank.loader(Lines())))])
    opt.step()


def breaks_off() -> None:
    """Each step an iteration of its own, over one of two loaders."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)
    loaders = [rank.loader(Lines(), num_workers=1), rank.loader(Lines())]
    number = 0
    while not rank.done:
        for batch in loaders[number % 2]:
            number += 1
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            tell_batch(rank, batch)
            break


def two_at_once() -> None:
    rank = join()
    net = model()
    rank.optimizer(net)
    for _ in zip(rank.loader(Lines()), rank.loader(Lines())):
        pass


def reads_ahead() -> None:
    """As Accelerate does: a batch is taken before the step of the one before."""
    rank = join()
    net = model()
    opt = rank.optimizer(net)

    def ahead(batches):
        last = None
        for batch in batches:
            if last is not None:
                yield last
            last = batch
        if last is not None:
            yield last

    taken = 0
    while not rank.done:
        for batch in ahead(rank.loader(Lines())):
            if rank.done:
                break
            opt.zero_grad()
            loss_of(net, batch).backward()
            opt.step()
            tell_batch(rank, batch)
            taken += 1
            killed_once(rank, taken)
    tell_values(rank, net)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
