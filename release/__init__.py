"""Make what is published: a source distribution and wheels for every CPython and platform, each tried out.

Theory of operation. The native modules are translated to C once. The compiler of the package ziglang then
compiles them for each target: it has the headers of every glibc, so one machine builds for all. Each
wheel is built by an interpreter of its version, which may be of another processor: environment variables of
setuptools and sysconfig name the target. Wheels are tried by interpreters of their own processor, under
qemu-user if it is not this machine's. Interpreters that are not installed come from Debian's packages, which
are unpacked, not installed.

Builds are reproducible: file times are those of the commit, and no path or host enters a file.

`python -m release` is `make wheels`.
"""

import functools
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Zip files know no earlier time.
FIRST_TIME = 315_619_200


@functools.cache  # a commit that is made meanwhile is not what is released
def time_of_source() -> int:
    """Return the time that all files of a release have: SOURCE_DATE_EPOCH, or the commit's."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    asked = ("git", "log", "-1", "--format=%ct")
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else FIRST_TIME


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found
