/* Products by tiles (AMX): 16 rows of 64 bytes against 16 outputs at a time.
 *
 * Whole numbers and bfloat16 lie in a block so that 64 bytes of a row meet 16 times four vectors: a tile of weights is
 * every fourth vector. Each row of a tile has sums of its own, in an order that rows beside it do not change; rows
 * behind the last one are multiplied as they lie there, and nobody reads what that gives.
 */
#pragma once

#define UNTILED 2 /* rows of int8 that vectors multiply as fast */
#define FARTHER 256 /* bytes of a row: weights that far ahead are fetched while long rows meet them for the first time */
#define FAR(size) ((size) > 1024)
#define NEXT_ROW (4 * 4 * W) /* bytes from one row of sums, and of one vector's weights, to the next */

typedef struct {
    uint8_t palette, start, none[14];
    uint16_t width[16]; /* bytes of a row */
    uint8_t rows[16];
} Shapes;

static const Shapes SHAPES __attribute__((aligned(64))) = {
    1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Before a thread's first product and behind its last. */
static inline void begin_products(void) { _tile_loadconfig(&SHAPES); }
static inline void end_products(void) { _tile_release(); }

/* 32 rows and 2 vectors of outputs, or 16 rows and 4, so that 4 tiles of sums are added up side by side. The compiler
 * does not know that tiles are read from memory: the barrier has what was written there before. */
#define MULTIPLY_TILES(name, START, ADD) \
    static void name(int32_t M, const uint8_t *a, const Matrix *matrix, int32_t block, int32_t *sums) { \
        const int64_t size = row_size(matrix), step = row_step(matrix); \
        const uint8_t *w = (const uint8_t *)matrix->values + block * size * 4 * W; \
        int far = FAR(size); \
        __asm__ volatile("" ::: "memory"); \
        for (; M > 16; M -= 32, a += 32 * step, sums += 32 * 4 * W) \
            for (int v = 0; v < 4; v += 2) { \
                START(0, v); START(1, v + 1); START(2, v); START(3, v + 1); \
                for (int64_t k = 0; k < size; k += 64) { \
                    if (far) for (int n = 0; n < 64; n++) __builtin_prefetch(w + (k + FARTHER) * 4 * W + n * 64, 0, 2); \
                    _tile_loadd(4, a + k, step); \
                    _tile_loadd(6, w + k * 4 * W + v * 64, NEXT_ROW); \
                    ADD(0, 4, 6); \
                    _tile_loadd(7, w + k * 4 * W + (v + 1) * 64, NEXT_ROW); \
                    ADD(1, 4, 7); \
                    _tile_loadd(5, a + 16 * step + k, step); \
                    ADD(2, 5, 6); \
                    ADD(3, 5, 7); \
                } \
                far = 0; \
                _tile_stored(0, sums + v * W, NEXT_ROW); \
                _tile_stored(1, sums + (v + 1) * W, NEXT_ROW); \
                _tile_stored(2, sums + (64 + v) * W, NEXT_ROW); \
                _tile_stored(3, sums + (64 + v + 1) * W, NEXT_ROW); \
            } \
        if (M <= 0) return; \
        START(0, 0); START(1, 1); START(2, 2); START(3, 3); \
        for (int64_t k = 0; k < size; k += 64) { \
            if (far) for (int n = 0; n < 64; n++) __builtin_prefetch(w + (k + FARTHER) * 4 * W + n * 64, 0, 2); \
            _tile_loadd(4, a + k, step); \
            _tile_loadd(5, w + k * 4 * W, NEXT_ROW); \
            ADD(0, 4, 5); \
            _tile_loadd(6, w + k * 4 * W + 64, NEXT_ROW); \
            ADD(1, 4, 6); \
            _tile_loadd(7, w + k * 4 * W + 128, NEXT_ROW); \
            ADD(2, 4, 7); \
            _tile_loadd(5, w + k * 4 * W + 192, NEXT_ROW); \
            ADD(3, 4, 5); \
        } \
        _tile_stored(0, sums, NEXT_ROW); \
        _tile_stored(1, sums + W, NEXT_ROW); \
        _tile_stored(2, sums + 2 * W, NEXT_ROW); \
        _tile_stored(3, sums + 3 * W, NEXT_ROW); \
    }

#define FROM_START(tile, v) _tile_loadd(tile, matrix->start + ((int64_t)block * 4 + (v)) * W, 0)
#define FROM_ZERO(tile, v) _tile_zero(tile)
MULTIPLY_TILES(multiply_int8_tiles, FROM_START, _tile_dpbusd)
MULTIPLY_TILES(multiply_bfloat16, FROM_ZERO, _tile_dpbf16ps)
