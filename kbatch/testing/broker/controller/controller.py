"""Controller: the changes of partitions and brokers that the controller of the cluster decides.

After org.apache.kafka.controller.ReplicationControlManager and BrokerHeartbeatManager. A change of a
partition is a new registration (partition_change.py), which each node takes when it hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.brokers import BrokerControlState, Node
from kbatch.testing.broker.controller.partition_change import (
    NO_LEADER,
    Election,
    Registration,
    Rules,
    changed,
    without_eligible,
)
from kbatch.testing.broker.logs.topic_config import parse

if TYPE_CHECKING:
    from kbatch.testing.broker.logs.topic_config import TopicConfig

CONTROLLER_IDS = (3000, 3001, 3002)  # of controllers that are not brokers
MIN_ISR, UNCLEAN_ELECTION = "min.insync.replicas", "unclean.leader.election.enable"


class RegisteredTopic(Protocol):
    """A topic, as far as decisions need it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> TopicConfig: ...


class RegisteredPartition(Protocol):
    """A partition, as far as decisions need it."""

    @property
    def topic(self) -> RegisteredTopic: ...
    @property
    def index(self) -> int: ...
    @property
    def registration(self) -> Registration: ...
    @property
    def leader(self) -> int: ...
    @property
    def shares_log(self) -> bool: ...
    def is_online(self, node_id: int) -> bool: ...
    def register(self, registration: Registration, now_ms: int) -> None: ...
    def min_isr_changed(self, now_ms: int) -> None: ...


@dataclass(slots=True, frozen=True)
class ReplicationSettings:
    """What holds for topics that do not set it, and times.

    Attributes
    ----------
    min_insync_replicas : int
        min.insync.replicas
    unclean_leader_election : bool
        unclean.leader.election.enable
    eligible_leader_replicas : bool
        True if eligible.leader.replicas.version is 1 (KIP-966).
    replica_lag_ms : int
        replica.lag.time.max.ms
    session_timeout_ms : int
        broker.session.timeout.ms
    leader_rebalance : bool
        auto.leader.rebalance.enable
    """

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    eligible_leader_replicas: bool = True
    replica_lag_ms: int = 30_000
    session_timeout_ms: int = 9_000
    leader_rebalance: bool = True


