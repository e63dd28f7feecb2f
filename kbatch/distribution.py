"""What `pip` calls kbatch, and the other project that has its names.

The distribution is `kbatch-kafka`: `kbatch` on the package index is a project for Kubernetes, with a package
and a command of the same names. An environment can hold one of the two.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

DISTRIBUTION = "kbatch-kafka"
_ENDING = ".dist-info"


def pip_install(*extras: str) -> str:
    """Return the command that installs kbatch with these extras; errors end with it."""
    return f"pip install '{requirement(*extras)}'"


def requirement(*extras: str) -> str:
    """Return kbatch with these extras as pip takes it."""
    return f"{DISTRIBUTION}[{','.join(extras)}]" if extras else DISTRIBUTION


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Raise ImportErrors of the block, which imports what `what` needs, with the remedy: the extra."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what} needs {error.name}; {pip_install(extra)}", name=error.name) from error


def find_foreign(folders: Iterable[str]) -> str | None:
    """Return name and version of another project's kbatch that is installed in one of the folders, or None.

    Reads the folders itself: the import of importlib.metadata takes longer than that of kbatch may.
    """
    for folder in folders:
        try:
            paths = list(Path(folder).glob(f"kbatch-*{_ENDING}"))
        except OSError:
            continue  # a zip file
        for path in paths:
            if _is_foreign(path):
                return path.name.removesuffix(_ENDING).replace("-", " ")
    return None


def _is_foreign(path: Path) -> bool:
    """True if the distribution has a package kbatch that is not this one."""
    try:
        files = (path / "RECORD").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    package = [line for line in files if line.startswith("kbatch/")]
    return bool(package) and not any(line.startswith("kbatch/_native/") for line in package)


def describe_foreign(found: str) -> str:
    """Return what another project's kbatch does to this one, and the remedy."""
    return (
        f"{found} is installed as well: another project, for Kubernetes, whose package and command have the "
        f"names of ours; run `pip uninstall kbatch {DISTRIBUTION}`, then install {DISTRIBUTION} again"
    )


def warn_of_foreign(folder: Path) -> None:
    """Warn if another project's kbatch is installed where this package is, among whose files it lies."""
    if found := find_foreign([str(folder)]):
        warnings.warn(describe_foreign(found), stacklevel=3)
