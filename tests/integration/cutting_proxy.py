"""A TCP proxy before a Kafka broker, which cuts connections in the middle of the forwarded bytes.

Theory of operation. The proxy listens on as many ports as there are brokers, and reads whole requests and
answers. Answers that name brokers (NAMING) are rewritten to name the proxy, so that clients stay with it. A
plan, made from a seed, says at which requests of one kind (Produce), or of any, a connection is cut, counted
over all connections, and how:

    request     the broker never sees the request
    half        it sees the first half of it
    answer      it has done it, and its answer is not passed on
    part        of its answer the first bytes come
    stall       half of its answer comes, and then nothing more, until the client gives up

What the broker does meanwhile with other requests of the connection is its own business.

`refuse` makes the proxy answer the next Produce request itself; the broker never sees it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from kbatch import Admin
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message

HOST = "127.0.0.1"
CUTS = ("request", "half", "answer", "part")
STALL = "stall"
PRODUCE = messages.ProduceRequest.api_key
# The requests whose answers have addresses of brokers.
NAMING = {each.api_key: each for each in (messages.MetadataRequest, messages.FindCoordinatorRequest)}


class Refusal(NamedTuple):
    """The answer to a Produce request, and whether it waits for another request."""

    error_code: int
    once_followed: bool


class CuttingProxy:
    """A proxy before `bootstrap_servers`, within its context.

    Parameters
    ----------
    bootstrap_servers : str
    seed : object
    cuts : int or None
        The number of connections to cut; None for no limit.
    spacing : int
        The largest number of Produce requests between two cuts.
    api_key : int or None
        The kind of requests at which it cuts; None for any kind.
    kinds : tuple of str
        The ways in which it cuts.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        seed: object,
        *,
        cuts: int | None = None,
        spacing: int = 10,
        api_key: int | None = PRODUCE,
        kinds: tuple[str, ...] = CUTS,
    ) -> None:
        self.api_key = api_key
        self._brokers = [int(server.rsplit(":", 1)[1]) for server in bootstrap_servers.split(",")]
        self._ports: dict[int, int] = {}
        rng = random.Random(f"cuts {seed}")
        drawn = ((rng.randint(1, spacing), rng.choice(kinds)) for _ in itertools.count())
        self._plan: Iterator[tuple[int, str]] = itertools.islice(drawn, cuts)
        self._next = next(self._plan, None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy", daemon=True)
        self.done: Counter[str] = Counter()
        self._refusals: deque[Refusal] = deque()

    def refuse(self, error_code: int, *, once_followed: bool) -> None:
        """Refuse the next Produce request with `error_code`; `once_followed`: only when the next request has
        come on its connection, so that the two are pipelined."""
        self._refusals.append(Refusal(error_code, once_followed))

    def next_refusal(self) -> Refusal | None:
        """Return how this Produce request is to be refused, if it is."""
        return self._refusals.popleft() if self._refusals else None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._ports[broker]}" for broker in self._brokers)

    async def _listen(self) -> None:
        for broker in self._brokers:

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: int = broker
            ) -> None:
                await self._serve(broker, reader, writer)

            server = await asyncio.start_server(serve, HOST, 0, limit=1 << 26)
            self._ports[broker] = server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        tasks = []
        try:
            broker_reader, broker_writer = await asyncio.open_connection(HOST, broker, limit=1 << 26)
            writers.append(broker_writer)
            connection = _Connection(self)
            tasks = [
                asyncio.ensure_future(connection.pass_requests(reader, broker_writer, writer)),
                asyncio.ensure_future(connection.pass_answers(broker_reader, writer)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in writers:
                each.transport.abort()

    def next_cut(self) -> str | None:
        """Return how to cut the connection of this request, or None."""
        if self._next is None:
            return None
        left, cut = self._next
        self._next = (left - 1, cut) if left > 1 else next(self._plan, None)
        if left > 1:
            return None
        self.done[cut] += 1
        return cut

    def naming_proxy(self, frame: bytes, api_key: int, version: int) -> bytes:
        """Return an answer of a kind in NAMING whose brokers are the proxy's ports."""
        correlation_id, answer = codec.decode_response(NAMING[api_key].response, version, frame)
        if isinstance(answer, messages.MetadataResponse):
            named: list[Any] = list(answer.brokers)
        else:
            named = [answer, *answer.coordinators]
        for broker in named:
            broker.port = self._ports.get(broker.port, broker.port)  # an error has none
        return b"".join(codec.encode_response(answer, version, correlation_id))[4:]


@contextmanager
def losing(target: str, kind: type[Message], **settings: Any) -> Iterator[Admin]:
    """Yield an Admin that does not get the first answer to requests of this kind."""
    proxy = CuttingProxy(target, kind, cuts=1, spacing=1, api_key=kind.api_key, kinds=("answer",))
    with proxy:
        with Admin(bootstrap_servers=proxy.bootstrap_servers, retry_backoff_ms=10, **settings) as admin:
            yield admin
        assert sum(proxy.done.values()) == 1


class _Connection:
    """The requests in flight on a connection."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy
        self._naming: dict[int, tuple[int, int]] = {}  # kinds and versions, by correlation id
        self._cuts: dict[int, str] = {}

    async def pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        held = b""  # a refusal that is sent when the next request has come
        async for frame in _frames(reader):
            client.write(held)
            held = b""
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            refusal = self._proxy.next_refusal() if api_key == PRODUCE else None
            if refusal is not None:
                held = _refused(frame, refusal.error_code)
                if not refusal.once_followed:
                    client.write(held)
                    held = b""
                continue
            if api_key in NAMING:
                self._naming[correlation_id] = api_key, version
            cut = self._proxy.next_cut() if self._proxy.api_key in (None, api_key) else None
            if cut == "request":
                return
            size = struct.pack(">i", len(frame))
            if cut == "half":
                writer.write(size + frame[: len(frame) // 2])
                await writer.drain()
                return
            if cut is not None:
                self._cuts[correlation_id] = cut
            writer.write(size + frame)
            await writer.drain()

    async def pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in _frames(reader):
            (correlation_id,) = struct.unpack_from(">i", frame)
            cut = self._cuts.get(correlation_id)
            if cut == "answer":
                return
            if correlation_id in self._naming:
                frame = self._proxy.naming_proxy(frame, *self._naming.pop(correlation_id))
            data = struct.pack(">i", len(frame)) + frame
            writer.write(data[: len(data) // 2] if cut == STALL else data[:7] if cut else data)
            await writer.drain()
            if cut == STALL:
                await asyncio.get_running_loop().create_future()  # which the end of the connection cancels
            if cut:
                await asyncio.sleep(0)
                return


def _refused(frame: bytes, error_code: int) -> bytes:
    """Return the answer to a Produce request that refuses each of its batches."""
    request = codec.decode_request(frame)
    assert isinstance(request.message, messages.ProduceRequest)
    answer = messages.ProduceResponse
    partitions = answer.PartitionProduceResponse
    refused = [
        answer.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                partitions(index=each.index, error_code=error_code, base_offset=-1)
                for each in topic.partition_data
            ],
        )
        for topic in request.message.topic_data
    ]
    return b"".join(codec.encode_response(answer(responses=refused), request.version, request.correlation_id))


async def _frames(reader: asyncio.StreamReader) -> Any:
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            yield await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return
