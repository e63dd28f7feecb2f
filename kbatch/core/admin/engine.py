"""AdminEngine: a client that administrates a cluster, without sockets, threads and clocks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.client.cluster import Cluster, TopicUse
from kbatch.core.client.controllers import ControllerCluster
from kbatch.core.client.engine import ClientEngine

if TYPE_CHECKING:
    from kbatch.config import AdminConfig
    from kbatch.core.client.connections import Response
    from kbatch.metrics import MetricsRegistry

# Requests of a connection; more wait for their answers.
MAX_IN_FLIGHT = 5
# How long a topic is kept whose leaders were asked for.
TOPIC_IDLE_MS = 60_000


class AdminEngine(ClientEngine):
    """The engine of an Admin, which has requests only.

    Parameters
    ----------
    config : AdminConfig
    random, registry, now_ns, on_change
        Parameters of ClientEngine.
    """

    def __init__(
        self,
        config: AdminConfig,
        *,
        random: Random,
        registry: MetricsRegistry,
        now_ns: int,
        on_change: Callable[[], object],
    ) -> None:
        super().__init__(
            config,
            random=random,
            registry=registry,
            now_ns=now_ns,
            max_in_flight=MAX_IN_FLIGHT,
            topic_use=TopicUse(
                max_idle_ms=TOPIC_IDLE_MS, patience_ms=0, acl_operations="DESCRIBE", creates=False
            ),
            on_change=on_change,
            cluster_type=ControllerCluster if config.bootstrap_controllers else Cluster,
        )

    def _request_answered(self, response: Response) -> None:
        request, now_ms = response.request, response.now_ns // NS_PER_MS
        latency_ms = (response.now_ns - request.created_ns) / NS_PER_MS
        self._registry.sensor("request-latency", node=request.node_id).record(latency_ms, now_ms)

    def poll_completed(self) -> list[object]:
        """Return nothing: requests have their own results."""
        return []
