"""The options kafka.* of a read or a write: settings of the client."""

from collections.abc import Mapping

KAFKA_PREFIX = "kafka."


def kafka_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the prefix, without it."""
    return {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in given.items()
        if name.startswith(KAFKA_PREFIX)
    }


def key_table(refused: Mapping[str, str], ignored: Mapping[str, str]) -> str:
    """Return the table of docs/spark.md about keys of Kafka's client that have no effect: a row for each that
    is refused, and for each reason to ignore some.
    """
    rows = [(f"`{KAFKA_PREFIX}{name}`", f"refused: it {why}") for name, why in refused.items()]
    for reason in dict.fromkeys(ignored.values()):
        names = sorted(name for name in ignored if ignored[name] == reason)
        rows.append((", ".join(f"`{KAFKA_PREFIX}{name}`" for name in names), f"without an effect: {reason}"))
    return "\n".join(["| key | |", "|---|---|", *(f"| {names} | {text} |" for names, text in rows)])
