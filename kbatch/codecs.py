"""The codecs of record batches, a row for each; lists of names, ids and levels come from here.

`src_c/codec_ids.h` has the same ids for C, and a test compares them. What the codecs do is in
`_native/codec/`.
"""

from typing import NamedTuple


class Levels(NamedTuple):
    """A codec's levels, as in Java's CompressionType (KIP-390).

    Attributes
    ----------
    lowest, highest : int
    default : int
        It may lie outside the range, and stands then for a level that the range lacks.
    """

    lowest: int
    highest: int
    default: int

    def has(self, level: int) -> bool:
        """True if the codec takes the level."""
        return self.lowest <= level <= self.highest or level == self.default

    @property
    def outside(self) -> int | None:
        """The default if it lies outside the range, else None."""
        return None if self.lowest <= self.default <= self.highest else self.default


class Codec(NamedTuple):
    """A codec.

    Attributes
    ----------
    name : str
        As in compression.type.
    levels : Levels or None
    package : str or None
        The package on PyPI that brings its C library.
    first_version : int
        The first version of Produce whose batches may have it.
    """

    name: str
    levels: Levels | None = None
    package: str | None = None
    first_version: int = 0


# By id, the low three bits of a batch's attributes.
CODECS = (
    Codec("none"),
    Codec("gzip", Levels(1, 9, default=-1), "isal"),
    Codec("snappy", None, "cramjam"),
    Codec("lz4", Levels(1, 17, default=9), "lz4"),
    Codec("zstd", Levels(-131072, 22, default=3), "zstandard", first_version=7),  # KIP-110
)
CODEC_NAMES = tuple(codec.name for codec in CODECS)
# Of the codecs that have levels, by name.
LEVELS = {codec.name: codec.levels for codec in CODECS if codec.levels is not None}
