"""CRC-32C and murmur2: the only module that links crc32c.c, and chooses its implementation at import."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from kbatch._native.codec.c cimport (
    KB_MAX_PARTITIONS,
    kb_crc32c_combine,
    kb_crc32c_extend,
    kb_crc32c_init,
    kb_murmur2,
    kb_partition_for_key,
)

import os

MAX_PARTITIONS = KB_MAX_PARTITIONS

# KBATCH_CRC32C names the implementation, to test each of them or to rule the hardware out ("table").
crc32c_implementation = kb_crc32c_init(
    os.environ.get("KBATCH_CRC32C", "").encode("ascii", "replace")).decode()

# From this many bytes on the GIL is released, which costs about 40 ns, like 1 KiB.
cdef size_t NOGIL_BYTES = 16384


cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t size) noexcept nogil:
    return kb_crc32c_extend(crc, data, size)


cdef uint32_t crc32c_combined(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) noexcept nogil:
    return kb_crc32c_combine(crc_a, crc_b, size_b)


def crc32c(data, value=0):
    """Return the CRC-32C (Castagnoli) of `data`.

    Parameters
    ----------
    data : bytes-like, C-contiguous
    value : int
        The CRC of the bytes before `data`, an unsigned 32-bit integer; 0 at the start.

    Returns
    -------
    int
        Unsigned 32 bit. `crc32c(b"123456789") == 0xE3069283`.

    Raises
    ------
    TypeError
        `data` is not bytes-like.
    OverflowError
        `value` does not fit 32 bits.
    """
    cdef Py_buffer view
    cdef uint32_t crc = value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if <size_t>view.len < NOGIL_BYTES:
            crc = kb_crc32c_extend(crc, <const uint8_t *>view.buf, view.len)
        else:
            with nogil:
                crc = kb_crc32c_extend(crc, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b):
    """Return the CRC-32C of A followed by B, from the CRCs of A and of B and the size of B in bytes; O(log
    size_b).
    """
    return kb_crc32c_combine(crc_a, crc_b, size_b)


def murmur2(key):
    """Return Java's murmur2 of `key` (org.apache.kafka.common.utils.Utils.murmur2), a signed 32-bit integer.

    Raises
    ------
    TypeError
        `key` is not bytes-like.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return <int32_t>kb_murmur2(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partition_for_key(key, int32_t partitions):
    """Return the partition that Java's producer chooses for `key` (BuiltInPartitioner.partitionForKey): 0 to
    partitions - 1.

    An empty key is hashed like any other; a record without a key has no determined partition.

    Raises
    ------
    TypeError
        `key` is not bytes-like.
    ValueError
        `partitions` is not positive.
    """
    cdef Py_buffer view
    if partitions <= 0:
        raise ValueError(f"partitions must be 1 or more, the topic's number of partitions, got "
                         f"{partitions}")
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return kb_partition_for_key(<const uint8_t *>view.buf, view.len, partitions)
    finally:
        PyBuffer_Release(&view)
