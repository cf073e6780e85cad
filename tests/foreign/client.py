"""A client in Python, written from the .proto files and docs/protocol.md alone.

Takes part in a run as a group of one rank: joins, creates, pulls, pushes gradients as f32 and as
bf16, and checks every value that comes back. Prints what the shards must hold at the end as JSON.

    client.py COORDINATOR RUN PROTO_FOLDER      (the token is in TRADEWIND_TOKEN)
"""

import json
import os
import queue
import struct
import sys
import tempfile

try:
    import grpc
    from grpc_tools import protoc
except ImportError as missing:
    sys.exit(f"{missing}: grpcio, grpcio-tools and what they need are not installed; run `make setup`")

ANSWER_SECONDS = 60
RATE = 0.5


def generate(protos):
    """Generates the code and returns its modules."""
    folder = tempfile.TemporaryDirectory()
    files = [f"tradewind/v1/{name}.proto" for name in ("types", "coordinator", "shard")]
    to = [f"--python_out={folder.name}", f"--grpc_python_out={folder.name}"]
    if protoc.main(["protoc", f"-I{protos}", *to, *files]) != 0:
        sys.exit("the .proto files do not compile")
    sys.path.insert(0, folder.name)
    from tradewind.v1 import coordinator_pb2, coordinator_pb2_grpc, shard_pb2, shard_pb2_grpc
    from tradewind.v1 import types_pb2

    return folder, types_pb2, coordinator_pb2, coordinator_pb2_grpc, shard_pb2, shard_pb2_grpc


COORDINATOR, RUN, PROTOS = sys.argv[1:]
FOLDER, types, calls, coordinator_service, frames, shard_service = generate(PROTOS)
METADATA = [("authorization", f"Bearer {os.environ['TRADEWIND_TOKEN']}")]


# Values on the wire.


