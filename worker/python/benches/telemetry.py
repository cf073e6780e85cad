"""What telemetry costs: the demo with all of it beside the demo without, each on a core of its own, which they change.

With it servers answer Prometheus and are asked every second, event files for TensorBoard are written, and traces of all
steps are sent to a collector, which takes them and does nothing else. Processor time is that of servers, ranks and
the launcher, which writes the event files; not that of who asks and who collects.
"""

import math
import socket
import statistics
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
from common import Run, arguments, core_seconds, demo, pin, told, two_cores

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#: Seconds between two questions of Prometheus.
SCRAPE = 1.0

options = arguments(
    pairs=(4, "pairs of runs"),
    windows=(20, "windows of a pair, an even number"),
    seconds=(10.0, "seconds of a window"),
    pace=(0.25, "seconds of a step, of which some are left over, so that nothing waits for a core"),
    warm=(50, "steps before them"),
)
servers = 2
received = 0
answers = 0


def export(request: bytes, context: grpc.ServicerContext) -> bytes:
    """An answer without a word: all spans are taken."""
    global received
    received += len(request)
    return b""


class Collector(grpc.GenericRpcHandler):
    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(export) if call.method == EXPORT else None


def free_port(count: int) -> int:
    """The first of so many ports that are free, one after the other."""
    for first in range(20_000, 30_000, 10):
        try:
            for port in range(first, first + count):
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise SystemExit("no ports are free")


def scrape(first: int, over: threading.Event) -> None:
    global answers
    while not over.wait(SCRAPE):
        for port in range(first, first + servers):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                    answers += page.read().count(b"tradewind_updates_total")
            except OSError:
                # It has not begun yet, or has ended.
                pass


def window(runs: list[tuple[Run, list[int]]], cores: list[int]) -> list[tuple[float, float]]:
    """Of each run, on its core: processor time of a step of all groups, and the median of its exchanges, seconds."""
    for (run, pids), core in zip(runs, cores):
        pin(pids, core)
    # What the caches of the other core had.
    time.sleep(0.5)
    for run, _ in runs:
        run.fresh_steps()
    before = [core_seconds(pids) for _, pids in runs]
    time.sleep(options.seconds)
    spent = [core_seconds(pids) - at for (_, pids), at in zip(runs, before)]
    steps = [run.fresh_steps() for run, _ in runs]
    return [
        (took / len(rows), statistics.median(row["exchange_seconds"] for row in rows))
        for took, rows in zip(spent, steps)
    ]


server = grpc.server(ThreadPoolExecutor(1), handlers=(Collector(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
cores = two_cores()
spent: list[float] = []
exchanges: list[float] = []
medians: dict[str, list[float]] = {"ms off": [], "ms on": []}
exchange_medians: dict[str, list[float]] = {"ms off": [], "ms on": []}
for pair in range(options.pairs):
    first = free_port(servers)
    everything = {
        "telemetry.prometheus": f"127.0.0.1:{first}",
        "telemetry.tensorboard": "true",
        "telemetry.otlp": f"http://127.0.0.1:{port}",
    }
    with ExitStack() as stack:
        runs = [demo(stack, options, {"cluster.servers": servers, **keys}) for keys in ({}, everything)]
        over = threading.Event()
        asking = threading.Thread(target=scrape, args=(first, over))
        asking.start()
        stack.callback(asking.join)
        stack.callback(over.set)
        for _ in range(options.windows // 2):
            # Each run on each core: a core of a machine that others have, too, may be the slower one.
            here, there = window(runs, cores), window(runs, cores[::-1])
            (off, off_exchange), (on, on_exchange) = [
                [math.sqrt(one * other) for one, other in zip(*both)] for both in zip(here, there)
            ]
            spent.append(on / off)
            exchanges.append(on_exchange / off_exchange)
            medians["ms off"].append(1e3 * off)
            medians["ms on"].append(1e3 * on)
            exchange_medians["ms off"].append(1e3 * off_exchange)
            exchange_medians["ms on"].append(1e3 * on_exchange)
    if received == 0 or answers == 0:
        raise SystemExit(f"{received} bytes of traces have come, and {answers} answers for Prometheus")
    told(f"after {pair + 1} of {options.pairs} pairs of runs: core-seconds of a step, all telemetry over none", spent, **medians)
    told("an exchange", exchanges, **exchange_medians)