class Proposal(NamedTuple):
    """In-sync replicas that a leader asks for (AlterPartition).

    Attributes
    ----------
    broker_epochs : dict of int to int
        The starts of their nodes, as far as the leader knows: another one may have lost its log (KIP-903).
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = {}


# What is wrong with a proposal, in the order in which the controller looks at it.
REFUSALS: dict[ErrorCode, Callable[[Registration, Proposal], bool]] = {
    ErrorCode.FENCED_LEADER_EPOCH: lambda known, asked: asked.leader_epoch < known.leader_epoch,
    ErrorCode.NOT_CONTROLLER: lambda known, asked: (
        asked.leader_epoch > known.leader_epoch or asked.partition_epoch > known.partition_epoch
    ),
    ErrorCode.INVALID_REQUEST: lambda known, asked: (
        asked.leader != known.leader
        or asked.leader not in asked.isr
        or len(set(asked.isr)) < len(asked.isr)
        or not set(asked.isr) <= set(known.replicas)
    ),
    ErrorCode.INVALID_UPDATE_VERSION: lambda known, asked: asked.partition_epoch < known.partition_epoch,
}


class Controller:
    """Decides for `partitions()`, which belong to `nodes`; `clock` returns the wall-clock milliseconds.

    Attributes
    ----------
    settings : ReplicationSettings
    epoch : int
        The number of the present active controller.
    """

    def __init__(
        self,
        nodes: list[Node],
        partitions: Callable[[], Iterable[RegisteredPartition]],
        settings: ReplicationSettings,
        clock: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._defaults: Mapping[str, str | None] = {}  # configs of all topics that do not set them
        self.epoch = 1
        self._nodes = nodes
        self._partitions = partitions
        self._clock = clock

    @property
    def active_id(self) -> int:
        """Return the active controller's id."""
        return CONTROLLER_IDS[(self.epoch - 1) % len(CONTROLLER_IDS)]

    # Settings of topics

    def min_isr(self, topic: RegisteredTopic) -> int:
        configured = topic.config.overrides.get(MIN_ISR) or self._defaults.get(MIN_ISR)
        return self.settings.min_insync_replicas if configured is None else int(parse(MIN_ISR, configured))

    def set_defaults(self, defaults: Mapping[str, str | None]) -> None:
        """Set the configs that topics have that do not set them, instead of the settings."""
        before, self._defaults = self._defaults, dict(defaults)
        if before.get(MIN_ISR) != defaults.get(MIN_ISR):
            self.min_isr_changed()

    def _election(self, topic: RegisteredTopic) -> Election:
        configured = topic.config.overrides.get(UNCLEAN_ELECTION) or self._defaults.get(UNCLEAN_ELECTION)
        allowed = self.settings.unclean_leader_election
        if configured is not None:
            allowed = parse(UNCLEAN_ELECTION, configured)
        return Election.UNCLEAN if allowed else Election.CLEAN

    # Brokers

    def is_active(self, node_id: int) -> bool:
        """True if the broker is neither fenced nor about to end."""
        return self._nodes[node_id].state is BrokerControlState.UNFENCED

    def register_broker(self, node: Node, *, ended_cleanly: bool) -> None:
        """Give a broker that starts its next epoch.

        If it did not end cleanly, it may lack what it had acknowledged, and is no eligible leader any more.
        """
        node.broker_epoch += 1
        if ended_cleanly:
            return
        for partition in self._partitions():
            known = partition.registration
            if not partition.shares_log and node.node_id in (*known.isr, *known.elr):
                self._without(partition, node.node_id, ended_uncleanly=[node.node_id])

    def unfence(self, node: Node) -> None:
        """Let a broker lead again: at once, where there is no leader and it may be one."""
        node.move_to(BrokerControlState.UNFENCED)
        for partition in self._partitions():
            known = partition.registration
            if partition.shares_log and node.node_id in known.replicas:
                self.join_all(partition)
            elif known.leader == NO_LEADER:
                self._change(partition, election=self._election(partition.topic))

    def join_all(self, partition: RegisteredPartition) -> None:
        """Register all active replicas as in sync: they share a log."""
        self._change(partition, isr=[*filter(self.is_active, partition.registration.replicas)])

    def fence(self, node: Node) -> None:
        """Take a broker out of all in-sync replicas; what it led is led by another, if one may."""
        if node.state is not BrokerControlState.FENCED:
            node.move_to(BrokerControlState.FENCED)
            self._remove(node)

    def log_dir_failed(self, node: Node) -> None:
        """Take a broker out of the in-sync replicas of what it has on failed disks (KIP-858)."""
        for partition in self._partitions():
            if not partition.is_online(node.node_id):
                self._take_out(partition, node)

    def forget_replica(self, partition: RegisteredPartition, node_id: int) -> None:
        """Note that a replica has lost its records: it is no eligible leader any more."""
        self._without(partition, node_id, ended_uncleanly=[node_id])

    def shut_down(self, node: Node) -> None:
        """Begin the end of a broker: its partitions are led by others from now on."""
        node.move_to(BrokerControlState.CONTROLLED_SHUTDOWN)
        self._remove(node)

    def _remove(self, node: Node) -> None:
        for partition in self._partitions():
            self._take_out(partition, node)

    def _take_out(self, partition: RegisteredPartition, node: Node) -> None:
        if node.node_id in partition.registration.isr or partition.leader == node.node_id:
            self._without(partition, node.node_id)

    # Partitions

    def alter_partition(self, partition: RegisteredPartition, proposal: Proposal) -> None:
        """Register the in-sync replicas that a leader asks for, or raise BrokerError."""
        self._check_proposal(partition.registration, proposal)
        self._change(partition, isr=proposal.isr)

    def _check_proposal(self, known: Registration, proposal: Proposal) -> None:
        """ReplicationControlManager.validateAlterPartitionData"""
        for code, applies in REFUSALS.items():
            if applies(known, proposal):
                raise BrokerError(code)
        if not all(map(self.is_active, proposal.isr)) or self._has_restarted(proposal):
            raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)

    def _has_restarted(self, proposal: Proposal) -> bool:
        """True if a node has started again since the leader heard of it."""
        return any(self._nodes[each].broker_epoch != epoch for each, epoch in proposal.broker_epochs.items())

    def elect(self, partition: RegisteredPartition, election: Election) -> None:
        """Elect a leader by request: the preferred one, or any replica of a partition without a leader.

        Raises BrokerError ELECTION_NOT_NEEDED, or PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE.
        """
        known = partition.registration
        is_preferred = election is Election.PREFERRED
        if known.leader == known.target[0] if is_preferred else known.leader != NO_LEADER:
            raise BrokerError(
                ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
            )
        self._change(partition, election=election)
        if is_preferred and partition.leader != known.target[0]:
            raise BrokerError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
            )
        if partition.leader == NO_LEADER:
            raise BrokerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)

    def balance_leaders(self) -> None:
        """Have preferred replicas that are in sync lead again, and elect where an election may be unclean.

        Kafka does so every five minutes (leader.imbalance.check.interval.seconds,
        unclean.leader.election.interval.ms), and when another controller becomes active.
        """
        for partition in self._partitions():
            known, preferred = partition.registration, partition.registration.target[0]
            if known.leader == NO_LEADER:
                self._change(partition, election=self._election(partition.topic))
            elif self.settings.leader_rebalance and known.leader != preferred and preferred in known.isr:
                self._change(partition, election=Election.PREFERRED)

    def fail_over(self) -> None:
        """Let another controller be the active one."""
        self.epoch += 1
        self.balance_leaders()

    # Reassignments

    def reassign(self, partition: RegisteredPartition, target: Sequence[int]) -> None:
        """Begin to move a partition to other nodes, or put another target in the place of the present one.

        It ends when all of the target are in sync. Raises BrokerError INVALID_REPLICA_ASSIGNMENT.
        """
        self.check_assignment(target)
        known = partition.registration
        removing = tuple(sorted(set(known.replicas) - set(target)))
        adding = tuple(sorted(set(target) - set(known.replicas)))
        self._change(
            partition,
            replicas=(*target, *removing),
            adding=adding or known.adding,
            removing=removing or known.removing,
        )

    def cancel_reassignment(self, partition: RegisteredPartition) -> None:
        """Go back to the replicas of before; raises BrokerError NO_REASSIGNMENT_IN_PROGRESS without any, and
        INVALID_REPLICA_ASSIGNMENT if none of them is in sync and unclean elections are forbidden.
        """
        known = partition.registration
        if not known.is_reassigned:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = tuple(each for each in known.replicas if each not in known.adding)
        isr = tuple(each for each in known.isr if each in replicas)
        election = self._election(partition.topic)
        if not isr:
            if election is not Election.UNCLEAN:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {partition.topic.name}:{partition.index} "
                    "because it would require an unclean leader election.",
                )
            isr = replicas[:1]
        self._change(partition, replicas=replicas, isr=isr, adding=(), removing=(), election=election)

    def check_assignment(self, replicas: Sequence[int]) -> None:
        """Raise BrokerError unless these are different nodes of the cluster."""
        if not replicas:
            raise _refused_assignment("an empty replica list")
        for node_id in sorted(replicas):
            if not 0 <= node_id < len(self._nodes):
                raise _refused_assignment(f"broker {node_id}, but no such broker is registered")
            if replicas.count(node_id) > 1:
                raise _refused_assignment(f"the broker {node_id} more than once")

    def lead_by(self, partition: RegisteredPartition, node_id: int, *, unclean: bool = False) -> None:
        """Have a certain in-sync replica lead; with `unclean` any active one, which is then alone in sync."""
        known = partition.registration
        isr = (node_id,) if unclean and node_id not in known.isr else None
        rules = Rules(lambda each: each == node_id, self.min_isr(partition.topic), self._has_elr)
        partition.register(changed(known, rules, isr=isr), self._clock())

    def min_isr_changed(self, topic: RegisteredTopic | None = None) -> None:
        """Have the nodes hear of it, for a topic, or for all if the cluster's default changed.

        Eligible leaders are then forgotten (KIP-966).
        """
        self.forget_eligible(topic)
        for partition in self._partitions_of(topic):
            partition.min_isr_changed(self._clock())

    def forget_eligible(self, topic: RegisteredTopic | None = None) -> None:
        """Forget the eligible leaders of a topic, or of all."""
        for partition in self._partitions_of(topic):
            if partition.registration.elr:
                partition.register(without_eligible(partition.registration), self._clock())

    def _partitions_of(self, topic: RegisteredTopic | None) -> Iterable[RegisteredPartition]:
        return (each for each in self._partitions() if topic in (None, each.topic))

    @property
    def _has_elr(self) -> bool:
        return self.settings.eligible_leader_replicas

    def _without(
        self, partition: RegisteredPartition, node_id: int, ended_uncleanly: Collection[int] = ()
    ) -> None:
        isr = [each for each in partition.registration.isr if each != node_id]
        election = self._election(partition.topic)
        self._change(partition, isr=isr, election=election, ended_uncleanly=ended_uncleanly)

    def _change(
        self,
        partition: RegisteredPartition,
        *,
        election: Election = Election.CLEAN,
        **wanted: Any,
    ) -> None:
        """Change the registration by the arguments of `changed`."""

        def may_lead(node_id: int) -> bool:
            return self.is_active(node_id) and partition.is_online(node_id)

        rules = Rules(may_lead, self.min_isr(partition.topic), self._has_elr)
        after = changed(partition.registration, rules, election=election, **wanted)
        partition.register(after, self._clock())


def _refused_assignment(what: str) -> BrokerError:
    text = f"The manual partition assignment includes {what}."
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
