/* CRC-32C in three implementations, called through one pointer.
 *
 * Arithmetic is that of polynomials over GF(2) modulo P, bit-reflected: the highest bit of a word is x^0.
 * Appending n bytes multiplies a CRC by x^(8n), so CRCs of neighbouring blocks that were computed side by
 * side are joined by one multiplication. The CRC instruction takes three cycles but starts every cycle:
 * three lanes keep it busy.
 *
 * Method: V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction" (Intel, 2011);
 * the table: M. Kounavis and F. Berry, "A Systematic Approach to Building High Performance,
 * Software-based, CRC Generators" (2005). */
#include "crc32c.h"

#include "bytes.h"

#if (defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)))
#define KB_X86 1
#include <nmmintrin.h>
#include <wmmintrin.h>
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#define KB_ARM 1
#include <arm_acle.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

#define POLYNOMIAL 0x82f63b78u
#define ONE 0x80000000u

static struct {
    uint32_t (*extend)(uint32_t state, const uint8_t *data, size_t size);
    uint32_t powers[31]; /* x^(2^k); x^(2^31) is x again, for P is (x + 1) times a primitive of degree 31 */
    uint32_t table[8][256]; /* of one byte, followed by 0 to 7 zero bytes */
} kb;

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0u - (a >> 31));
        b = b >> 1 ^ (POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

/* x^(n 2^k) mod P: with k = 3, n counts bytes. */
static uint32_t power(uint64_t n, int k) {
    uint32_t result = ONE;
    for (; n; k++, n >>= 1)
        if (n & 1)
            result = multiply(kb.powers[k % 31], result);
    return result;
}

static void fill_tables(void) {
    kb.powers[0] = ONE >> 1;
    for (int k = 1; k < 31; k++)
        kb.powers[k] = multiply(kb.powers[k - 1], kb.powers[k - 1]);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & (0u - (crc & 1)));
        kb.table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int zeros = 1; zeros < 8; zeros++) {
            uint32_t crc = kb.table[zeros - 1][byte];
            kb.table[zeros][byte] = crc >> 8 ^ kb.table[0][crc & 0xff];
        }
}

static uint32_t extend_table(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = kb_bswap64(kb_load_be64(data)) ^ state;
        state = 0;
        for (int i = 0; i < 8; i++)
            state ^= kb.table[7 - i][word >> (8 * i) & 0xff];
    }
    for (; size; size--)
        state = state >> 8 ^ kb.table[0][(state ^ *data++) & 0xff];
    return state;
}

#if defined(KB_X86) || defined(KB_ARM)

#if defined(KB_X86)
#define KB_TARGET __attribute__((target("sse4.2,pclmul")))
#define STEP8(state, at) ((state) = _mm_crc32_u64((state), load64(at)))
#define STEP1(state, at) ((state) = _mm_crc32_u8((uint32_t)(state), *(at)))
#else
#define KB_TARGET __attribute__((target("+crc")))
#define STEP8(state, at) ((state) = __crc32cd((uint32_t)(state), load64(at)))
#define STEP1(state, at) ((state) = __crc32cb((uint32_t)(state), *(at)))
#endif

static inline uint64_t load64(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* Lane lengths, longest first: a join costs two multiplications, so short lanes only process the rest of long
 * ones. */
enum { LANES = 3, LONG_LANE = 8192, SHORT_LANE = 512 };

static uint32_t kb_lane_powers[2][2]; /* of [long, short]: what shifts a state over [one, two] lanes */

/* state x shift, where the x86 form has `shift` short of x^33: the product's top bit is x^1, and the CRC
 * instruction multiplies by x^32 as it reduces. */
KB_TARGET static inline uint32_t shifted(uint64_t state, uint32_t shift) {
#if defined(KB_X86)
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)state), _mm_cvtsi32_si128((int)shift), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
#else
    return multiply((uint32_t)state, shift);
#endif
}

KB_TARGET static inline uint32_t extend_lanes(uint32_t state, const uint8_t *data, size_t lane,
                                              const uint32_t powers[2]) {
    uint64_t a = state, b = 0, c = 0;
    for (const uint8_t *end = data + lane; data < end; data += 8) {
        STEP8(a, data);
        STEP8(b, data + lane);
        STEP8(c, data + 2 * lane);
    }
    return shifted(a, powers[1]) ^ shifted(b, powers[0]) ^ (uint32_t)c;
}

KB_TARGET static uint32_t extend_hardware(uint32_t state, const uint8_t *data, size_t size) {
    static const size_t lanes[2] = {LONG_LANE, SHORT_LANE};
    for (int i = 0; i < 2; i++)
        for (; size >= LANES * lanes[i]; data += LANES * lanes[i], size -= LANES * lanes[i])
            state = extend_lanes(state, data, lanes[i], kb_lane_powers[i]);
    uint64_t wide = state;
    for (; size >= 8; data += 8, size -= 8)
        STEP8(wide, data);
    for (; size; data++, size--)
        STEP1(wide, data);
    return (uint32_t)wide;
}

static void fill_lane_powers(void) {
    static const uint64_t lanes[2] = {LONG_LANE, SHORT_LANE};
#if defined(KB_X86)
    const uint64_t already = 33;
#else
    const uint64_t already = 0;
#endif
    for (int i = 0; i < 2; i++) {
        kb_lane_powers[i][0] = power(8 * lanes[i] - already, 0);
        kb_lane_powers[i][1] = power(16 * lanes[i] - already, 0);
    }
}

#endif

/* Return the name of the hardware implementation if this CPU has one, else NULL. */
static const char *hardware_name(void) {
#if defined(KB_X86)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? "sse4.2+pclmul" : NULL;
#elif defined(KB_ARM) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? "armv8-crc" : NULL;
#elif defined(KB_ARM)
    return "armv8-crc"; /* every Apple CPU of this architecture has it */
#else
    return NULL;
#endif
}

const char *kb_crc32c_init(int allow_hardware) {
    const char *name = allow_hardware ? hardware_name() : NULL;
    fill_tables();
    kb.extend = extend_table;
#if defined(KB_X86) || defined(KB_ARM)
    if (name) {
        fill_lane_powers();
        kb.extend = extend_hardware;
    }
#endif
    return name ? name : "table";
}

uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kb.extend(~crc, data, size);
}

uint32_t kb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    return multiply(power(size_b, 3), crc_a) ^ crc_b;
}
