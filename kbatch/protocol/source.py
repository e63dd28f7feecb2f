"""Generated Python source, with the names it uses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class GeneratedFunction:
    """A function under construction.

    Attributes
    ----------
    names : dict
        The function's globals.
    """

    def __init__(self, head: str, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self._lines = [head]
        self._depth = 1

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent lines below `head`, which ends with a colon."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, hint: str, value: object) -> str:
        """Return a name for `value`: the same one for the same hint."""
        self.names[hint] = value
        return hint

    def function(self, file_name: str) -> Callable[..., Any]:
        text = "\n".join(self._lines)
        exec(compile(text, file_name, "exec"), self.names)
        function: Callable[..., Any] = self.names[self._lines[0].partition("(")[0].removeprefix("def ")]
        return function
