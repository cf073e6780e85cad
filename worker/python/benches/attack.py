"""What strangers cost: a run whose servers are attacked all the time, beside one that nobody attacks.

Each run has a core of its own. The attackers compute on that of the one, and on that of the other a process that uses as
much processor time as they; both sides change cores all the time. Attackers have none of the run's secrets. They do not
go to the ports where the ranks of a group meet, which docs/security.md tells of.
"""

import json
import math
import multiprocessing
import os
import random
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from common import Run, arguments, core_seconds, demo, pin, told, two_cores

#: Who connects to each server and says nothing, or a byte now and then.
STRANGERS = 300
#: Of HTTP/2 (RFC 9113, 3.4 and 6): what a client says first, and types of frames.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
#: Calls, each of which would be dangerous if it were taken.
CALLS = [
    "Shard/Replicate",
    "Shard/Exchange",
    "Shard/ShardStatus",
    "Coordinator/Serve",
    "Coordinator/Join",
    "Coordinator/KeepLease",
    "Coordinator/Revoke",
    "Host/Coordinate",
]

Address = tuple[str, int]


def counted(tries: "Synchronized[int]") -> None:
    with tries.get_lock():
        tries.value += 1


def strangers(addresses: list[Address], tries: "Synchronized[int]") -> None:
    """Keeps as many connections as a server lets it, and makes a new one for each that is closed."""
    idle: list[tuple[Address, socket.socket]] = []
    while True:
        for address in addresses:
            for _ in range(STRANGERS - sum(address == there for there, _ in idle)):
                counted(tries)
                try:
                    idle.append((address, socket.create_connection(address, timeout=1)))
                    idle[-1][1].setblocking(False)
                except OSError:
                    break
        kept = []
        for address, connection in idle:
            try:
                if random.random() < 0.05:
                    connection.send(os.urandom(1))
                if connection.recv(1024):
                    kept.append((address, connection))
                    continue
            except BlockingIOError:
                kept.append((address, connection))
                continue
            except OSError:
                pass
            connection.close()
        idle = kept
        time.sleep(0.1)


def hello() -> bytes:
    """The first words of a client that speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def garbage(addresses: list[Address], tries: "Synchronized[int]") -> None:
    """Random bytes, pieces of HTTP/2 in clear text, and greetings of TLS in which bytes were changed."""
    greeting = hello()
    while True:
        changed = bytearray(greeting)
        for _ in range(random.randrange(1, 8)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        said = random.choice([
            os.urandom(random.randrange(1, 5000)),
            PREFACE + os.urandom(random.randrange(1, 500)),
            bytes(changed),
            bytes(changed[: random.randrange(len(changed))]),
        ])
        counted(tries)
        try:
            with socket.create_connection(random.choice(addresses), timeout=1) as connection:
                connection.sendall(said)
                connection.settimeout(0.05)
                connection.recv(1024)
        except OSError:
            pass


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def call(path: str) -> bytes:
    """A call of gRPC with a long message of random bytes, as far as it may be sent before the first answer."""
    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":path": f"/tradewind.v1.{path}",
        ":authority": "stranger",
        "content-type": "application/grpc",
        "te": "trailers",
        "authorization": f"Bearer {random.getrandbits(128):032x}",
    }
    # Each as a literal without an entry in a table (RFC 7541, 6.2.2).
    fields = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in headers.items()
    )
    begun = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 0x4, 1, fields)
    message = bytes([0]) + (1 << 28).to_bytes(4, "big") + os.urandom(16_000)
    return begun + b"".join(frame(DATA, 0, 1, part) for part in (message, *[os.urandom(16_000)] * 3))


def callers(addresses: list[Address], tries: "Synchronized[int]", certificate: Path) -> None:
    """Calls over TLS: without a certificate, and with one that its owner has signed."""
    contexts = []
    for shown in (None, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if shown:
            context.load_cert_chain(shown)
        contexts.append(context)
    while True:
        counted(tries)
        try:
            with socket.create_connection(random.choice(addresses), timeout=1) as connection:
                with random.choice(contexts).wrap_socket(connection) as secured:
                    secured.sendall(call(random.choice(CALLS)))
                    while secured.recv(65_536):
                        pass
        except OSError:
            pass


def as_much_as(pids: list[int]) -> None:
    """Uses as much processor time as those, and touches as many caches as a little loop does."""
    own = [os.getpid()]
    from_theirs, from_own = core_seconds(pids), core_seconds(own)
    while True:
        if core_seconds(own) - from_own < core_seconds(pids) - from_theirs:
            for _ in range(20_000):
                pass
        else:
            time.sleep(0.01)


def begun(stack: ExitStack, work: Callable[..., None], *given: object) -> int:
    """A process that goes on until it is ended."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=given, daemon=True)
    process.start()
    assert process.pid is not None
    stack.callback(process.join)
    stack.callback(process.kill)
    return process.pid


