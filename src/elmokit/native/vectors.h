/* Vectors as wide as the machine has them, and what is done with whole ones: by AVX2, AVX-512 or NEON. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif
#ifdef _WIN32
#include <malloc.h>
#endif

/* Memory that starts where a line of the cache does, so that no vector lies across two; NULL where it is lacking. */
static inline void *room(size_t size) {
#ifdef _WIN32
    return _aligned_malloc(size + 1, 64);
#else
    void *made;
    return posix_memalign(&made, 64, size + 1) ? NULL : made;
#endif
}
static inline void *empty_room(size_t size) {
    void *made = room(size);
    return made ? memset(made, 0, size) : NULL;
}
static inline void give_back(void *made) {
#ifdef _WIN32
    _aligned_free(made);
#else
    free(made);
#endif
}

#if defined(__aarch64__)
#define W 4
#define TILE 6 /* rows whose sums stay in registers */
#define FEW 6  /* the same, of int16 */
typedef int32x4_t vector;
#define FLOATS(name) neon_##name
#define LOAD(p) vld1q_s32((const int32_t *)(const void *)(p))
#define STORE(p, x) vst1q_s32((int32_t *)(void *)(p), x)
#define SPREAD(four) vdupq_n_s32(four)
#define PAIRS(a, w) neon_pairs(a, w)
#define FOURS(a, w) neon_fours(a, w)
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT(sum, a, w) vusdotq_s32(sum, vreinterpretq_u8_s32(a), vreinterpretq_s8_s32(w))
#define DOT16(sum, a, w) vaddq_s32(sum, PAIRS(a, w))
#endif
#elif defined(__AVX512BW__)
#define W 16
#define TILE 6 /* rows whose sums stay in registers */
#define FEW 6  /* the same, of int16 */
typedef __m512i vector;
#define FLOATS(name) _mm512_##name##_ps
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, x) _mm512_storeu_si512(p, x)
#define SPREAD(four) _mm512_set1_epi32(four)
#define PAIRS(a, w) _mm512_madd_epi16(a, w)
#define FOURS(a, w) PAIRS(_mm512_maddubs_epi16(a, w), _mm512_set1_epi16(1))
#if defined(__AVX512VNNI__)
#define DOT(sum, a, w) _mm512_dpbusd_epi32(sum, a, w)
#define DOT16(sum, a, w) _mm512_dpwssd_epi32(sum, a, w)
#endif
#elif defined(__AVX2__)
#define W 8
#define TILE 3
#define FEW 2
typedef __m256i vector;
#define FLOATS(name) _mm256_##name##_ps
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, x) _mm256_storeu_si256((void *)(p), x)
#define SPREAD(four) _mm256_set1_epi32(four)
#define PAIRS(a, w) _mm256_madd_epi16(a, w)
#define FOURS(a, w) PAIRS(_mm256_maddubs_epi16(a, w), _mm256_set1_epi16(1))
#if defined(__AVXVNNI__)
#define DOT(sum, a, w) _mm256_dpbusd_avx_epi32(sum, a, w)
#define DOT16(sum, a, w) _mm256_dpwssd_avx_epi32(sum, a, w)
#endif
#endif
#if !defined(__aarch64__) && (!defined(__AVX2__) || !defined(__FMA__))
#error "made for AVX2 with FMA and what came after it, or for 64-bit ARM"
#endif

/* MOST is the largest byte of a row. Without an instruction for sums of four, products of two neighbours are added in
 * int16, which holds two of 127 * 127 and no more. */
#if defined(DOT)
#define MOST 255
#else
#define MOST 127
#define DOT(sum, a, w) ((vector)((whole)(sum) + (whole)FOURS(a, w)))
#define DOT16(sum, a, w) ((vector)((whole)(sum) + (whole)PAIRS(a, w)))
#endif
/* The names of functions that Python calls end in the variant's. */
#define JOINED(name, variant) elmokit_##name##_##variant
#define NAMED(name, variant) JOINED(name, variant)
#ifdef _WIN32
#define OWN(name) __declspec(dllexport) NAMED(name, VARIANT)
#else
#define OWN(name) NAMED(name, VARIANT)
#endif
typedef float floats __attribute__((vector_size(4 * W)));
typedef int32_t whole __attribute__((vector_size(4 * W)));

#if defined(__aarch64__)
static inline floats neon_setzero(void) { return (floats)vdupq_n_f32(0); }
static inline floats neon_set1(float x) { return (floats)vdupq_n_f32(x); }
static inline floats neon_loadu(const float *p) { return (floats)vld1q_f32(p); }
static inline void neon_storeu(float *p, floats x) { vst1q_f32(p, (float32x4_t)x); }
static inline floats neon_max(floats x, floats y) { return (floats)vmaxq_f32((float32x4_t)x, (float32x4_t)y); }
static inline floats neon_min(floats x, floats y) { return (floats)vminq_f32((float32x4_t)x, (float32x4_t)y); }
static inline floats neon_fmadd(floats x, floats y, floats sum) {
    return (floats)vfmaq_f32((float32x4_t)sum, (float32x4_t)x, (float32x4_t)y);
}

/* Sums of two neighbouring products of int16. */
static inline int32x4_t neon_pairs(int32x4_t a, int32x4_t w) {
    int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(w);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}

/* Sums of four neighbouring products of bytes; those of a row are 127 at most, so that their sign does not matter. */
static inline int32x4_t neon_fours(int32x4_t a, int32x4_t w) {
    int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(w);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(vdupq_n_s32(0), x, y);
#else
    return vpaddq_s32(vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y))), vpaddlq_s16(vmull_high_s8(x, y)));
#endif
}
#endif
