"""Patterns of topic names in RE2's syntax, by Python's `re` (KIP-848).

A group's coordinator matches them, so all clients write RE2. Python's syntax is nearly a superset. What RE2
does not have (references to groups, assertions about what follows, possessive quantifiers) is refused, and
what Python writes otherwise is translated. Topic names are ASCII, so classes of Unicode become their ASCII
part. Flags such as (?i) must come first, or in a group of their own, as in (?i:a).
"""

from __future__ import annotations

import re
from functools import lru_cache

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError

MAX_REPEATS = 1_000

_ESCAPED = r"""
    (?P<quote> \\Q (?P<quoted> .*? ) (?: \\E | \Z ) )
    | (?P<property> \\ (?P<sign> [pP] ) (?: \{ (?P<long> \^? \w+ ) \} | (?P<short> \w ) ) )
    | (?P<escape> \\ .? )
"""
_OUTSIDE = re.compile(
    rf"""
    {_ESCAPED}
    | (?P<open> \[ \^? \]? )
    | (?P<name> \( \? P? < (?P<label> \w+ ) > )
    | (?P<flags> \( \? (?P<letters> [imsU]* (?: - [imsU]+ )? ) (?P<end> [:)] ) )
    | (?P<refused> \( [?*] | (?: [*+?] | \{{ \d+ (?: , \d* )? \}} ) \+ )
    | (?P<repeat> \{{ (?P<least> \d+ ) (?: , (?P<most> \d* ) )? \}} )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_INSIDE = re.compile(
    rf"""
    {_ESCAPED}
    | (?P<posix> \[ : (?P<not> \^? ) (?P<members> \w+ ) : \] )
    | (?P<close> \] )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
# Escapes that Python writes otherwise, and those that mean something else there
_ESCAPES = {r"\z": r"\Z", r"\C": "(?s:.)"}
_REFUSED_ESCAPES = re.compile(r"\\(?:[1-9gGhHkKNRuUXyYZ]|\Z)")
# Characters that Python may come to read as operators on classes
_ESCAPED_INSIDE = frozenset("[&~|")

_LETTERS, _DIGITS = "A-Za-z", "0-9"
# Classes of characters, by the names of POSIX and the categories and scripts of Unicode, in ASCII
_POSIX = {
    "alnum": _LETTERS + _DIGITS,
    "alpha": _LETTERS,
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": _DIGITS,
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}
_PROPERTIES = {
    "L": _LETTERS,
    "Lu": "A-Z",
    "Ll": "a-z",
    "Latin": _LETTERS,
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": r"!-#%-*,-/:;?@\[-\]_{}",
    "Pc": "_",
    "Pd": r"\-",
    "S": "$+<=>^`|~",
    "Z": " ",
    "Zs": " ",
}


@lru_cache(maxsize=256)
def compiled(regex: str) -> re.Pattern[str]:
    """Return the pattern, to be used with `fullmatch`; raise BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        return re.compile(_translated(regex), re.ASCII)
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


def _translated(regex: str) -> str:
    parts: list[str] = []
    position, in_class = 0, False
    while position < len(regex):
        token = (_INSIDE if in_class else _OUTSIDE).match(regex, position)
        assert token is not None  # each ends with any character
        position = token.end()
        parts.append(_inside(token) if in_class else _outside(token))
        in_class = token.lastgroup != "close" if in_class else token.lastgroup == "open"
    return "".join(parts)


def _outside(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token.group()
    if kind == "name":
        return f"(?P<{token['label']}>"
    if kind == "flags":
        return _flags(token)
    if kind == "refused" or (kind == "repeat" and _repeats(token) > MAX_REPEATS):
        raise ValueError(f"invalid or unsupported syntax `{text}`")
    if kind in ("quote", "property", "escape"):
        return _escaped(token, in_class=False)
    return text


def _inside(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token.group()
    if kind == "posix":
        return _members(_POSIX, token["members"], bool(token["not"]), in_class=True)
    if kind in ("quote", "property", "escape"):
        return _escaped(token, in_class=True)
    return f"\\{text}" if text in _ESCAPED_INSIDE else text


def _escaped(token: re.Match[str], *, in_class: bool) -> str:
    if token["quote"] is not None:
        return re.escape(token["quoted"])
    if token["property"] is not None:
        name = token["long"] or token["short"]
        is_negated = (token["sign"] == "P") != name.startswith("^")
        return _members(_PROPERTIES, name.removeprefix("^"), is_negated, in_class=in_class)
    text = token.group()
    if _REFUSED_ESCAPES.fullmatch(text):
        raise ValueError(f"invalid escape sequence `{text}`")
    return _ESCAPES.get(text, text)


def _members(classes: dict[str, str], name: str, is_negated: bool, *, in_class: bool) -> str:
    if name not in classes:
        raise ValueError(f"invalid character class `{name}`")
    members = classes[name]
    if is_negated:
        pattern = re.compile(f"[{members}]", re.ASCII)
        members = "".join(re.escape(chr(code)) for code in range(128) if not pattern.match(chr(code)))
    return members if in_class else f"[{members}]"


def _flags(token: re.Match[str]) -> str:
    # Greediness changes what a match captures, not whether there is one.
    letters = token["letters"].replace("U", "").removesuffix("-")
    if token["end"] == ":":
        return f"(?{letters}:"
    if letters and token.start():
        raise ValueError(f"flags `{token.group()}` must come first")
    return f"(?{letters})" if letters else ""


def _repeats(token: re.Match[str]) -> int:
    return max(int(token["least"]), int(token["most"] or 0))
