"""What `kbatch bench` measures: each group gives the contestants the same job in turns, and makes a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from kbatch.bench.cluster import Cluster
from kbatch.bench.contest import SETTINGS, Answer, Contest, Driver
from kbatch.bench.contestants import CONTESTANTS, why_missing
from kbatch.bench.settings import listed

PARTITIONS = 4
QUICK_SHARE, LEAST_RECORDS = 0.05, 1_000

# A figure of the answers of all rounds.
Figure = Callable[[Sequence[Answer]], float]


@dataclass(frozen=True)
class Group:
    """A job, its size, and what its table shows."""

    title: str
    job: str
    records: int
    rounds: int
    # Columns by heading; the first decides the order, and whether more is better.
    figures: Mapping[str, Figure]
    more_is_better: bool = False
    settings: Mapping[str, object] | None = None
    transactions: int = 1
    interval_ns: int = 0
    needs_transactions: bool = False


def percentile(delays: Sequence[int], percent: int) -> int:
    return sorted(delays)[len(delays) * percent // 100]


def _of_rounds(figure: Callable[[Answer], float]) -> Figure:
    """The median of the rounds."""
    return lambda answers: statistics.median(map(figure, answers))


def _delay_us(percent: int) -> Figure:
    return _of_rounds(lambda answer: percentile(answer["from_sent_ns"], percent) / 1e3)


_CPU_US = _of_rounds(lambda answer: answer["cpu_ns"] / answer["delivered"] / 1e3)
GROUPS: Mapping[str, Group] = {
    "throughput": Group(
        "Records as fast as they go, from the first call to the last acknowledgement",
        "load",
        1_000_000,
        5,
        {
            "records/s": _of_rounds(lambda answer: answer["delivered"] / answer["elapsed_ns"] * 1e9),
            "CPU, us a record": _CPU_US,
        },
        more_is_better=True,
    ),
    "latency": Group(
        "1,000 records a second, from the call to the acknowledgement",
        "pace",
        5_000,
        4,
        {"p50, us": _delay_us(50), "p99, us": _delay_us(99), "CPU, us a record": _CPU_US},
        settings={"linger.ms": 0},
        interval_ns=1_000_000,
    ),
    "transactions": Group(
        "Transactions of 1,000 records, one after the other",
        "transact",
        1_000,
        5,
        {
            "ms a transaction": _of_rounds(lambda answer: answer["elapsed_ns"] / answer["times"] / 1e6),
            "CPU, us a record": _CPU_US,
        },
        transactions=20,
        needs_transactions=True,
    ),
}


def run(
    name: str, cluster: Callable[[], AbstractContextManager[Cluster]], *, is_quick: bool, rounds: int | None
) -> Iterator[str]:
    """Run a group, and yield the lines of its report; those of contestants that cannot run come first."""
    group = GROUPS[name]
    names = []
    for contestant, row in CONTESTANTS.items():
        reason = why_missing(row)
        if reason is not None:
            yield f"{contestant} does not take part: {reason}"
        elif row.transactional or not group.needs_transactions:
            names.append(contestant)
    answers: dict[str, list[Answer]] = {contestant: [] for contestant in names}
    settings = {**SETTINGS, **(group.settings or {})}
    with cluster() as broker, Contest(broker, name, PARTITIONS) as contest, ExitStack() as stack:
        drivers = [stack.enter_context(Driver(contestant)) for contestant in names]
        for number in range(-1, rounds or (2 if is_quick else group.rounds)):  # the first warms up
            for driver in drivers:
                answer = _turn(contest, driver, group, settings, QUICK_SHARE if is_quick else 1.0)
                if number >= 0:
                    answers[driver.name].append(answer)
    yield f"{group.title}; {listed(settings)}."
    yield from _table(group, answers)


def _turn(
    contest: Contest, driver: Driver, group: Group, settings: Mapping[str, object], share: float
) -> Answer:
    rest: dict[str, object] = {}
    records = group.records
    if group.job == "transact":
        rest = {"transactions": max(1, int(group.transactions * share))}
        settings = {**settings, "transactional.id": f"kbatch-bench {driver.name}"}
    else:
        own = CONTESTANTS[driver.name].share if group.job == "load" else 1.0
        records = max(min(LEAST_RECORDS, records), int(records * share * own))
        rest = {"interval_ns": group.interval_ns}
    answer = contest.ask(driver, group.job, records, settings, **rest)
    return answer | {"times": rest.get("transactions", 1)}


def _table(group: Group, answers: Mapping[str, Sequence[Answer]]) -> Iterable[str]:
    """Return lines with each contestant's figures, the best first, and how many times the best's they are."""
    first = next(iter(group.figures.values()))
    order = sorted(answers, key=lambda name: first(answers[name]), reverse=group.more_is_better)
    rows = [["", *group.figures, "x the best"]]
    for name in order:
        figures = [figure(answers[name]) for figure in group.figures.values()]
        times = figures[0] / first(answers[order[0]])
        cells = [f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}" for figure in figures]
        rows.append([name, *cells, f"{times:.2f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        yield "  ".join(cells)
