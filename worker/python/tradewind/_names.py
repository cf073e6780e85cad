"""Torch's names of a rank in its group, RANK and so on, for collectives of the script's own. Imports torch.

The ranks of a group meet at a store that the first of them serves; a file in the run's folder says where. Names
are of the processes that have met. Another process in the place of one of them finds that they have met without it
and says so in the store. Then the others end, and all of them meet anew, as `torchrun` has it: a process group of
torch's cannot take in a new process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from torch.distributed import TCPStore

from ._native import TradewindError, Unavailable
from ._sealed import serve

if TYPE_CHECKING:
    from ._rank import Rank

#: Seconds that ranks wait for the others of their group, after how many they say so, and from one look to the next.
_WAIT_SECONDS, _TELL_SECONDS, _LOOK_SECONDS = 600.0, 10.0, 0.05
#: Seconds from one look at the store to the next, once the ranks have met.
_WATCH_SECONDS = 0.5
#: Where the store is gone the run may just be over: seconds until this rank knows. And seconds that the end of a
#: process waits for a call of the store.
_END_SECONDS = 3.0
#: What a call of the store may take.
_STORE_TIMEOUT = timedelta(seconds=30)

# Keys of the store. The token tells it from a store of others that has the same port later.
_TOKEN, _MET, _ANEW = "token", "met", "anew"


@dataclass(frozen=True)
class Place:
    """Where a group's ranks meet."""

    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Member:
    """A process that takes part."""

    #: No other process has it.
    process: str
    machine: str


