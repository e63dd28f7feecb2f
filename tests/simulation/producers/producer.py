"""SimulatedProducer: kbatch's producer in virtual time.

Theory of operation. It is the code that users run: native `send`, and the coroutines of ProducerBase and its
parts, over virtual waiters. A VirtualTask awaits what blocks a thread of Producer. Only the network, the
compressing threads and the thread of callbacks are the world's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.batch.delivery import Delivery
from kbatch.producer.coroutines import CoroutineProducer
from kbatch.producer.memory_queue import TaskQueue
from kbatch.producer.runtime import CallbackBarrier, Runtime
from tests.simulation.world.network import Shell
from tests.simulation.world.tasks import VirtualWaiter

if TYPE_CHECKING:
    from random import Random

    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch.producer.transactions import TransactionCalls
    from kbatch.waiting.deadline import Deadline
    from tests.simulation.producers.wire import Host


class SimulatedProducer(CoroutineProducer):
    """AsyncProducer's methods, for VirtualTasks.

    Parameters
    ----------
    host : Host
        Has its configuration, its clock, its network and its callbacks.
    random : random.Random
    seal : callable or None
        Takes a full batch of a table.
    engine_keys, accumulator_keys : mapping
        As Runtime has them.

    Attributes
    ----------
    shell : Shell
    """

    def __init__(
        self,
        host: Host,
        *,
        random: Random,
        seal: Callable[[ProducerBatch], object] | None = None,
        engine_keys: Mapping[str, Any] = {},
        accumulator_keys: Mapping[str, Any] = {},
    ) -> None:
        # deliveries, which the world keeps, hold the accumulator where the garbage collector does not look
        clock = weakref.proxy(host.schedule)

        def now_ns() -> int:
            now: int = clock.now_ns
            return now

        def wake() -> None:
            if (found := known_shell()) is not None:
                found.ring()

        def freed() -> None:
            if (found := known_queue()) is not None:
                clock.after(0, found.look)

        new_waiter = partial(VirtualWaiter, host.schedule)
        queue = TaskQueue(new_waiter, freed)
        known_queue = weakref.ref(queue)
        runtime = Runtime(
            host.config,
            random=random,
            new_waiter=new_waiter,
            queue=queue,
            wake=wake,
            clock_ns=now_ns,
            engine_keys=engine_keys,
            accumulator_keys={"clock_ns": now_ns, **accumulator_keys},
        )
        self.shell = Shell(host, runtime.engine)
        known_shell = weakref.ref(self.shell)
        runtime.network, runtime.callbacks = self.shell, host.application
        super().__init__(runtime, random)
        self.seal = seal
        if host.options.seed % 2:  # the other worlds are those of TLS, and of event loops
            self.shell.use_loans(runtime.engine)
        runtime.is_closed = self._is_released = False
        runtime.accept_directly()

    async def send(self, *arguments: Any, **keywords: Any) -> Delivery:  # type: ignore[override]
        """Producer.send, awaited."""
        sent: Any = super().send(*arguments, **keywords)
        return sent if isinstance(sent, Delivery) else await sent

    async def send_batch(  # type: ignore[override]
        self, *arguments: Any, **keywords: Any
    ) -> Any:
        """Producer.send_batch, awaited."""
        sent: Any = super().send_batch(*arguments, **keywords)
        return sent if isinstance(sent, Delivery) else await sent

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    @property
    def transactions(self) -> TransactionCalls:
        return self._transactions

    @property
    def unfinished_call(self) -> Any:
        """Return the call of a transaction that continues, or whose outcome no caller has got yet."""
        return self._transactions._unfinished

    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        reached = self._runtime.new_event()
        self._runtime.callbacks.deliver([CallbackBarrier(reached.set)])
        await self._runtime.await_until(reached.is_set, deadline, reached, needs_network=False)

    def _close_elsewhere(self) -> None:
        """Do nothing: the end of a world closes no producer."""

    _close_at_exit = __del__ = _close_elsewhere
