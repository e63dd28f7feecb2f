"""Build the native extensions: every `kbatch/_native/*.pyx` is one module.

`KBATCH_SANITIZE=1` builds them with AddressSanitizer and UndefinedBehaviorSanitizer (see `make sanitize`).
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

NATIVE = Path("kbatch/_native")
# The C sources that a module links; all others need only the headers of src_c.
LINKED = {"hashes": ["src_c/crc32c.c"]}
HEADERS = [str(path) for path in sorted(Path("src_c").glob("*.h"))]
# Spark finds a data source by itself when it is DefaultSource in a top-level package named pyspark_*.
SPARK_SOURCES = {
    name: f"kbatch/spark/{name}" for name in ("pyspark_kbatch", "pyspark_kbatch_segments")
}

if sys.platform == "win32":
    compile_args, link_args = ["/O2"], []
else:
    compile_args, link_args = ["-O3", "-g1", "-fvisibility=hidden", "-Wall", "-Wno-unused-function"], []
if os.environ.get("KBATCH_SANITIZE"):
    # CPython compiles extensions with -fwrapv, which hides signed overflow from UBSan: the last flag wins.
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    compile_args = ["-O1", "-g", "-fno-omit-frame-pointer", *sanitizers, "-fno-wrapv"]
    link_args = sanitizers

extensions = [
    Extension(
        f"kbatch._native.{path.stem}",
        [str(path), *LINKED.get(path.stem, [])],
        include_dirs=["src_c"],
        depends=HEADERS,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for path in sorted(NATIVE.glob("*.pyx"))
]

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    packages=[
        *find_packages(include=["kbatch", "kbatch.*"], exclude=["kbatch.spark.pyspark_*"]),
        *SPARK_SOURCES,
    ],
    package_dir=SPARK_SOURCES,
    ext_modules=cythonize(
        extensions,
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "embedsignature": True,
            "initializedcheck": False,
        },
    ),
)
