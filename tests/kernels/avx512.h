/* The AVX-512 instructions that products.h uses, each by two of AVX2, so that its wide code runs, slowly, without them.
 * With VNNI defined, its sums of four and of two as well. Put before a source by `cc -include`. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef union {
    __m512i whole;
    __m512 floats;
    __m512d doubles;
    __m256i half[2];
    __m256 float_half[2];
    __m256d double_half[2];
    int32_t number[16];
    uint8_t byte[64];
    int8_t signed_byte[64];
} Wide;

static inline __m512i wide_load(const void *p) {
    Wide w;
    memcpy(&w, p, 64);
    return w.whole;
}
static inline __m512 wide_floats(const void *p) { return ((Wide){.whole = wide_load(p)}).floats; }
static inline void wide_store(void *p, __m512i x) { memcpy(p, &x, 64); }
static inline void wide_store_floats(void *p, __m512 x) { memcpy(p, &x, 64); }

static inline __m512i wide_int32(int32_t x) {
    Wide w;
    w.half[0] = w.half[1] = _mm256_set1_epi32(x);
    return w.whole;
}
static inline __m512i wide_int16(int16_t x) {
    Wide w;
    w.half[0] = w.half[1] = _mm256_set1_epi16(x);
    return w.whole;
}
static inline __m512 wide_float(float x) {
    Wide w;
    w.float_half[0] = w.float_half[1] = _mm256_set1_ps(x);
    return w.floats;
}

#define BY_HALVES(name, type, part, halves, instruction) \
    static inline type name(type a, type b) { \
        Wide x = {.part = a}, y = {.part = b}; \
        for (int k = 0; k < 2; k++) x.halves[k] = instruction(x.halves[k], y.halves[k]); \
        return x.part; \
    }
BY_HALVES(wide_madd, __m512i, whole, half, _mm256_madd_epi16)
BY_HALVES(wide_maddubs, __m512i, whole, half, _mm256_maddubs_epi16)
BY_HALVES(wide_add, __m512i, whole, half, _mm256_add_epi32)
BY_HALVES(wide_max, __m512, floats, float_half, _mm256_max_ps)
BY_HALVES(wide_min, __m512, floats, float_half, _mm256_min_ps)

static inline __m512 wide_fmadd(__m512 a, __m512 b, __m512 c) {
    Wide x = {.floats = a}, y = {.floats = b}, z = {.floats = c};
    for (int k = 0; k < 2; k++) x.float_half[k] = _mm256_fmadd_ps(x.float_half[k], y.float_half[k], z.float_half[k]);
    return x.floats;
}
static inline __m256 wide_low(__m512 a) { return ((Wide){.floats = a}).float_half[0]; }
static inline __m512d wide_doubles(__m512 a) { return ((Wide){.floats = a}).doubles; }
static inline __m256d wide_half(__m512d a, int k) { return ((Wide){.doubles = a}).double_half[k]; }

#define _mm512_loadu_si512 wide_load
#define _mm512_storeu_si512(p, x) wide_store(p, (__m512i)(x))
#define _mm512_set1_epi32 wide_int32
#define _mm512_set1_epi16 wide_int16
#define _mm512_madd_epi16 wide_madd
#define _mm512_maddubs_epi16 wide_maddubs
#define _mm512_loadu_ps wide_floats
#define _mm512_storeu_ps wide_store_floats
#define _mm512_set1_ps wide_float
#define _mm512_setzero_ps() wide_float(0.0f)
#define _mm512_max_ps wide_max
#define _mm512_min_ps wide_min
#define _mm512_fmadd_ps wide_fmadd
#define _mm512_castps512_ps256 wide_low
#define _mm512_castps_pd wide_doubles
#define _mm512_extractf64x4_pd wide_half
#undef __AVX512BW__
#undef __AVX512VNNI__
#define __AVX512BW__ 1

#if defined(VNNI)
static inline __m512i wide_dpbusd(__m512i sum, __m512i a, __m512i b) {
    Wide s = {.whole = sum}, x = {.whole = a}, y = {.whole = b};
    for (int k = 0; k < 64; k++) s.number[k / 4] += x.byte[k] * y.signed_byte[k];
    return s.whole;
}
static inline __m512i wide_dpwssd(__m512i sum, __m512i a, __m512i b) { return wide_add(sum, wide_madd(a, b)); }
#define _mm512_dpbusd_epi32 wide_dpbusd
#define _mm512_dpwssd_epi32 wide_dpwssd
#define __AVX512VNNI__ 1
#endif
