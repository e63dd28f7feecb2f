"""The C libraries in the codecs' packages, loaded at a codec's first use.

Theory of operation. The extension modules of lz4, zstandard and isal, and Python's zlib, contain or load the
C libraries of their codecs. The header src_c/codec_libraries.h opens the same files, which are loaded once in
a process, and calls those libraries without the GIL. Where it finds no library that it knows, the packages'
functions do the work (packages.pyx); Windows is one such place. snappy is read by src_c/snappy.h, and written
by its package.

Idle contexts are shared by all threads, under a lock of the process, which fork() takes before it copies the
process. So a child never waits for a thread that it does not have.
"""

from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport kb_codec_fault, kb_codec_sink, kb_codec_status, kb_memory
from kbatch._native.codec.codecs cimport KB_CODEC_GZIP, KB_CODEC_LZ4, KB_CODEC_ZSTD
from kbatch._native.codec.memory cimport extend
from kbatch._native.lock cimport begin_process_lock, kb_lock

import importlib.util
import os
from importlib.machinery import PathFinder

from kbatch._native.codec.packages import importing, optional_package

cdef extern from "codec_libraries.h" nogil:
    ctypedef struct kb_codec_contexts:
        kb_lock lock

    kb_codec_contexts kb_contexts

    bint kb_codec_is_loaded(int codec) noexcept
    bint kb_codec_is_native(int codec) noexcept
    void kb_codec_leave(int codec) noexcept
    kb_codec_status kb_codec_decode(int codec, const uint8_t *data, size_t size,
                                    const kb_codec_sink *sink) noexcept
    kb_codec_status kb_codec_encode(int codec, const uint8_t *data, size_t size, int level,
                                    const kb_codec_sink *sink) noexcept
    bint kb_lz4_load(const char *path) noexcept
    bint kb_zstd_load(const char *path) noexcept
    void kb_gzip_load(const char *isal_path, bint isal_is_installed, const char *zlib_path) noexcept


cdef size_t NO_LIMIT = <size_t>-1
# The releases of ISA-L whose structs codec_libraries.h declares: from the first, up to before the second.
ISAL_VERSIONS = ((2, 30), (3, 0))

begin_process_lock(&kb_contexts.lock)


def _path_of(str name):
    """Return the file of an extension module, b"" if it is part of the program, None if it is not there."""
    parent = name.rpartition(".")[0]
    try:
        if parent:  # which need not be imported
            spec = importlib.util.find_spec(parent)
            spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations)
        else:
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # not installed, or something else in its place
        return None
    if spec is None or spec.origin is None:
        return None
    return b"" if spec.origin == "built-in" else os.fsencode(spec.origin)


def _load_gzip():
    cdef bytes isal_path = None, zlib_path = _path_of("zlib")
    cdef const char *isal_or_null = NULL
    cdef const char *zlib_or_null = NULL
    isal = optional_package("isal")
    if isal is not None:
        version = (getattr(isal, "ISAL_MAJOR_VERSION", 0), getattr(isal, "ISAL_MINOR_VERSION", 0))
        if ISAL_VERSIONS[0] <= version < ISAL_VERSIONS[1]:
            isal_path = _path_of("isal.igzip_lib")
    if isal_path is not None:
        isal_or_null = isal_path
    if zlib_path is not None:
        zlib_or_null = zlib_path
    kb_gzip_load(isal_or_null, isal is not None, zlib_or_null)


def _load_lz4():
    cdef bytes path = _path_of("lz4.frame._frame")
    if path is None or not kb_lz4_load(path):
        leave_to_package(KB_CODEC_LZ4)


def _load_zstd():
    # the C backend hides its symbols in wheels; where it loads the system's library, they are found by it
    cdef bytes path
    for name in ("zstandard._cffi", "zstandard.backend_c"):
        path = _path_of(name)
        if path is not None and kb_zstd_load(path):
            return
    leave_to_package(KB_CODEC_ZSTD)


# The other codecs are their packages' (but src_c/snappy.h reads snappy).
_LOADERS = {KB_CODEC_GZIP: _load_gzip, KB_CODEC_LZ4: _load_lz4, KB_CODEC_ZSTD: _load_zstd}


def _load(int codec):
    loader = _LOADERS.get(codec)
    if loader is None:
        leave_to_package(codec)
    else:
        loader()


cdef int load_library(int codec) except -1:
    """Load the library of a codec at its first use."""
    if not kb_codec_is_loaded(codec):
        with importing:
            if not kb_codec_is_loaded(codec):
                _load(codec)
    return 0


cdef void _load_without_errors(int codec) noexcept with gil:
    """Do load_library; the package, which the caller then uses, reports what is wrong."""
    try:
        load_library(codec)
    except Exception:
        leave_to_package(codec)


def is_native(int codec):
    """True if the codec is read without its package."""
    load_library(codec)
    return kb_codec_is_native(codec)


def leave_to_package(int codec):
    """Have the codec's package do all, until `reload_library`."""
    kb_codec_leave(codec)


def reload_library(int codec):
    """Look for the codec's library again."""
    with importing:
        _load(codec)


cdef kb_codec_sink _sink(kb_memory *out, size_t limit, kb_codec_fault *fault) noexcept nogil:
    cdef kb_codec_sink sink
    sink.memory = out
    sink.extend = extend
    sink.start = out.used
    sink.limit = limit
    sink.fault = fault
    return sink


cdef kb_codec_status decompress_into(int codec, const uint8_t *data, size_t size, kb_memory *out,
                                     size_t limit, kb_codec_fault *fault) noexcept nogil:
    cdef kb_codec_sink sink = _sink(out, limit, fault)
    if not kb_codec_is_loaded(codec):
        _load_without_errors(codec)
    return kb_codec_decode(codec, data, size, &sink)


cdef kb_codec_status compress_into(int codec, const uint8_t *data, size_t size, int level, kb_memory *out,
                                   kb_codec_fault *fault) noexcept nogil:
    cdef kb_codec_sink sink = _sink(out, NO_LIMIT, fault)
    if not kb_codec_is_loaded(codec):
        _load_without_errors(codec)
    return kb_codec_encode(codec, data, size, level, &sink)
