"""How commands show values in JSON."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID


def plain(value: object) -> object:
    """Return a value as JSON has it, for `json.dumps(default=)`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        digits = "microseconds" if moment.microsecond % 1000 else "milliseconds"
        return moment.isoformat(timespec=digits).replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def raw(value: object) -> bytes:
    """Return the bytes of a value, or its text as UTF-8; nothing for null."""
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=plain, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
