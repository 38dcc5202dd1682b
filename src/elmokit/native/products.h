/* Rows of numbers times fixed matrices, and the arithmetic around it, in vectors as wide as the machine has them.
 *
 * A matrix is int8 or int16 with a scale for each output, bfloat16 or float32. For whole numbers a row of activations
 * becomes unsigned bytes, or int16, in units of its largest number, and sums of products are exact; for floats a row stays
 * what it is, rounded to bfloat16 for such a matrix, and each of its sums is added up in an order of its own. So nothing
 * else in a batch touches a row's numbers, whatever is computed beside it; the compiler may not contract operations, so
 * that the same holds for what follows.
 *
 * Sums come in blocks of 4 vectors of W outputs. All but float32 lies in such blocks; in a vector four inputs (two of int16
 * or bfloat16) stand side by side for every output. float32 lies row by row, as in a file, and is read where it is.
 */
#pragma once
#include "vectors.h"

#define AHEAD 65536 /* bytes of a block that are fetched before it is multiplied */
#define SLICE 1024 /* floats of a row that are multiplied at a time */
#ifndef CHUNK /* rows that are multiplied at a time, so that their bytes and sums stay in the nearer caches; whole tiles */
#define CHUNK (W == 16 ? 96 : 48)
#endif

#ifndef GROUPED /* floats of rows that the nearest cache keeps while a block passes by */
#define GROUPED (W == 16 ? 6144 : 3072)
#endif
#define SOON 2 /* rows of the next block that a tile fetches */

enum { INT8, FLOAT32, INT16, BFLOAT16 }; /* floats are odd */

typedef struct {
    int32_t kind;         /* of those above */
    int32_t inputs;       /* filled up so that a row is whole vectors of 4 * W bytes */
    int32_t blocks;       /* of 4 * W outputs, the last of them filled up */
    int32_t steps;        /* whole numbers: the largest of a row */
    int32_t shift;        /* int8: the byte that stands for 0: in the middle, or 0 where no input is negative */
    int32_t outputs;      /* float32: rows, of one gate if `gates` */
    int32_t gates;        /* float32: whether a block's vectors are rows of the four quarters of the matrix */
    const void *values;   /* int8: (blocks, inputs / 4, 4, W, 4); int16 and bfloat16: (blocks, inputs / 2, 4, W, 2);
                             float32: (outputs, inputs), or (4, outputs, inputs) */
    const int32_t *start; /* int8: (blocks, 4, W) what the shift adds to each sum, taken off */
    const float *scale;   /* whole numbers: (blocks, 4, W) of a sum whose row's largest number is 1 */
    const float *zeros;   /* float32: (inputs) in place of rows that are not there */
} Matrix;

static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static inline void put(float *p, floats x) { FLOATS(storeu)(p, x); }

/* ---- Products ---- */

static inline int64_t item_size(const Matrix *matrix) { return matrix->kind == INT8 ? 1 : matrix->kind == FLOAT32 ? 4 : 2; }

/* Bytes of a row that `take` made; and those from one such row to the next, no power of two: rows that far apart would
 * share few places of the nearest cache. */
static inline int64_t row_size(const Matrix *matrix) { return matrix->inputs * item_size(matrix); }
static inline int64_t row_step(const Matrix *matrix) { return row_size(matrix) + 64; }

/* How bfloat16 is multiplied: as int16, by vectors of pairs, by tiles. The last two differ in the order of sums. */
#if defined(__AMX_BF16__)
#define HALVES 2
#elif defined(__AVX512BF16__)
#define HALVES 1
#else
#define HALVES 0
#endif
#if HALVES == 2
#include "tiles.h"
#else
static inline void begin_products(void) {}
static inline void end_products(void) {}
#endif

static inline __attribute__((always_inline)) void int8_tile(const int rows, const uint8_t *a, int64_t step, int32_t K,
                                                            const int8_t *w, const int32_t *start, int32_t *sums) {
    vector sum[TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) sum[r][v] = LOAD(start + v * W);
    for (int32_t k = 0; k < K; k += 4, w += 16 * W)
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, a + r * step + k, 4);
            vector x = SPREAD(four);
            for (int v = 0; v < 4; v++) sum[r][v] = DOT(sum[r][v], x, LOAD(w + 4 * W * v));
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) STORE(sums + (4 * r + v) * W, sum[r][v]);
}

static inline __attribute__((always_inline)) void int16_tile(const int rows, const uint8_t *a, int64_t step, int32_t K,
                                                             const int16_t *w, int32_t *sums) {
    whole sum[FEW][4] = {0};
#pragma GCC unroll 4
    for (int32_t k = 0; k < K; k += 2, w += 8 * W)
        for (int r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, a + r * step + 2 * k, 4);
            vector x = SPREAD(two);
            for (int v = 0; v < 4; v++) sum[r][v] = (whole)DOT16((vector)sum[r][v], x, LOAD(w + 2 * W * v));
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) STORE(sums + (4 * r + v) * W, (vector)sum[r][v]);
}

