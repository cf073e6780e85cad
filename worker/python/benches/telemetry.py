"""What telemetry costs: steps of the demo with all of it beside steps without, in turn.

With it servers answer Prometheus and are asked every second, event files for TensorBoard are written, and traces of all
steps are sent to a collector, which takes them and does nothing else. Processor time is that of servers, ranks and
the launcher, which writes the event files; not that of who asks and who collects.
"""

import socket
import statistics
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
from common import ROOT, Run, arguments, core_seconds, told

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#: Seconds between two questions of Prometheus.
SCRAPE = 1.0

options = arguments(
    pairs=(7, "pairs of runs"), steps=(200, "steps of a run that are measured"), warm=(50, "steps before them")
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


def measured(telemetry: dict[str, object]) -> tuple[float, float, float]:
    """Processor time of a step of all groups, and the medians of a step and of an exchange of group 0, seconds."""
    keys = {"cluster.servers": servers, "servers.replication": 2, "train.samples": 10**9, **telemetry}
    run = Run(options.programs, ROOT / "deploy/configs/climate-forecast.toml", keys)
    with run.going_on() as process:
        run.waits_for(options.warm)
        pids = [process.pid, *run.pids()]
        rows, spent = len(run.steps()), core_seconds(pids)
        run.waits_for(options.warm + options.steps)
        spent = core_seconds(pids) - spent
        steps = run.steps()[rows:]
        run.enough(process)
    own = [step for step in steps if step["group"] == 0]
    step = statistics.median(after["wall"] - before["wall"] for before, after in zip(own, own[1:]))
    exchange = statistics.median(step["exchange_seconds"] for step in own)
    return spent / len(steps), step, exchange


server = grpc.server(ThreadPoolExecutor(1), handlers=(Collector(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
ratios: dict[str, list[float]] = {"core-seconds of a step": [], "wall of a step": [], "an exchange": []}
medians: dict[str, list[float]] = {"off": [], "on": []}
for pair in range(options.pairs):
    first = free_port(servers)
    everything = {
        "telemetry.prometheus": f"127.0.0.1:{first}",
        "telemetry.tensorboard": "true",
        "telemetry.otlp": f"http://127.0.0.1:{port}",
    }

    def on() -> tuple[float, float, float]:
        over = threading.Event()
        asking = threading.Thread(target=scrape, args=(first, over))
        asking.start()
        try:
            return measured(everything)
        finally:
            over.set()
            asking.join()

    # Whoever is first is so in every other pair.
    if pair % 2 == 0:
        off_took, on_took = measured({}), on()
    else:
        on_took, off_took = on(), measured({})
    for name, before, after in zip(ratios, off_took, on_took):
        ratios[name].append(after / before)
    medians["off"].append(1e3 * off_took[0])
    medians["on"].append(1e3 * on_took[0])
if received == 0 or answers == 0:
    raise SystemExit(f"{received} bytes of traces have come, and {answers} answers for Prometheus")
for name, values in ratios.items():
    beside = {f"ms {which}": times for which, times in medians.items()} if name.startswith("core") else {}
    told(f"{name}, all telemetry over none", values, **beside)
