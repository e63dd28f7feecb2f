"""What an error may show of a peer's words and of a user's URLs: printable, short, and without secrets."""

from collections.abc import Iterable

# The part of a peer's words that an error shows.
MAX_SHOWN = 500
# A part of a secret that is at least this long gives too much of it away.
_TELLING = 12
_LEFT_OUT = "[left out, since it repeats credentials]"


def shown(words: bytes | str | None, most: int = MAX_SHOWN) -> str:
    """Return a peer's words for an error or a log line: printable, so that line ends cannot forge lines, and
    at most `most` characters.
    """
    if not words:
        return ""
    if isinstance(words, bytes):
        words = words[: 4 * most].decode(errors="replace")
    text = "".join(letter if letter.isprintable() else " " for letter in words[: most + 1])
    return text if len(text) <= most else f"{text[:most]}..."


def shown_without(secrets: Iterable[str], words: bytes | str | None) -> str:
    """Return a peer's words as `shown` does, or a note if they repeat a secret, in whole or in part, as it is
    or as in a URL.
    """
    from urllib.parse import quote, quote_plus, unquote_plus  # takes memory, and few have URLs

    if isinstance(words, bytes):
        words = words.decode(errors="replace")
    text = shown(words)
    if not words:
        return text
    said = {words.lower(), unquote_plus(words).lower(), text.lower()}
    for secret in secrets:
        for form in {secret, quote(secret), quote_plus(secret)}:
            if any(_repeats(each, form.lower()) for each in said):
                return _LEFT_OUT
    return text


def _repeats(text: str, secret: str) -> bool:
    if len(secret) <= _TELLING:
        return bool(secret) and secret in text
    parts = (secret[start : start + _TELLING] for start in range(len(secret) - _TELLING + 1))
    return any(part in text for part in parts)


def without_login(url: object) -> str:
    """Return a URL's repr without user, password, query and fragment, which may have secrets."""
    from urllib.parse import urlsplit  # takes memory, and few have URLs

    try:
        parts = urlsplit(str(url))
        text = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return f"a value of type {type(url).__name__}"
    return repr(text)
