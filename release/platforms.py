"""The platforms that wheels are built for."""

from __future__ import annotations

import platform
from dataclasses import dataclass

# The oldest that pip's tags are still in use for: it is in RHEL 7 and Amazon Linux 2.
GLIBC = "2.17"


@dataclass(frozen=True)
class Platform:
    """Linux with glibc on one processor.

    Attributes
    ----------
    machine : str
        As `platform.machine()` has it.
    debian : str
        The name of the processor in Debian's packages.
    """

    machine: str
    debian: str

    @property
    def tag(self) -> str:
        """The tag of wheels (PEP 600)."""
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.machine}"

    @property
    def compiler_target(self) -> str:
        """What zig's `-target` calls it."""
        return f"{self.machine}-linux-gnu.{GLIBC}"

    @property
    def python_platform(self) -> str:
        """What `sysconfig.get_platform()` returns there."""
        return f"linux-{self.machine}"

    @property
    def is_native(self) -> bool:
        """True if this machine runs its programs."""
        return self.machine == platform.machine()

    def module_suffix(self, version: str) -> str:
        """Return how the file names of extension modules of a CPython end (PEP 3149)."""
        return f".cpython-{version.replace('.', '')}-{self.machine}-linux-gnu.so"


PLATFORMS = {name: Platform(name, debian) for name, debian in (("x86_64", "amd64"), ("aarch64", "arm64"))}
