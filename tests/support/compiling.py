"""C programs and libraries of the tests, compiled with the compiler that Python was built with."""

import shlex
import subprocess
import sysconfig
from pathlib import Path

from tests import ROOT

OPTIONS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")


def compile_c(made: Path, *arguments: Path | str) -> None:
    """Compile sources, which find the headers of src_c.

    Raises
    ------
    subprocess.CalledProcessError
        `stderr` says what the compiler said.
    """
    compiler = shlex.split(sysconfig.get_config_var("CC"))
    command = [*compiler, *OPTIONS, f"-I{ROOT / 'src_c'}", "-o", made, *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)