def run_of(stack: ExitStack) -> tuple[Run, list[int], list[int]]:
    """A run that is past its first steps, all its processes, and those that are servers."""
    run, pids = demo(stack, options, {"cluster.security": '"tls"'})
    return run, pids, [one["pid"] for one in run.processes() if one["role"] == "server"]


def megabytes(pids: list[int]) -> float:
    """What processes have in main memory, 10^6 bytes."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sides(cores: list[int]) -> Iterator[list[int]]:
    """Cores in one order and in the other: a core of a machine that others have, too, may be the slower one."""
    while True:
        yield cores
        yield cores[::-1]


if __name__ == "__main__":
    options = arguments(
        minutes=(30.0, "minutes of attack"),
        window=(15.0, "seconds on one core"),
        processes=(3, "processes that send garbage, and as many that call"),
        pace=(0.25, "least seconds of a step; 0: as fast as it can, so that the attack takes its time from it"),
        warm=(50, "steps before the attack"),
    )
    cores = two_cores()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificate = folder / "own.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
            + ["/CN=tradewind:server", "-addext", "subjectAltName=URI:tradewind:server/0", "-keyout", str(certificate)]
            + ["-out", str(folder / "certificate.pem")],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        certificate.write_text(certificate.read_text() + (folder / "certificate.pem").read_text())
        attacked, attacked_pids, servers = run_of(stack)
        left_alone, left_alone_pids, their_servers = run_of(stack)
        addresses = [one["address"].rsplit(":", 1) for one in attacked.processes() if one["role"] == "server"]
        places = [(host, int(port)) for host, port in addresses]
        memory = megabytes(servers)
        tries = {what.__name__: multiprocessing.get_context("spawn").Value("q", 0) for what in (strangers, garbage, callers)}
        attackers = [begun(stack, strangers, places, tries["strangers"])]
        attackers += [begun(stack, garbage, places, tries["garbage"]) for _ in range(options.processes)]
        attackers += [begun(stack, callers, places, tries["callers"], certificate) for _ in range(options.processes)]
        burner = begun(stack, as_much_as, attackers)
        busy = [[*attacked_pids, *attackers], [*left_alone_pids, burner]]

        ratios: list[float] = []
        steps = Counter[str]()
        halves: list[float] = []
        from_when = time.monotonic()
        used = [core_seconds(pids) for pids in (attackers, [burner], servers, their_servers)]
        for order in sides(cores):
            for pids, core in zip(busy, order):
                pin(pids, core)
            time.sleep(0.5)
            attacked.fresh_steps()
            left_alone.fresh_steps()
            time.sleep(options.window)
            rows = len(attacked.fresh_steps()), len(left_alone.fresh_steps())
            steps["attacked"] += rows[0]
            steps["left alone"] += rows[1]
            halves.append(rows[0] / rows[1])
            if len(halves) == 2:
                ratios.append(math.sqrt(halves[0] * halves[1]))
                halves = []
                if time.monotonic() - from_when >= 60 * options.minutes:
                    break
        minutes = (time.monotonic() - from_when) / 60
        used = [
            core_seconds(pids) - before for pids, before in zip((attackers, [burner], servers, their_servers), used)
        ]
        words = Counter[str]()
        for event in attacked.events():
            words[" ".join(filter(None, [event["kind"], event.get("reason") or event.get("limit")]))] += event.get("times", 1)
        peak = megabytes(servers)
    told(f"steps beside {minutes:.1f} minutes of attack over steps beside as much other work", ratios)
    print(f"steps: {steps['attacked']} attacked, {steps['left alone']} left alone")
    print("core-seconds: {:.0f} of attackers, {:.0f} of who works as much; {:.0f} and {:.0f} of servers".format(*used))
    print("tries: " + ", ".join(f"{count.value} of {what}" for what, count in tries.items()))
    print(f"memory of the servers: {memory:.0f} MB before, {peak:.0f} MB at the end")
    print("events: " + json.dumps(words))
