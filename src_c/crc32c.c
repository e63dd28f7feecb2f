/* CRC-32C in four implementations, called through one pointer.
 *
 * Arithmetic is that of polynomials over GF(2) modulo P, bit-reflected: the highest bit of a word is x^0.
 * Appending n bytes multiplies a CRC by x^(8n), so CRCs of neighbouring blocks that were computed side by
 * side are joined by one multiplication. The CRC instruction takes three cycles but starts every cycle:
 * three lanes keep it busy.
 *
 * With vectors of 64 bytes, multiplying goes twice as fast: a vector is folded into the one that follows it
 * 256 bytes later, by multiplying it by x^2048 modulo P. That changes the bytes, but not their CRC. Four
 * vectors are under way at a time, and in the end 16 bytes are left for the CRC instruction.
 *
 * Methods: V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction" (Intel,
 * 2011); for folding, V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction" (Intel, 2009); for the table, M. Kounavis and F. Berry, "A Systematic Approach to Building
 * High Performance, Software-based, CRC Generators" (2005). */
#include "crc32c.h"

#include "bytes.h"

#if (defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)))
#define KB_X86 1
#include <cpuid.h>
#include <immintrin.h>
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
/* `crc32` is part of sse4.2, unless the compiler was told not to use it. */
#define KB_TARGET __attribute__((target("sse4.2,crc32,pclmul")))
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
enum {
    LANES = 3,
    LONG_LANE = 8192,
    SHORT_LANE = 512
};

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

#if defined(KB_X86)
#define KB_VECTORS __attribute__((target("avx512f,vpclmulqdq,sse4.2,crc32,pclmul")))

enum {
    VECTOR = 64,
    VECTORS = 4,
    FOLDED = VECTOR * VECTORS
};

/* What multiplies the two words of each 16 bytes to move them on by so many bytes. */
static struct {
    uint64_t folded[2], by_64[2], by_48[2], by_32[2], by_16[2];
} kb_fold;

/* The first word is 64 bits further from the end. The product of two reflected words has one bit less than
 * two words, and so reads as if multiplied by x: the powers are short of it. */
static void fill_fold(uint64_t words[2], uint64_t bytes) {
    words[0] = (uint64_t)power(8 * bytes + 64 - 1, 0) << 32;
    words[1] = (uint64_t)power(8 * bytes - 1, 0) << 32;
}

static void fill_folds(void) {
    fill_fold(kb_fold.folded, FOLDED);
    fill_fold(kb_fold.by_64, 64);
    fill_fold(kb_fold.by_48, 48);
    fill_fold(kb_fold.by_32, 32);
    fill_fold(kb_fold.by_16, 16);
}

KB_VECTORS static inline __m512i fold(__m512i from, const uint64_t words[2], __m512i into) {
    __m512i by = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)words));
    __m512i first = _mm512_clmulepi64_epi128(from, by, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(from, by, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(first, second), into);
}

KB_VECTORS static inline __m128i fold_16(__m128i from, const uint64_t words[2], __m128i into) {
    __m128i by = _mm_loadu_si128((const __m128i *)words);
    __m128i first = _mm_clmulepi64_si128(from, by, 0x00);
    __m128i second = _mm_clmulepi64_si128(from, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), into);
}

KB_VECTORS static uint32_t extend_vectors(uint32_t state, const uint8_t *data, size_t size) {
    if (size < FOLDED)
        return extend_hardware(state, data, size);
    __m512i vectors[VECTORS];
    for (int i = 0; i < VECTORS; i++)
        vectors[i] = _mm512_loadu_si512(data + i * VECTOR);
    __m512i before = _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)state), 0);
    vectors[0] = _mm512_xor_si512(vectors[0], before);
    data += FOLDED, size -= FOLDED;
    for (; size >= FOLDED; data += FOLDED, size -= FOLDED)
        for (int i = 0; i < VECTORS; i++)
            vectors[i] = fold(vectors[i], kb_fold.folded, _mm512_loadu_si512(data + i * VECTOR));
    __m512i last = vectors[0];
    for (int i = 1; i < VECTORS; i++)
        last = fold(last, kb_fold.by_64, vectors[i]);
    for (; size >= VECTOR; data += VECTOR, size -= VECTOR)
        last = fold(last, kb_fold.by_64, _mm512_loadu_si512(data));
    __m128i rest = _mm512_extracti32x4_epi32(last, 3);
    rest = fold_16(_mm512_extracti32x4_epi32(last, 0), kb_fold.by_48, rest);
    rest = fold_16(_mm512_extracti32x4_epi32(last, 1), kb_fold.by_32, rest);
    rest = fold_16(_mm512_extracti32x4_epi32(last, 2), kb_fold.by_16, rest);
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(rest));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(rest, 1));
    return extend_hardware((uint32_t)crc, data, size);
}
#endif