#if HALVES == 1
static inline __attribute__((always_inline)) void bfloat16_tile(const int rows, const uint8_t *a, int64_t step,
                                                                int32_t K, const uint16_t *w, float *sums) {
    floats sum[TILE][4] = {0};
    for (int32_t k = 0; k < K; k += 2, w += 8 * W)
        for (int r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, a + r * step + 2 * k, 4);
            __m512bh x = (__m512bh)SPREAD(two);
            for (int v = 0; v < 4; v++)
                sum[r][v] = (floats)_mm512_dpbf16_ps((__m512)sum[r][v], x, (__m512bh)LOAD(w + 2 * W * v));
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) FLOATS(storeu)(sums + (4 * r + v) * W, sum[r][v]);
}
#endif

/* The sums of four vectors. */
static inline void across(const floats *sum, float *four) {
#if defined(__aarch64__)
    float32x4_t low = vpaddq_f32((float32x4_t)sum[0], (float32x4_t)sum[1]);
    vst1q_f32(four, vpaddq_f32(low, vpaddq_f32((float32x4_t)sum[2], (float32x4_t)sum[3])));
#else
#if W == 16
    __m256 half[4];
    for (int v = 0; v < 4; v++)
        half[v] = _mm256_add_ps(_mm512_castps512_ps256(sum[v]),
                                _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum[v]), 1)));
#else
    const floats *half = sum;
#endif
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
    _mm_storeu_ps(four, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#endif
}

/* Floats a (rows, length), `step` apart, times four rows of a matrix, added to one place of each of four vectors of sums.
 * What `soon` points to is fetched into a nearer cache on the way. */
