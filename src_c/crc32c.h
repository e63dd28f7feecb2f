/* CRC-32C (Castagnoli), the checksum of record batches v2. The implementation is chosen once, at run time. */
#ifndef KBATCH_CRC32C_H
#define KBATCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Choose the fastest implementation that the CPU supports, or the one with the name `wanted` (NULL: none is
 * wanted), and fill the tables; call it once, before any other function here and before there is a second
 * thread. Return the name of the implementation. */
const char *kb_crc32c_init(const char *wanted);

/* Return the CRC of the bytes of `crc` followed by `data`; start with 0. */
uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t size);

/* Return the CRC of A followed by B from the CRCs of both and the size of B alone, in O(log size). */
uint32_t kb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

#endif
