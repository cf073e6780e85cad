"""The store in which the ranks of a group meet: on one address, and with values that only they can have written."""

from __future__ import annotations

import hmac
import socket
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Store, TCPStore

from ._native import TradewindError, seal

if TYPE_CHECKING:
    from datetime import timedelta

#: Bytes of a seal.
_SEAL = 32
#: Connections that wait to be accepted, as torch itself has it.
_BACKLOG = 2048
#: Before torch 2.5 a store takes a socket that listens only with its older back end.
_LIBUV_TAKES_SOCKETS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)


def serve(host: str, patience: timedelta) -> TCPStore:
    """A store on a free port of an address or name of this machine. By itself torch listens on all of its addresses."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=patience,
        use_libuv=_LIBUV_TAKES_SOCKETS,
        # The store's from here on.
        master_listen_fd=listener.detach(),
    )


class SealedStore(Store):
    """A store whose values carry a seal that follows from the run's token. A TCPStore asks nobody for anything: whoever
    reaches it can write an address there to which ranks would connect. Without the token nobody can make a rank
    believe a value; deleting keys is left, after which ranks wait in vain or fail.

    Built-in models have the same (worker/csrc/store.cpp). Keep it as long as what was made with it: C++ calls it.
    """

    def __init__(self, store: Store, key: bytes) -> None:
        super().__init__()
        self._inner = store
        self._key = key

    def _open(self, name: str, sealed: bytes) -> bytes:
        value, given = sealed[:-_SEAL], sealed[-_SEAL:]
        if len(sealed) < _SEAL or not hmac.compare_digest(given, seal(self._key, name, value)):
            raise TradewindError(
                f"somebody who does not know the run's token has written to the group's store, under {name}"
            )
        return value

    def set(self, key: str, value: bytes | str) -> None:
        value = value.encode() if isinstance(value, str) else bytes(value)
        # Stubs of torch take strings alone.
        sealed: Any = value + seal(self._key, key, value)
        self._inner.set(key, sealed)

    def get(self, key: str) -> bytes:
        return self._open(key, self._inner.get(key))

    def add(self, key: str, amount: int) -> int:
        return self._inner.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self._inner.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if timeout is None:
            self._inner.wait(keys)
        else:
            self._inner.wait(keys, timeout)

    def delete_key(self, key: str) -> bool:
        return self._inner.delete_key(key)

    # As C++ calls it.
    deleteKey = delete_key

    def num_keys(self) -> int:
        return self._inner.num_keys()

    getNumKeys = num_keys
