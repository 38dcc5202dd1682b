/* Rows of numbers times fixed int8 matrices, and the arithmetic around it, in vectors as wide as the machine has them.
 *
 * Weights are int8 with a scale for each output. A row of activations becomes unsigned bytes in units of its largest
 * number, and sums of products are exact integers. So nothing else in a batch touches a row's numbers, whatever is
 * computed beside it and in whichever order; the compiler may not contract operations, so that the same holds in
 * floats.
 *
 * A matrix lies in blocks of 4 vectors of W outputs; in a vector four inputs stand side by side for every output.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512BW__)
#define W 16
#define TILE 6 /* rows whose sums stay in registers */
typedef __m512i vector;
#define FLOATS(name) _mm512_##name##_ps
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, x) _mm512_storeu_si512(p, x)
#define SPREAD(four) _mm512_set1_epi32(four)
#define PAIRS(a, w) _mm512_madd_epi16(_mm512_maddubs_epi16(a, w), _mm512_set1_epi16(1))
#if defined(__AVX512VNNI__)
#define DOT(sum, a, w) _mm512_dpbusd_epi32(sum, a, w)
#endif
#elif defined(__AVX2__)
#define W 8
#define TILE 3
typedef __m256i vector;
#define FLOATS(name) _mm256_##name##_ps
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, x) _mm256_storeu_si256((void *)(p), x)
#define SPREAD(four) _mm256_set1_epi32(four)
#define PAIRS(a, w) _mm256_madd_epi16(_mm256_maddubs_epi16(a, w), _mm256_set1_epi16(1))
#if defined(__AVXVNNI__)
#define DOT(sum, a, w) _mm256_dpbusd_avx_epi32(sum, a, w)
#endif
#else
#error "made for AVX2 and what came after it"
#endif

/* MOST is the largest byte of a row. Without an instruction for sums of four, products of two neighbours are added in
 * int16, which holds two of 127 * 127 and no more. */
#if defined(DOT)
#define MOST 255
#else
#define MOST 127
#define DOT(sum, a, w) ((vector)((whole)(sum) + (whole)PAIRS(a, w)))
#endif
#define CHUNK 48 /* rows that are multiplied at a time, so that their bytes and sums stay in the nearest caches */

typedef float floats __attribute__((vector_size(4 * W)));
typedef int32_t whole __attribute__((vector_size(4 * W)));

typedef struct {
    int32_t inputs;        /* filled up to a multiple of W, so that whole vectors of bytes can be written */
    int32_t blocks;        /* of 4 * W outputs, the last of them filled up */
    int32_t shift;         /* the byte that stands for 0: in the middle, or 0 where no input is negative */
    const int8_t *values;  /* (blocks, inputs / 4, 4, W, 4) */
    const int32_t *start;  /* (blocks, 4, W) what the shift adds to each sum, taken off */
    const float *scale;    /* (blocks, 4, W) of a sum whose row's largest number is 1 */
} Matrix;

static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- Products ---- */

static inline __attribute__((always_inline)) void tile(const int rows, const uint8_t *a, int32_t K, const int8_t *w,
                                                       const int32_t *start, int32_t *sums) {
    vector sum[TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) sum[r][v] = LOAD(start + v * W);
    for (int32_t k = 0; k < K; k += 4, w += 16 * W)
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, a + (int64_t)r * K + k, 4);
            vector x = SPREAD(four);
            for (int v = 0; v < 4; v++) sum[r][v] = DOT(sum[r][v], x, LOAD(w + 4 * W * v));
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) STORE(sums + (4 * r + v) * W, sum[r][v]);
}

/* Rows a (M, inputs) times one block: sums (M, 4, W). */
static void multiply(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t *sums) {
    int32_t K = matrix->inputs, m = 0;
    const int8_t *w = matrix->values + (int64_t)block * K * 4 * W;
    const int32_t *start = matrix->start + (int64_t)block * 4 * W;
    for (; m + TILE <= M; m += TILE) tile(TILE, a + (int64_t)m * K, K, w, start, sums + (int64_t)m * 4 * W);
    a += (int64_t)m * K;
    sums += (int64_t)m * 4 * W;
    switch (M - m) {
#if TILE == 6
    case 5: tile(5, a, K, w, start, sums); break;
    case 4: tile(4, a, K, w, start, sums); break;
    case 3: tile(3, a, K, w, start, sums); break;
#endif
    case 2: tile(2, a, K, w, start, sums); break;
    case 1: tile(1, a, K, w, start, sums); break;
    }
}

/* ---- Numbers ---- */

static const float ROUNDING = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded, and stands in its low bits */

static inline floats all(float x) { return FLOATS(set1)(x); }
static inline floats get(const float *p) { return FLOATS(loadu)(p); }
static inline void put(float *p, floats x) { FLOATS(storeu)(p, x); }
static inline floats from(const int32_t *p) { return __builtin_convertvector((whole)LOAD(p), floats); }
static inline whole nearest(floats x) { return (whole)(x + all(ROUNDING)) - (whole)all(ROUNDING); }
static inline floats larger(floats x, floats y) { return FLOATS(max)(x, y); }
static inline floats within(floats x, float most) { return larger(FLOATS(min)(x, all(most)), all(-most)); }

/* exp(x) by powers of two and a polynomial on [-ln 2 / 2, ln 2 / 2], right to 1e-7. */
static inline floats exponential(floats x) {
    floats y = within(x, 87.0f);
    whole n = nearest(y * 1.44269504f);
    floats twos = __builtin_convertvector(n, floats);
    floats r = y - twos * 0.693359375f + twos * 2.12194440e-4f;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (floats)((n + 127) << 23);
}

static inline floats sigmoid(floats x) { return 1.0f / (1.0f + exponential(-x)); }
static inline floats tanh_of(floats x) { return 2.0f / (1.0f + exponential(x * -2.0f)) - 1.0f; }

/* x (K) as bytes for a matrix, in units of its largest number over the steps there are; returns that number. */
static float quantise(int32_t K, const float *restrict x, const Matrix *matrix, uint8_t *restrict to) {
    int32_t top = 0, shift = matrix->shift; /* bits of numbers without their sign are in the numbers' order */
    for (int32_t k = 0; k < K; k++) {
        int32_t size;
        memcpy(&size, x + k, 4);
        size &= 0x7fffffff;
        top = size > top ? size : top;
    }
    float largest, factor;
    memcpy(&largest, &top, 4);
    largest = largest < 1e-30f ? 1e-30f : largest;
    factor = (float)(shift ? MOST / 2 : MOST) / largest;
    for (int32_t k = 0; k < K; k++) {
        float moved = x[k] * factor + ROUNDING;
        int32_t bits;
        memcpy(&bits, &moved, 4);
        to[k] = (uint8_t)(bits + shift);
    }
    memset(to + K, 0, (size_t)(matrix->inputs - K));
    return largest;
}
