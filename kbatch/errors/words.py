"""What an error may show of a peer's words and of a user's URLs: printable, short, and without secrets."""

# The part of a peer's words that an error shows.
MAX_SHOWN = 500


def shown(words: bytes | str) -> str:
    """Return a peer's words for an error: printable, at most MAX_SHOWN characters."""
    if isinstance(words, bytes):
        words = words[: 4 * MAX_SHOWN].decode(errors="replace")
    text = "".join(letter if letter.isprintable() else " " for letter in words[: MAX_SHOWN + 1])
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def without_login(url: object) -> str:
    """Return a URL's repr without user, password, query and fragment, which may have secrets."""
    from urllib.parse import urlsplit  # takes memory, and few have URLs

    try:
        parts = urlsplit(str(url))
        text = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return f"a value of type {type(url).__name__}"
    return repr(text)
