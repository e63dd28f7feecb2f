"""Regular expressions as Java reads them, for subscribePattern, by Python's re.

Both read most patterns alike. What only Java has is written in Python's way if there is one: \\Q...\\E, \\z,
(?<name>...). What Python would read as something else, or not at all, is refused: a pattern must not choose
other topics here than in Spark's own source.

After java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import warnings

_TOKEN = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.|\(\?<(?=[A-Za-z])|\(\?[A-Za-z]+|\[\^?|&&|.", re.DOTALL)
# What Java has, and Python has not or reads otherwise, with the remedy.
_CLASSES = "write the characters, as in [a-z]"
_OTHERWISE = {
    r"\p": _CLASSES,
    r"\P": _CLASSES,
    r"\h": _CLASSES,
    r"\H": _CLASSES,
    r"\v": _CLASSES,
    r"\V": _CLASSES,
    r"\R": _CLASSES,
    r"\X": _CLASSES,
    r"\N": _CLASSES,
    r"\0": r"write the character, or \x and two digits",
    r"\c": r"write the character, or \x and two digits",
    r"\e": r"write \x1b",
    r"\G": "omit it: a name is searched once",
    r"\k": r"refer to the group by its number, as in \1",
}


def java_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that matches the topics that it would match in Java.

    Raises
    ------
    ValueError
        It is no regular expression, or Python would read it otherwise.
    """
    written: list[str] = []
    class_from = -1  # where a class in brackets begins
    for token in _TOKEN.finditer(text):
        found, where = token[0], token.start()
        if token[1] is not None:
            written.append(re.escape(token[1]))
        elif found.startswith("\\"):
            if found in _OTHERWISE:
                raise _refused(text, found, where, _OTHERWISE[found])
            written.append(r"\Z" if found == r"\z" else found)
        elif class_from >= 0:
            written.append(_in_class(text, found, where))
            if found == "]" and where > class_from:
                class_from = -1
        elif found in ("[", "[^"):
            class_from = token.end()
            written.append(found)
        elif found == "(?<":
            written.append("(?P<")
        elif found.startswith("(?") and "x" in found:
            raise _refused(text, "the flag x", where, "omit white space and comments")
        else:
            written.append(found)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of sets, which are refused where they differ
            return re.compile("".join(written))
    except (re.error, OverflowError) as error:
        raise ValueError(f"got {text!r}: {error}") from error


def _in_class(text: str, found: str, where: int) -> str:
    """Return what is written for a token within brackets."""
    if found.startswith("["):
        raise _refused(text, "a class in a class", where, "write one class, as in [a-z0-9]")
    if found == "&&":
        raise _refused(text, "an intersection of classes (&&)", where, "write one class, as in [a-wyz]")
    return found


def _refused(text: str, what: str, where: int, remedy: str) -> ValueError:
    return ValueError(f"got {text!r}: {what} at position {where} is not supported as Java reads it; {remedy}")
