/* CRC-32 as zlib has it, several times as fast: weights are checked whenever a model is loaded.
 *
 * x86: 64 bytes at a time are moved 64 bytes on, by a product with x^n modulo the CRC's polynomial, and added to what
 * stands there (bits in reversed order). What is left in the end is 16 bytes with the same remainder. ARM has an
 * instruction.
 */
#include "products.h"

#if defined(__PCLMUL__)
#define AT_ONCE 64 /* bytes */

static __m128i moved(__m128i from, __m128i by, __m128i to) {
    __m128i low = _mm_clmulepi64_si128(from, by, 0x00), high = _mm_clmulepi64_si128(from, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), to);
}

/* At least 64 bytes, a multiple of 16. */
static uint32_t sum_blocks(const uint8_t *data, int64_t size, uint32_t crc) {
    const __m128i far = _mm_set_epi64x(0x1c6e41596, 0x154442bd4); /* x^(512 - 32), x^(512 + 32) */
    const __m128i near = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0); /* x^(128 - 32), x^(128 + 32) */
    __m128i part[4], rest;
    for (int k = 0; k < 4; k++) part[k] = _mm_loadu_si128((const void *)(data + 16 * k));
    part[0] = _mm_xor_si128(part[0], _mm_cvtsi32_si128((int32_t)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int k = 0; k < 4; k++) part[k] = moved(part[k], far, _mm_loadu_si128((const void *)(data + 16 * k)));
    rest = moved(moved(moved(part[0], near, part[1]), near, part[2]), near, part[3]);
    for (; size; data += 16, size -= 16) rest = moved(rest, near, _mm_loadu_si128((const void *)data));
    uint8_t bytes[16];
    _mm_storeu_si128((void *)bytes, rest);
    crc = 0;
    for (int k = 0; k < 16; k++) {
        crc ^= bytes[k];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return crc;
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define AT_ONCE 8

static uint32_t sum_blocks(const uint8_t *data, int64_t size, uint32_t crc) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t eight;
        memcpy(&eight, data, 8);
        crc = __crc32d(crc, eight);
    }
    return crc;
}
#else
#define AT_ONCE 0
static uint32_t sum_blocks(const uint8_t *data, int64_t size, uint32_t crc) { return (void)data, (void)size, crc; }
#endif

/* Adds the first `size` bytes to a CRC-32. Returns how many were added; the caller adds the rest, less than 64. */
int32_t OWN(crc32)(const uint8_t *data, int64_t size, uint32_t *crc) {
    size -= size % 16;
    if (!AT_ONCE || size < AT_ONCE) return 0;
    *crc = ~sum_blocks(data, size, ~*crc);
    return (int32_t)size;
}
