/* The AVX-512 instructions that products.h uses, each by two of AVX2, so that its wide code runs, slowly, without them.
 * With VNNI defined, its sums of four and of two as well; with HALVED those of bfloat16 in pairs; with TILED the tiles of
 * AMX. Put before a source by `cc -include`. */
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

#if defined(HALVED) || defined(TILED)
/* A bfloat16 as a float; numbers too small to be normal are 0, as those instructions have it. */
static inline float half_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, 2);
    uint32_t bits = (uint32_t)half << 16;
    if (!(bits & 0x7f800000)) bits &= 0x80000000;
    float made;
    memcpy(&made, &bits, 4);
    return made;
}
#endif

#if defined(HALVED)
static inline __m512 wide_dpbf16(__m512 sum, __m512i a, __m512i b) {
    Wide s = {.floats = sum}, x = {.whole = a}, y = {.whole = b};
    float number[16];
    memcpy(number, &s, 64);
    for (int k = 0; k < 16; k++)
        for (int odd = 2; odd >= 0; odd -= 2)
            number[k] = __builtin_fmaf(half_at(x.byte + 4 * k + odd), half_at(y.byte + 4 * k + odd), number[k]);
    memcpy(&s, number, 64);
    return s.floats;
}
#define __m512bh __m512i
#define _mm512_dpbf16_ps wide_dpbf16
#define __AVX512BF16__ 1
#endif

#if defined(TILED)
typedef union {
    uint8_t byte[16][64];
    int8_t signed_byte[16][64];
    int32_t number[16][16];
    float floats[16][16];
} Tile;
static __thread Tile tiles[8];
static __thread int tiles_ready;

/* All is as the configuration says: palette 1, 8 tiles of 16 rows of 64 bytes. */
static inline void tile_shapes(const void *config) {
    const uint8_t *told = config;
    tiles_ready = told[0] == 1;
    for (int k = 0; k < 8; k++) tiles_ready &= told[16 + 2 * k] == 64 && told[17 + 2 * k] == 0 && told[48 + k] == 16;
    memset(tiles, 0, sizeof tiles);
}
/* An instruction on tiles without shapes ends the program, as it does where it is real. */
static inline Tile *tile(int k) {
    if (!tiles_ready) __builtin_trap();
    return tiles + k;
}
static inline void tile_load(int k, const void *base, int64_t stride) {
    for (int r = 0; r < 16; r++) memcpy(tile(k)->byte[r], (const uint8_t *)base + r * stride, 64);
}
static inline void tile_store(int k, void *base, int64_t stride) {
    for (int r = 0; r < 16; r++) memcpy((uint8_t *)base + r * stride, tile(k)->byte[r], 64);
}
static inline void tile_bytes(int sum, int a, int b) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 64; k++)
            for (int n = 0; n < 16; n++)
                tile(sum)->number[m][n] += tile(a)->byte[m][k] * tile(b)->signed_byte[k / 4][4 * n + k % 4];
}
static inline void tile_halves(int sum, int a, int b) {
    for (int m = 0; m < 16; m++) {
        float added[16] = {0};
        for (int k = 0; k < 32; k++)
            for (int n = 0; n < 16; n++)
                added[n] = __builtin_fmaf(
                    half_at(tile(a)->byte[m] + 2 * k), half_at(tile(b)->byte[k / 2] + 4 * n + 2 * (k % 2)), added[n]);
        for (int n = 0; n < 16; n++) tile(sum)->floats[m][n] += added[n];
    }
}
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig tile_shapes
#define _tile_release() (tiles_ready = 0)
#define _tile_loadd tile_load
#define _tile_stored tile_store
#define _tile_zero(k) memset(tile(k), 0, sizeof(Tile))
#define _tile_dpbusd tile_bytes
#define _tile_dpbf16ps tile_halves
#define __AMX_BF16__ 1
#endif
