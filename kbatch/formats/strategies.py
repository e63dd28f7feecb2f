"""Under which subject of a registry the schema of a topic's keys or values is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbatch.typed import Part

# Returns the subject for a topic, "key" or "value", and the full name of the schema's record.
Strategy = Callable[[str, Part, str], str]


def topic_name(topic: str, part: Part, record: str) -> str:
    """Return `{topic}-key` or `{topic}-value` (TopicNameStrategy)."""
    return f"{topic}-{part}"


def record_name(topic: str, part: Part, record: str) -> str:
    """Return the record's name (RecordNameStrategy)."""
    return _name(record, "record")


def topic_record_name(topic: str, part: Part, record: str) -> str:
    """Return `{topic}-{record}` (TopicRecordNameStrategy)."""
    return f"{topic}-{_name(record, 'topic_record')}"


def _name(record: str, strategy: str) -> str:
    if not record:
        raise ValueError(f"subject={strategy!r} needs a schema with a name; give schema=, or subject='topic'")
    return record


STRATEGIES: Mapping[str, Strategy] = {
    "topic": topic_name,
    "record": record_name,
    "topic_record": topic_record_name,
}


def strategy_of(given: str | Strategy) -> Strategy:
    """Return the strategy of that name, the function itself, or one that always returns that subject."""
    if callable(given):
        return given
    return STRATEGIES.get(given) or (lambda topic, part, record: given)