static inline __attribute__((always_inline)) void float_tile(const int rows, const float *a, int64_t step, int32_t length,
                                                             const float *const *w, const float *const *soon, float *sums) {
    floats sum[TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) sum[r][v] = FLOATS(setzero)();
    for (int32_t k = 0; k < length; k += W) {
        floats x[TILE]; /* with one weight at a time, just as many registers as there are */
        for (int n = 0; rows > 1 && n < SOON; n++) __builtin_prefetch(soon[n] + k, 0, 2); /* one row has no time for it */
        for (int r = 0; r < rows; r++) x[r] = FLOATS(loadu)(a + r * step + k);
        for (int v = 0; v < 4; v++) {
            floats weight = FLOATS(loadu)(w[v] + k);
            for (int r = 0; r < rows; r++) sum[r][v] = FLOATS(fmadd)(x[r], weight, sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++) {
        float four[4];
        across(sum[r], four);
        for (int v = 0; v < 4; v++) sums[(4 * r + v) * W] += four[v];
    }
}

#if TILE == 6
#define SIZES(RUN) RUN(6) RUN(5) RUN(4) RUN(3) RUN(2) RUN(1)
#else
#define SIZES(RUN) RUN(3) RUN(2) RUN(1)
#endif

static void multiply_int8(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t *sums) {
    int32_t K = matrix->inputs;
    int64_t step = row_step(matrix);
    const int8_t *w = (const int8_t *)matrix->values + (int64_t)block * K * 4 * W;
    const int32_t *start = matrix->start + (int64_t)block * 4 * W;
    for (int32_t m = 0; m < M; m += TILE, a += TILE * step, sums += TILE * 4 * W)
        switch (smaller(M - m, TILE)) {
#define RUN(n) case n: int8_tile(n, a, step, K, w, start, sums); break;
            SIZES(RUN)
#undef RUN
        }
}

#if HALVES == 1
static void multiply_bfloat16(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t *to) {
    int32_t K = matrix->inputs;
    int64_t step = row_step(matrix);
    const uint16_t *w = (const uint16_t *)matrix->values + (int64_t)block * K * 4 * W;
    float *sums = (float *)to;
    for (int32_t m = 0; m < M; m += TILE, a += TILE * step, sums += TILE * 4 * W)
        switch (smaller(M - m, TILE)) {
#define RUN(n) case n: bfloat16_tile(n, a, step, K, w, sums); break;
            SIZES(RUN)
#undef RUN
        }
}
#endif

static void multiply_int16(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t *sums) {
    int32_t K = matrix->inputs;
    int64_t step = row_step(matrix);
    const int16_t *w = (const int16_t *)matrix->values + (int64_t)block * K * 4 * W;
    for (int32_t m = 0; m < M; m += FEW, a += FEW * step, sums += FEW * 4 * W)
        switch (smaller(M - m, FEW)) {
#define RUN(n) case n: int16_tile(n, a, step, K, w, sums); break;
#if FEW == TILE
            SIZES(RUN)
#else
            RUN(2) RUN(1)
#endif
#undef RUN
        }
}

/* The same for any number of rows; `soon` (tiles, SOON). */
static void float_tiles(int32_t M, const float *a, int64_t step, int32_t length, const float *const *w,
                        const float *const *soon, float *sums) {
    for (int32_t m = 0; m < M; m += TILE, a += TILE * step, sums += TILE * 4 * W, soon += SOON)
        switch (smaller(M - m, TILE)) {
#define RUN(n) case n: float_tile(n, a, step, length, w, soon, sums); break;
            SIZES(RUN)
#undef RUN
        }
}

/* Where row l of each of a block's four vectors lies, from one input on. */
static inline void rows_at(const Matrix *matrix, int32_t block, int32_t l, int32_t first, const float **w) {
    for (int v = 0; v < 4; v++) {
        int32_t row = matrix->gates ? block * W + l : (4 * block + v) * W + l;
        int64_t place = matrix->gates ? (int64_t)v * matrix->outputs + row : row;
        w[v] = (row < matrix->outputs ? (const float *)matrix->values + place * matrix->inputs : matrix->zeros) + first;
    }
}

/* A share, the m-th of M, of a block's whole numbers or bfloat16 is fetched into a nearer cache. */
static inline void fetch_ahead(const Matrix *matrix, int32_t block, int32_t m, int32_t M) {
    if (matrix->kind == FLOAT32 || block < 0 || block >= matrix->blocks) return;
    int64_t size = row_size(matrix) * 4 * W;
    if (size > AHEAD) size = AHEAD;
    const char *from = (const char *)matrix->values + block * row_size(matrix) * 4 * W;
    int64_t share = (size / 64 + M - 1) / M * 64, end = share * (m + 1) < size ? share * (m + 1) : size;
    for (int64_t k = share * m; k < end; k += 64) __builtin_prefetch(from + k, 0, 2);
}

/* Long rows go by slices, and rows by groups that the nearest cache keeps while a block passes by. The next block is
 * fetched meanwhile: two of its rows, or one, by each of the first tiles that meet a row of this one. */
static void multiply_floats(int32_t M, const float *a, const Matrix *matrix, int32_t block, int32_t after, float *sums) {
    int64_t step = row_step(matrix) / 4;
    int32_t more = M > TILE && after >= 0 && after < matrix->blocks, each = M > 3 * TILE ? 1 : SOON;
    memset(sums, 0, 16 * W * (size_t)M);
    for (int32_t first = 0; first < matrix->inputs; first += SLICE) {
        int32_t length = smaller(matrix->inputs - first, SLICE), group = smaller(GROUPED / length, CHUNK) / TILE * TILE;
        if (group < TILE) group = TILE;
        for (int32_t m = 0; m < M; m += group) {
            int32_t rows = smaller(M - m, group);
            for (int32_t l = 0; l < W; l++) {
                const float *w[4], *next[4], *soon[CHUNK / TILE * SOON];
                rows_at(matrix, block, l, first, w);
                if (more) rows_at(matrix, after, l, first, next);
                for (int32_t t = 0; t * TILE < rows; t++)
                    for (int32_t n = 0; n < SOON; n++) {
                        int32_t v = (m / TILE + t) * each + n % each;
                        soon[t * SOON + n] = more && v < 4 ? next[v] : w[0]; /* which is near already */
                    }
                float_tiles(rows, a + m * step + first, step, length, w, soon, sums + m * 4 * W + l);
            }
        }
    }
}

/* Rows a (M, inputs), made by `take`, `row_step` apart, times one block: sums (M, 4, W), to be read by `sum_at`. `after`
 * is the block that comes next, if there is one. */
static void multiply(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t after, int32_t *sums) {
#if HALVES == 2
    if (matrix->kind == INT8 && M > UNTILED) {
        multiply_int8_tiles(M, a, matrix, block, sums);
        return;
    }
#endif
#if HALVES
    if (matrix->kind == BFLOAT16) {
        multiply_bfloat16(M, a, matrix, block, sums);
        return;
    }
#endif
    if (matrix->kind == INT8)
        multiply_int8(M, a, matrix, block, sums);
    else if (matrix->kind == INT16)
        multiply_int16(M, a, matrix, block, sums);
    else
        multiply_floats(M, (const float *)a, matrix, block, after, (float *)sums);
}

/* ---- Numbers ---- */

static const float ROUNDING = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded, and stands in its low bits */

static inline int32_t rounded(float x) {
    float moved = x + ROUNDING;
    int32_t bits;
    memcpy(&bits, &moved, 4);
    return bits - 0x4b400000; /* the bits of what was added */
}
static inline floats all(float x) { return FLOATS(set1)(x); }
static inline floats get(const float *p) { return FLOATS(loadu)(p); }
static inline floats from(const int32_t *p) { return __builtin_convertvector((whole)LOAD(p), floats); }
static inline whole nearest(floats x) { return (whole)(x + all(ROUNDING)) - (whole)all(ROUNDING); }
static inline floats plus_product(floats sum, floats x, floats y) { return FLOATS(fmadd)(x, y, sum); } /* rounded once */
static inline floats larger(floats x, floats y) { return FLOATS(max)(x, y); }
static inline floats within(floats x, float most) { return larger(FLOATS(min)(x, all(most)), all(-most)); }

/* exp(x) by powers of two and a polynomial on [-ln 2 / 2, ln 2 / 2], right to 1e-7. The power stands in the low bits of
 * what was rounded, and is added to the exponent of the polynomial. */
static inline floats exponential(floats x) {
    floats y = within(x, 87.0f);
    floats moved = plus_product(all(ROUNDING), y, all(1.44269504f)), twos = moved - all(ROUNDING);
    floats r = plus_product(plus_product(y, twos, all(-0.693359375f)), twos, all(2.12194440e-4f));
    floats p = plus_product(all(1.3981999507e-3f), r, all(1.9875691500e-4f));
    p = plus_product(all(8.3334519073e-3f), p, r);
    p = plus_product(all(4.1665795894e-2f), p, r);
    p = plus_product(all(1.6666665459e-1f), p, r);
    p = plus_product(all(5.0000001201e-1f), p, r);
    p = plus_product(r, p, r * r) + 1.0f;
    return (floats)((whole)p + ((whole)moved << 23));
}

static inline floats sigmoid(floats x) { return 1.0f / (1.0f + exponential(-x)); }
static inline floats tanh_of(floats x) { return 2.0f / (1.0f + exponential(x * -2.0f)) - 1.0f; }
/* sigmoid(gate) * tanh(x) by one division, which takes long; both exponentials large: 0 / inf. */
static inline floats gated_tanh(floats gate, floats x) {
    floats low = exponential(x * -2.0f);
    return (1.0f - low) / ((1.0f + exponential(-gate)) * (1.0f + low));
}

/* A number of a row's sums, which stand at `place` of the matrix's outputs; `largest` is what `take` returned. */
static inline floats sum_at(const Matrix *matrix, const int32_t *sums, int64_t place, float largest) {
    return matrix->kind & 1 ? get((const float *)sums) : from(sums) * get(matrix->scale + place) * largest;
}

/* The nearest bfloat16 of each, even bits where two are as near. */
static inline void put_halves(floats x, uint16_t *to) {
    typedef uint32_t bits __attribute__((vector_size(4 * W)));
    bits all_bits = (bits)x, near = (all_bits + 0x7fff + (all_bits >> 16 & 1)) >> 16;
    for (int l = 0; l < W; l++) to[l] = (uint16_t)near[l];
}

/* x (K) as a matrix wants it. Whole numbers are in units of the largest over the steps there are; returns that one. */
static float take(int32_t K, const float *restrict x, const Matrix *matrix, uint8_t *restrict to) {
    if (matrix->kind == FLOAT32) {
        memcpy(to, x, 4 * (size_t)K);
        memset(to + 4 * (size_t)K, 0, 4 * (size_t)(matrix->inputs - K));
        return 1.0f;
    }
    if (matrix->kind == BFLOAT16) {
        uint16_t *halves = (uint16_t *)to;
        int32_t k = 0;
        for (; k + W <= K; k += W) put_halves(get(x + k), halves + k);
        if (k < K) {
            float rest[W] = {0};
            memcpy(rest, x + k, 4 * (size_t)(K - k));
            put_halves(get(rest), halves + k);
        }
        k = (K + W - 1) / W * W;
        memset(halves + k, 0, 2 * (size_t)(matrix->inputs - k));
        return 1.0f;
    }
    int32_t top = 0, shift = matrix->shift; /* bits of numbers without their sign are in the numbers' order */
    for (int32_t k = 0; k < K; k++) {
        int32_t size;
        memcpy(&size, x + k, 4);
        size &= 0x7fffffff;
        top = size > top ? size : top;
    }
    float largest;
    memcpy(&largest, &top, 4);
    largest = largest < 1e-30f ? 1e-30f : largest;
    int16_t *restrict wide = (int16_t *)to;
    float factor = (float)matrix->steps / largest;
    for (int32_t k = 0; matrix->kind == INT16 && k < K; k++) wide[k] = (int16_t)rounded(x[k] * factor);
    for (int32_t k = 0; matrix->kind == INT8 && k < K; k++) to[k] = (uint8_t)(rounded(x[k] * factor) + shift);
    int64_t item = matrix->kind == INT16 ? 2 : 1;
    memset(to + item * K, 0, (size_t)(item * (matrix->inputs - K)));
    return largest;
}
