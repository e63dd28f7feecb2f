"""Read Java's .properties files, such as the client.properties of Kafka's tools."""

import os
import re
from collections.abc import Iterator

from kbatch.errors import ConfigError

BLANKS = " \t\f"
COMMENT = "#!"
LINE_END = re.compile(r"\r\n|\r|\n")
# A key ends before the first blank, = or : without a backslash; one = or : may stand among the blanks.
PAIR = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the settings of a .properties file, for a Producer or a ClientConfig.

    The format is that of java.util.Properties.load: `key=value`, `key: value` or `key value`; comments after
    # or !; a backslash at the end of a line continues it; escapes such as \t, \= and \u00e9. A later line
    replaces an earlier one with the same key.

    The file is UTF-8, with or without a byte order mark, or else Latin-1, which Java's tools expect: \u
    escapes mean the same to all of them.

    Parameters
    ----------
    path : str or PathLike
        The file.

    Returns
    -------
    dict of str to str
        Values by key. Whether the keys exist is checked by the configuration they are given to.

    Raises
    ------
    ConfigError
        For a \u without four hexadecimal digits after it. It names the file and the line.
    OSError
        If the file cannot be read.
    """
    from pathlib import Path  # takes memory, and few read files

    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}, {error}") from None


def parse(text: str) -> dict[str, str]:
    """Return the settings of a text. Raise ConfigError, which names the line, for an escape that is none."""
    properties = {}
    for number, line in _logical_lines(text):
        pair = PAIR.fullmatch(line)
        assert pair is not None, "the expression matches any line"
        try:
            key, value = _unescaped(pair["key"]), _unescaped(pair["value"])
        except ValueError:
            raise ConfigError(rf"line {number}: \u must have four hexadecimal digits after it") from None
        properties[key] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with a key, without the blanks before it, and the numbers at which they begin."""
    lines = LINE_END.split(text)
    if not lines[-1]:
        del lines[-1]
    logical, first = "", 0
    for number, line in enumerate(lines, 1):
        natural = line.lstrip(BLANKS)
        if not logical:
            first = number
            if not natural or natural[0] in COMMENT:
                continue
        backslashes = len(natural) - len(natural.rstrip("\\"))
        if backslashes % 2 == 1:
            logical += natural[:-1]
        else:
            yield first, logical + natural
            logical = ""
    if logical:
        yield first, logical


def _unescaped(text: str) -> str:
    r"""Return the text for its escapes. Raise ValueError for a \u that is none."""
    if "\\" not in text:
        return text
    units = ESCAPE.sub(_character, text)
    # \u escapes are UTF-16: two of them may be one character.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] != "u":
        return ESCAPED.get(code, code)
    return chr(int(code[1:], 16))
