/* What is computed of weights once, when a model is loaded. */
#include "products.h"

#define GROUP 64

static inline int8_t in_steps(int32_t four, float scale, float step) {
    int32_t whole = rounded((float)(four - 8) * scale / step);
    return (int8_t)(whole > 127 ? 127 : whole < -127 ? -127 : whole);
}

/* Of 32 bytes' 64 numbers the one that is farthest from 0. */
static int32_t farthest(const uint8_t *packed) {
    uint8_t far = 0;
    for (int k = 0; k < GROUP / 2; k++) {
        uint8_t low = (uint8_t)abs((packed[k] & 15) - 8), high = (uint8_t)abs((packed[k] >> 4) - 8);
        low = low > high ? low : high;
        far = far > low ? far : low;
    }
    return far;
}

/* 32 bytes' 64 numbers, each as a table of the 16 that there are has it. */
static inline void look_up(const uint8_t *packed, const int8_t *table, int8_t *values) {
#if defined(__AVX2__)
    const __m128i low = _mm_set1_epi8(15), known = _mm_loadu_si128((const void *)table);
    for (int k = 0; k < GROUP / 2; k += 16) {
        __m128i pair = _mm_loadu_si128((const void *)(packed + k));
        __m128i first = _mm_shuffle_epi8(known, _mm_and_si128(pair, low));
        __m128i second = _mm_shuffle_epi8(known, _mm_and_si128(_mm_srli_epi16(pair, 4), low));
        _mm_storeu_si128((void *)(values + 2 * k), _mm_unpacklo_epi8(first, second));
        _mm_storeu_si128((void *)(values + 2 * k + 16), _mm_unpackhi_epi8(first, second));
    }
#else
    for (int k = 0; k < GROUP / 2; k++) values[2 * k] = table[packed[k] & 15], values[2 * k + 1] = table[packed[k] >> 4];
#endif
}

/* Four bits with a scale for each group of 64 to int8 with one for each row, to the bit as `numbers.groups_as_int8` has
 * it: packed rows (N, K / 2) with scales (N, K / 64) to values (N, K) and their scales (N). K is a multiple of 64. */
int32_t OWN(groups)(int32_t N, int32_t K, const uint8_t *packed, const float *scales, int8_t *values, float *steps) {
    for (int64_t n = 0; n < N; n++) {
        const uint8_t *row = packed + n * (K / 2);
        const float *scale = scales + n * (K / GROUP);
        float largest = 0;
        for (int32_t g = 0; g < K / GROUP; g++) {
            float size = __builtin_fabsf((float)farthest(row + g * GROUP / 2) * scale[g]);
            largest = size > largest ? size : largest;
        }
        float step = largest > 0 ? largest / 127.0f : 1.0f;
        steps[n] = step;
        for (int32_t g = 0; g < K / GROUP; g++) {
            int8_t table[16];
            for (int32_t four = 0; four < 16; four++) table[four] = in_steps(four, scale[g], step);
            look_up(row + g * GROUP / 2, table, values + n * K + g * GROUP);
        }
    }
    return 0;
}

/* 64 bytes of each of 8 rows, or zeros for one that is not there, as 16 times 8 groups of four: to out, `next` bytes from one
 * of the 16 to the next. */
static inline void turn(const uint8_t *const *rows, int32_t at, uint8_t *out, int64_t next) {
    uint32_t fours[8][16], turned[16][8];
    for (int r = 0; r < 8; r++)
        if (rows[r]) memcpy(fours[r], rows[r] + at, 64);
        else memset(fours[r], 0, 64);
    for (int j = 0; j < 16; j++)
        for (int r = 0; r < 8; r++) turned[j][r] = fours[r][j];
    for (int j = 0; j < 16; j++) memcpy(out + j * next, turned[j], 32);
}

/* Rows of whole numbers (., K bytes) as a matrix of products.h: of the rows that `source` names (blocks, size), or zeros
 * where it is negative, four bytes of each stand side by side: (blocks, filled / 4, size, 4). `sums` (blocks, size) or
 * none: what each row's int8 sum up to. Returns 0, or 1 where memory is lacking. */
int32_t OWN(lay_out)(int32_t blocks, int32_t size, int32_t K, int32_t filled, const int64_t *source, const uint8_t *rows,
                     uint8_t *out, int32_t *sums) {
    int32_t whole = (filled + 63) / 64 * 64;
    uint8_t *ends = calloc(8, (size_t)whole), *rest = malloc(16 * 32);
    for (int64_t b = 0; ends && rest && b < blocks; b++, source += size, out += (int64_t)filled * size)
        for (int32_t first = 0; first < size; first += 8) { /* lanes are 4 or more, so 8 divides the size */
            const uint8_t *row[8];
            for (int r = 0; r < 8; r++) {
                row[r] = source[first + r] < 0 ? NULL : rows + source[first + r] * K;
                int32_t sum = 0;
                for (int32_t k = 0; sums && row[r] && k < K; k++) sum += ((const int8_t *)row[r])[k];
                if (sums) sums[b * size + first + r] = sum;
                if (row[r] && whole > K) row[r] = memcpy(ends + (int64_t)r * whole, row[r], (size_t)K);
            }
            for (int32_t k = 0; k < filled; k += 64) {
                uint8_t *to = out + ((int64_t)k / 4 * size + first) * 4;
                if (k + 64 <= filled)
                    turn(row, k, to, 4 * size);
                else {
                    turn(row, k, rest, 32);
                    for (int32_t j = 0; j < (filled - k) / 4; j++) memcpy(to + (int64_t)j * 4 * size, rest + 32 * j, 32);
                }
            }
        }
    int32_t lacking = !ends || !rest;
    free(ends), free(rest);
    return lacking;
}

/* What each of A characters (A, E) gives to filters (n, E, width) at each place of a window: (pieces, A, width, 4, W), zero
 * behind the last filter. Added up in float64, which rounds to the same float32 in whatever order. Returns 0, or 1 where
 * memory is lacking. */
int32_t OWN(table)(int32_t A, int32_t E, int32_t n, int32_t width, const float *characters, const float *filters, float *table) {
    double *near = malloc(8 * (size_t)E * 4 * W);
    if (!near) return 1;
    for (int32_t first = 0; first < n; first += 4 * W, table += (int64_t)A * width * 4 * W)
        for (int32_t j = 0; j < width; j++) {
            for (int32_t e = 0; e < E; e++)
                for (int32_t l = 0; l < 4 * W; l++)
                    near[e * 4 * W + l] = first + l < n ? filters[((int64_t)(first + l) * E + e) * width + j] : 0;
            for (int32_t a = 0; a < A; a++) {
                double sum[4 * W] = {0};
                for (int32_t e = 0; e < E; e++)
                    for (int32_t l = 0; l < 4 * W; l++) sum[l] += characters[(int64_t)a * E + e] * near[e * 4 * W + l];
                for (int32_t l = 0; l < 4 * W; l++) table[((int64_t)a * width + j) * 4 * W + l] = (float)sum[l];
            }
        }
    free(near);
    return 0;
}

/* Rows of `size` bytes at these places of a table of V, one after another; zeros where a place is negative. Returns how many are,
 * or -1 where a place is not in the table. */
int32_t OWN(rows)(int32_t n, int64_t V, int64_t size, const uint8_t *table, const int64_t *places, uint8_t *out) {
    int32_t lost = 0;
    for (int32_t k = 0; k < n; k++, out += size)
        if (places[k] >= V)
            return -1;
        else if (places[k] < 0)
            memset(out, 0, (size_t)size), lost++;
        else
            memcpy(out, table + places[k] * size, (size_t)size);
    return lost;
}