#if defined(KB_X86)
/* The CPU is asked directly: what __builtin_cpu_supports reads is empty under zig's compiler.
 * Bits: Intel's manual, volume 2, CPUID; of XCR0, volume 1, 13.3. */
enum {
    LEAF_1_C_PCLMULQDQ = 1 << 1,
    LEAF_1_C_SSE4_2 = 1 << 20,
    LEAF_1_C_OSXSAVE = 1 << 27,
    LEAF_7_B_AVX512F = 1 << 16,
    LEAF_7_C_VPCLMULQDQ = 1 << 10,
    XCR0_AVX512 = 0xe6 /* SSE, AVX, masks, both halves of the vectors: the kernel keeps them all */
};

static unsigned features_of_leaf_1(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) ? c : 0;
}

static int has_crc_instruction(void) {
    const unsigned needed = LEAF_1_C_SSE4_2 | LEAF_1_C_PCLMULQDQ;
    return (features_of_leaf_1() & needed) == needed;
}

static int has_vectors(void) {
    unsigned a, b, c, d, kept, upper;
    if (!has_crc_instruction() || !(features_of_leaf_1() & LEAF_1_C_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(upper) : "c"(0));
    return (kept & XCR0_AVX512) == XCR0_AVX512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           b & LEAF_7_B_AVX512F && c & LEAF_7_C_VPCLMULQDQ;
}
#elif defined(KB_ARM) && defined(__linux__)
static int has_crc_instruction(void) {
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#elif defined(KB_ARM)
static int has_crc_instruction(void) {
    return 1; /* every Apple CPU of this architecture has it */
}
#endif

static int always(void) {
    return 1;
}

/* The fastest first. */
static const struct {
    const char *name;
    int (*is_supported)(void);
    uint32_t (*extend)(uint32_t state, const uint8_t *data, size_t size);
} IMPLEMENTATIONS[] = {
#if defined(KB_X86)
    {"avx512+vpclmulqdq", has_vectors, extend_vectors},
    {"sse4.2+pclmul", has_crc_instruction, extend_hardware},
#elif defined(KB_ARM)
    {"armv8-crc", has_crc_instruction, extend_hardware},
#endif
    {"table", always, extend_table},
};

/* Return the index of the fastest implementation, or of the wanted one, that the CPU supports. */
static size_t choice_of(const char *wanted) {
    size_t count = sizeof IMPLEMENTATIONS / sizeof *IMPLEMENTATIONS, fastest = count;
    for (size_t i = count; i-- > 0;)
        if (IMPLEMENTATIONS[i].is_supported()) {
            fastest = i;
            if (wanted && strcmp(wanted, IMPLEMENTATIONS[i].name) == 0)
                break;
        }
    return fastest;
}

const char *kb_crc32c_init(const char *wanted) {
    size_t chosen = choice_of(wanted);
    fill_tables();
#if defined(KB_X86) || defined(KB_ARM)
    fill_lane_powers();
#endif
#if defined(KB_X86)
    fill_folds();
#endif
    kb.extend = IMPLEMENTATIONS[chosen].extend;
    return IMPLEMENTATIONS[chosen].name;
}

uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kb.extend(~crc, data, size);
}

uint32_t kb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    return multiply(power(size_b, 3), crc_a) ^ crc_b;
}