class Names:
    """Has met the other ranks of the group, and given this process its names.

    Raises:
        TradewindError: If they have not come.
    """

    def __init__(self, rank: Rank, asked: str = "torch_names=True") -> None:
        self._rank = rank
        self._asked = asked
        self._size = rank._native.ranks
        who = "evaluation" if rank.evaluating else f"group-{rank.group}"
        self._file = Path(rank._native.folder or "", "names", f"{who}.json")
        self._own = Member(secrets.token_hex(8), socket.gethostname())
        self._deadline = time.monotonic() + _WAIT_SECONDS
        self._tell_at = time.monotonic() + _TELL_SECONDS
        place, self._store, members = self._lead() if self._size == 1 or rank.rank == 0 else self._follow()
        #: host:port of the store.
        self.address = f"{place.host}:{place.port}"
        self._name(place, members)
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tradewind names", daemon=True)
        if self._size > 1:
            self._watcher.start()

    def close(self) -> bool:
        """This process is about to end: nobody looks at the store any more. Whether that is so: a thread in a call of
        the store, which is C++, aborts the process where the interpreter ends under it.
        """
        self._over.set()
        if self._size > 1:
            self._watcher.join(_END_SECONDS)
        return not self._watcher.is_alive()

    def _name(self, place: Place, members: list[Member]) -> None:
        number = members.index(self._own)
        here = [at for at, member in enumerate(members) if member.machine == self._own.machine]
        os.environ.update({
            "RANK": str(number),
            "WORLD_SIZE": str(len(members)),
            "LOCAL_RANK": str(here.index(number)),
            "LOCAL_WORLD_SIZE": str(len(here)),
            "MASTER_ADDR": place.host,
            "MASTER_PORT": str(place.port),
            # The store is there already. Older versions of torch ask for the count as well.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        })

    # Meeting.

    def _lead(self) -> tuple[Place, TCPStore, list[Member]]:
        host = self._rank._native.host
        # Torch's own calls meet there, too, so its values cannot be sealed.
        store = serve(host, _STORE_TIMEOUT)
        place = Place(host, store.port, secrets.token_hex(8))
        store.set(_TOKEN, place.token)
        self._come(store, 0)
        if self._size > 1:
            self._publish(place)
        everybody = [_came(number) for number in range(self._size)]
        self._until(lambda: store.check(everybody), lambda: _missing(store, self._size))
        members = [_member(store.get(key)) for key in everybody]
        store.set(_MET, json.dumps([asdict(member) for member in members]))
        return place, store, members

    def _follow(self) -> tuple[Place, TCPStore, list[Member]]:
        over: set[str] = set()
        while True:
            place = self._read()
            if place is not None and place.token not in over:
                try:
                    store = self._enter(place)
                    members = [] if store is None else self._meet(store)
                    if store is not None and self._own in members:
                        return place, store, members
                except RuntimeError as error:
                    # The store's process has ended; that of its successor is in the file soon.
                    if isinstance(error, TradewindError):
                        raise
                else:
                    over.add(place.token)
            self._pause(lambda: [0])

    def _enter(self, place: Place) -> TCPStore | None:
        """The store at this place; none if another one is there.

        Raises:
            RuntimeError: None is there.
        """
        try:
            # TCPStore itself says much, and tries for long.
            socket.create_connection((place.host, place.port), timeout=2).close()
        except OSError as error:
            raise RuntimeError(f"nobody listens: {error}") from None
        store = TCPStore(place.host, place.port, timeout=_STORE_TIMEOUT)
        return store if store.check([_TOKEN]) and store.get(_TOKEN).decode() == place.token else None

    def _meet(self, store: TCPStore) -> list[Member]:
        """Who has met there, at last: perhaps without this process."""
        if not store.check([_MET]):
            self._come(store, self._rank.rank)
            self._until(lambda: store.check([_MET]), lambda: _missing(store, self._size))
        members = [Member(**member) for member in json.loads(store.get(_MET))]
        if self._own not in members:
            store.set(_ANEW, f"rank {self._rank.rank} of group {self._rank.group} has a new process")
        return members

    def _come(self, store: TCPStore, number: int) -> None:
        store.set(_came(number), json.dumps(asdict(self._own)))

    def _publish(self, place: Place) -> None:
        self._file.parent.mkdir(exist_ok=True)
        part = self._file.with_suffix(f".{place.token}.part")
        part.write_text(json.dumps(asdict(place)))
        part.replace(self._file)

    def _read(self) -> Place | None:
        try:
            return Place(**json.loads(self._file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _until(self, met: Callable[[], bool], missing: Callable[[], list[int]]) -> None:
        while not met():
            self._pause(missing)

    def _pause(self, missing: Callable[[], list[int]]) -> None:
        """Waits a moment. That it is for long is told, and at last refused."""
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        if now < min(self._tell_at, self._deadline):
            return
        absent = ", ".join(f"rank {number}" for number in missing())
        if now >= self._deadline:
            raise Unavailable(
                f"{absent} of group {self._rank.group} did not come within {_WAIT_SECONDS:.0f} s, and {self._asked} "
                "needs all ranks of the group: every rank calls it, before anything that takes long"
            )
        self._tell_at = self._deadline
        sys.stderr.write(f"tradewind: {self._asked}: waiting for {absent} of group {self._rank.group}\n")

    # Afterwards.

    def _watch(self) -> None:
        """Ends this process once the names are void."""
        while not self._over.wait(_WATCH_SECONDS) and not self._rank.done:
            try:
                why = self._store.get(_ANEW).decode() if self._store.check([_ANEW]) else None
            except RuntimeError:
                why = f"rank 0 of group {self._rank.group} has ended"
                self._wait_for_the_end()
            if why is not None and not self._over.is_set() and not self._rank.done:
                self._rank._begin_anew(
                    f"{why}, and torch's names are of its former one: this process ends, and the ranks of the group "
                    "meet again in new ones"
                )

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while not self._over.wait(_LOOK_SECONDS) and not self._rank.done and time.monotonic() < deadline:
            pass


def _came(number: int) -> str:
    return f"came/{number}"


def _member(text: bytes) -> Member:
    return Member(**json.loads(text))


def _missing(store: TCPStore, size: int) -> list[int]:
    return [number for number in range(size) if not store.check([_came(number)])]
