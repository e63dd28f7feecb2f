"""Functions that are formats now: `kbatch.formats`, or the names "utf8", "int32" and "int64"."""

from typing import TYPE_CHECKING

from kbatch.renamed import renamed

if TYPE_CHECKING:
    from kbatch.formats.plain import int32, int64, utf8

__all__ = ["int32", "int64", "utf8"]

__getattr__ = renamed(
    __name__,
    {
        name: (f"kbatch.formats.plain:{name}", f'kbatch.formats.{name.capitalize()}(), or "{name}"')
        for name in __all__
    },
)
