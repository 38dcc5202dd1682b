/* What is computed of weights once, when a model is loaded. */
#include "products.h"

#define GROUP 64

static inline int32_t in_steps(int32_t four, float scale, float step) {
    int32_t whole = rounded((float)(four - 8) * scale / step);
    return whole > 127 ? 127 : whole < -127 ? -127 : whole;
}

/* Four bits with a scale for each group of 64 to int8 with one for each row, to the bit as `numbers.groups_as_int8` has
 * it: packed rows (N, K / 2) with scales (N, K / 64) to values (N, K) and their scales (N). K is a multiple of 64. */
int32_t OWN(groups)(int32_t N, int32_t K, const uint8_t *packed, const float *scales, int8_t *values, float *steps) {
    for (int64_t n = 0; n < N; n++) {
        const uint8_t *row = packed + n * (K / 2);
        const float *scale = scales + n * (K / GROUP);
        uint16_t *pairs = (uint16_t *)(void *)(values + n * K);
        float largest = 0;
        for (int32_t g = 0; g < K / GROUP; g++) {
            int32_t far = 0; /* the group's number that is farthest from 0 */
            for (int32_t k = 0; k < GROUP / 2; k++) {
                int32_t low = abs((row[g * GROUP / 2 + k] & 15) - 8), high = abs((row[g * GROUP / 2 + k] >> 4) - 8);
                low = low > high ? low : high;
                far = far > low ? far : low;
            }
            float size = __builtin_fabsf((float)far * scale[g]);
            largest = size > largest ? size : largest;
        }
        float step = largest > 0 ? largest / 127.0f : 1.0f;
        steps[n] = step;
        for (int32_t g = 0; g < K / GROUP; g++)
            for (int32_t k = 0; k < GROUP / 2; k++) {
                int32_t two = row[g * GROUP / 2 + k];
                int32_t low = in_steps(two & 15, scale[g], step), high = in_steps(two >> 4, scale[g], step);
                pairs[g * GROUP / 2 + k] = (uint16_t)((low & 255) | (high & 255) << 8);
            }
    }
    return 0;
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