def f32(x):
    """The nearest f32. A sum, difference or product of two f32 in f64, rounded so, is the f32 one."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f32_bytes(values):
    return struct.pack(f"<{len(values)}f", *values)


def f32_values(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def bf16_bytes(values):
    """The upper half of each f32, rounded to nearest, ties to even."""
    out = b""
    for x in values:
        (bits,) = struct.unpack("<I", struct.pack("<f", x))
        out += struct.pack("<H", (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    return out


def bf16_values(data):
    halves = struct.unpack(f"<{len(data) // 2}H", data)
    return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, not {want}")


# The layout, as docs/protocol.md has it.


def elements(tensor):
    product = 1
    for extent in tensor.shape:
        product *= extent
    return product


def layout(spec):
    """Blocks as (begin, end, kind) in the flat vector."""
    blocks = []
    at = 0
    for kind in (types.TENSOR_KIND_PARAMETER, types.TENSOR_KIND_BUFFER):
        n = sum(elements(tensor) for tensor in spec.tensors if tensor.kind == kind)
        p = -(-n // max(1, spec.block_bytes // 4))
        blocks += [(at + i * n // p, at + (i + 1) * n // p, kind) for i in range(p)]
        at += n
    return blocks


SPEC = types.RunSpec(
    seed=1,
    group_sizes=[1],
    tensors=[
        types.Tensor(name="hidden.weight", shape=[5, 9], kind=types.TENSOR_KIND_PARAMETER),
        types.Tensor(name="hidden.mean", shape=[3], kind=types.TENSOR_KIND_BUFFER),
        types.Tensor(name="out.weight", shape=[2, 5], kind=types.TENSOR_KIND_PARAMETER),
        types.Tensor(name="out.bias", shape=[2], kind=types.TENSOR_KIND_PARAMETER),
    ],
    block_bytes=64,
    consistency=types.Choice(name="bounded"),
    optimizer=types.Choice(name="sgd"),
    schedule=types.Schedule(learning_rate=RATE, decay=types.Choice(name="constant")),
    samples=1000,
    epoch_samples=100,
    batch=4,
    chunk_samples=8,
    lease_ms=600_000,
    faults={
        "snapshots.kept": types.Setting(count=1),
        "liveness.patience_ms": types.Setting(count=1_200_000),
    },
    up=types.Choice(name="bf16"),
    down=types.Choice(name="bf16"),
)
BLOCKS = layout(SPEC)
ELEMENTS = BLOCKS[-1][1]


def is_parameter(block):
    return BLOCKS[block][2] == types.TENSOR_KIND_PARAMETER


def channel(address):
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])


class Stream:
    """One stream of an exchange."""

    def __init__(self, address):
        self.up = queue.Queue()
        shard = shard_service.ShardStub(channel(address))
        self.down = shard.Exchange(
            iter(self.up.get, None), metadata=METADATA, timeout=ANSWER_SECONDS
        )

    def ask(self, frame):
        self.up.put(frame)
        return next(self.down)

    def close(self):
        self.up.put(None)
        check("what comes after the last answer", list(self.down), [])


class Group:
    """A group of one rank, and what it knows of the shards' values."""

    def __init__(self):
        self.coordinator = coordinator_service.CoordinatorStub(channel(COORDINATOR))
        joined = self.call("Join", calls.JoinRequest(run=RUN, life=7, spec=SPEC))
        self.incarnation = joined.incarnation
        check("the group", (joined.group_size, joined.group_rank), (1, 0))
        self.shards = list(joined.placement.shards)
        check("blocks", len(self.shards), len(BLOCKS))
        primaries = self.primaries(joined.placement.holding)
        check("shards with blocks", set(self.shards), set(primaries))
        self.streams = {shard: Stream(address) for shard, address in primaries.items()}
        self.beats = None
        self.clock = 0
        self.versions = [0] * len(BLOCKS)
        # What the shards must have, and what this group holds after roundings.
        self.exact = [f32(i / 7 - 3) for i in range(ELEMENTS)]
        self.held = [None] * ELEMENTS
        self.differences = 0

    @staticmethod
    def primaries(holding):
        """Address of the server that answers for each shard."""
        servers = {server.server: server.address for server in holding.servers}
        return {shard: servers[held.primary] for shard, held in enumerate(holding.holders)}

    def keep_lease(self, generation):
        """Holds the lease until the group leaves: one beat is enough here, for it is long."""
        self.beats = queue.Queue()
        beat = calls.Beat(run=RUN, incarnation=self.incarnation)
        self.beats.put(beat)
        replies = self.coordinator.KeepLease(iter(self.beats.get, None), metadata=METADATA)
        reply = next(replies)
        check("generation", reply.generation, generation)
        check("holding", self.primaries(reply.holding).keys(), self.streams.keys())
        self.beats.put(beat)
        reply = next(replies)
        check("nothing has changed", (reply.generation, reply.HasField("holding")), (generation, False))
        self.replies = replies

    def call(self, name, request):
        method = getattr(self.coordinator, name)
        return method(request, metadata=METADATA, timeout=ANSWER_SECONDS)

    def frame(self, block, **action):
        clock = self.clock if "gradient" in action or "skip" in action else 0
        return frames.PushFrame(
            run=RUN, incarnation=self.incarnation, clock=clock, block=block, **action
        )

    def ask(self, block, frame, verdict, version):
        """Sends a frame and takes the values of its answer in."""
        answer = self.streams[self.shards[block]].ask(frame)
        what = f"block {block} at clock {frame.clock}"
        check(what, (answer.block, answer.clock), (block, frame.clock))
        check(f"{what}: verdict", answer.verdict, verdict)
        check(f"{what}: version", answer.version, version)
        check(f"{what}: lineage", answer.lineage, 0)
        begin, end, _ = BLOCKS[block]
        want = self.exact[begin:end]
        if answer.difference:
            check(f"{what}: holds", frame.holds, self.versions[block])
            check(f"{what}: type", answer.dtype, types.DTYPE_BF16)
            steps = [f32(x - held) for x, held in zip(want, self.held[begin:end])]
            check(f"{what}: difference", answer.values, bf16_bytes(steps))
            steps = bf16_values(answer.values)
            want = [f32(held + step) for held, step in zip(self.held[begin:end], steps)]
            self.held[begin:end] = want
            self.differences += 1
        else:
            check(f"{what}: type", answer.dtype, types.DTYPE_F32)
            check(f"{what}: values", answer.values, f32_bytes(want))
            self.held[begin:end] = want
        self.versions[block] = version
        return answer

    def begin(self):
        ready = calls.AwaitReadyRequest(run=RUN, incarnation=self.incarnation)
        check("the only group creates", self.call("AwaitReady", ready).create, True)
        for block, (begin, end, _) in enumerate(BLOCKS):
            values = f32_bytes(self.exact[begin:end])
            create = frames.Create(dtype=types.DTYPE_F32, values=values)
            self.ask(block, self.frame(block, create=create), frames.VERDICT_CREATED, 0)
        ready.created = True
        answer = self.call("AwaitReady", ready)
        check("create again", answer.create, False)
        check("the first clock", answer.start_clock, 0)
        self.keep_lease(answer.generation)
        for block in range(len(BLOCKS)):
            self.ask(block, self.frame(block, pull=frames.Pull()), frames.VERDICT_READ, 0)
        lease = calls.LeaseChunkRequest(run=RUN, incarnation=self.incarnation)
        chunk = self.call("LeaseChunk", lease)
        check("the first chunk", (chunk.begin, chunk.end), (0, SPEC.chunk_samples))

    def gradient(self, block, dtype):
        """The frame of a gradient, and the values that arrive."""
        begin, end, _ = BLOCKS[block]
        # Thirds and sevenths: no bf16 has them.
        values = [f32(((i * 5 + self.clock) % 11 - 5) / 3 + i / 7) for i in range(begin, end)]
        if dtype == types.DTYPE_BF16:
            data = bf16_bytes(values)
            values = bf16_values(data)
        else:
            data = f32_bytes(values)
        gradient = frames.Gradient(
            samples=4, pulled_version=self.versions[block], lineage=0, dtype=dtype, values=data
        )
        frame = self.frame(block, gradient=gradient)
        frame.holds = self.versions[block]
        return frame, values

    def exchange(self, dtype):
        """Pushes a gradient of every block, of buffers new values; those are always f32."""
        for block, (begin, end, _) in enumerate(BLOCKS):
            parameter = is_parameter(block)
            frame, values = self.gradient(block, dtype if parameter else types.DTYPE_F32)
            for i, value in zip(range(begin, end), values):
                # A group alone moves a buffer all the way to what it pushes.
                change = -RATE * value if parameter else value - self.exact[i]
                self.exact[i] = f32(self.exact[i] + f32(change))
            version = self.versions[block] + 1
            answer = self.ask(block, frame, frames.VERDICT_APPLIED, version)
            check("repeated", answer.repeated_verdict, False)
            check("a parameter comes as a difference", answer.difference, parameter)
            check("samples", answer.samples_applied, 4 * version)
        self.clock += 1

    def skip(self):
        """Nothing changes, and what is held comes again."""
        for block, (begin, end, _) in enumerate(BLOCKS):
            frame = self.frame(block, skip=frames.Skip())
            frame.holds = self.versions[block]
            answer = self.streams[self.shards[block]].ask(frame)
            check("verdict", answer.verdict, frames.VERDICT_SKIPPED)
            check("version", answer.version, self.versions[block])
            check("values", f32_values(answer.values), self.held[begin:end])
        self.clock += 1

    def repeat(self):
        """The last frame of every block again, with another gradient: the verdict stands."""
        self.clock -= 1
        for block in range(len(BLOCKS)):
            frame, _ = self.gradient(block, types.DTYPE_F32)
            frame.ClearField("holds")
            answer = self.streams[self.shards[block]].ask(frame)
            check("repeated", answer.repeated_verdict, True)
            check("version", answer.version, self.versions[block])
        self.clock += 1

    def refused(self):
        """A value that is not finite, on a stream of its own."""
        last = max(filter(is_parameter, range(len(BLOCKS))))
        frame, _ = self.gradient(last, types.DTYPE_BF16)
        frame.gradient.values = frame.gradient.values[:-2] + b"\xc0\x7f"
        holding = self.call("Status", calls.StatusRequest(run=RUN)).placement.holding
        stream = Stream(self.primaries(holding)[self.shards[last]])
        try:
            check("a NaN is answered", stream.ask(frame), None)
        except grpc.RpcError as error:
            check("status", error.code(), grpc.StatusCode.INVALID_ARGUMENT)
            word = dict(error.trailing_metadata()).get("tradewind-refusal")
            check("word", word, "not-finite")

    def read(self):
        """What the shards have, as nobody in particular reads it."""
        for block, (begin, end, _) in enumerate(BLOCKS):
            frame = frames.PushFrame(run=RUN, block=block, pull=frames.Pull())
            answer = self.streams[self.shards[block]].ask(frame)
            check(f"block {block}", answer.values, f32_bytes(self.exact[begin:end]))
            check(f"version of block {block}", answer.version, self.versions[block])

    def leave(self):
        for stream in self.streams.values():
            stream.close()
        self.call("Leave", calls.LeaveRequest(run=RUN, incarnation=self.incarnation))
        self.beats.put(None)
        # The stream ends without a refusal.
        for reply in self.replies:
            check("shards", self.primaries(reply.holding).keys(), self.streams.keys())


group = Group()
group.begin()
group.exchange(types.DTYPE_F32)
group.exchange(types.DTYPE_BF16)
group.repeat()
group.skip()
group.refused()
for _ in range(5):
    group.exchange(types.DTYPE_BF16)
group.read()
check("roundings", group.held == group.exact, False)
group.leave()

result = [
    {
        "shard": group.shards[block],
        "version": group.versions[block],
        "values": f32_bytes(group.exact[begin:end]).hex(),
    }
    for block, (begin, end, _) in enumerate(BLOCKS)
]
json.dump({"clock": group.clock, "differences": group.differences, "blocks": result}, sys.stdout)
