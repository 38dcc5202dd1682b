/* A layer of the clipped LSTM, one direction and some rows of a batch: products and all that lies between them.
 *
 * The gates i, j, f, o of W cells are one block of a matrix, so that a block's sums finish those cells while they are
 * at hand. What is projected never exceeds 1 but is spiky, and a byte would lose most of it: in int8 it goes as two, the
 * second holding what the first left over.
 */
#include "products.h"

#define STEPS (MOST / 2)
#define FINE (MOST == 255 ? 8 : 7) /* bits that the second byte adds to the first */

typedef struct {
    const Matrix *input, *recurrent, *projection; /* no projection: the output is the cell's own */
    const float *bias;                            /* (blocks, 4, W) the forget bias included */
    int32_t inputs, cells, outputs;
    float cell_clip, output_clip;
} Layer;

typedef struct { /* input products that are ready, of rows that differ */
    int32_t most, count;
    uint8_t *bytes;   /* (most, row step) */
    float *largest;   /* (most) */
    float *sums;      /* (blocks, most, 4, W) */
    int32_t *places;  /* of a hash table, `mask` + 1 of them: which row, or -1 */
    uint32_t mask;
} Ready;

int32_t OWN(lanes)(void) { return W; }
int32_t OWN(most)(void) { return MOST; }
int32_t OWN(halves)(void) { return HALVES; }

/* What row `slot` gives to a block that comes soon is fetched into a nearer cache. */
static inline void fetch_row(const Ready *ready, int32_t block, int32_t slot, int32_t blocks) {
    if (block < 0 || block >= blocks) return;
    const float *input = ready->sums + ((int64_t)block * ready->most + slot) * 4 * W;
    for (int k = 0; k < 4 * W; k += 16) __builtin_prefetch(input + k, 0, 2);
}

/* Which of the ready rows x (inputs) is. Words are often met again, and what they give to the gates is the same. */
static int32_t add_row(const Layer *layer, const float *x, Ready *ready) {
    int64_t size = row_size(layer->input), step = row_step(layer->input);
    int32_t own = ready->count;
    uint8_t *bytes = ready->bytes + own * step;
    ready->largest[own] = take(layer->inputs, x, layer->input, bytes);
    uint32_t hash = 0;
    memcpy(&hash, ready->largest + own, 4);
    for (int64_t k = 0; k < size; k += 4) {
        uint32_t four;
        memcpy(&four, bytes + k, 4);
        hash = (hash ^ four) * 0x9e3779b1u;
        hash ^= hash >> 15;
    }
    for (uint32_t at = hash & ready->mask;; at = (at + 1) & ready->mask) {
        int32_t known = ready->places[at];
        if (known < 0) {
            ready->places[at] = own;
            return ready->count++;
        }
        if (ready->largest[known] == ready->largest[own] &&
            !memcmp(ready->bytes + known * step, bytes, (size_t)size))
            return known;
    }
}

/* The rows' bytes to what they give to the gates, bias included. */
static void feed(const Layer *layer, Ready *ready, int32_t *sums) {
    const Matrix *matrix = layer->input;
    for (int32_t first = 0; first < ready->count; first += CHUNK) {
        int32_t M = smaller(ready->count - first, CHUNK);
        for (int32_t b = 0; b < matrix->blocks; b++) {
            multiply(M, ready->bytes + first * row_step(matrix), matrix, b, b + 1, sums);
            for (int32_t m = 0; m < M; m++) {
                float *to = ready->sums + ((int64_t)b * ready->most + first + m) * 4 * W;
                fetch_ahead(matrix, b + 1, m, M);
                for (int32_t v = 0; v < 4; v++) {
                    int64_t place = (int64_t)(4 * b + v) * W;
                    floats sum = sum_at(matrix, sums + (4 * m + v) * W, place, ready->largest[first + m]);
                    put(to + v * W, sum + get(layer->bias + place));
                }
            }
        }
    }
}

/* The cells' output as two bytes: the nearest, and what that leaves over, 2^FINE times as large. */
static inline void put_pair(floats value, uint8_t *near_bytes, uint8_t *rest_bytes) {
    whole q = nearest(value * (float)(STEPS << FINE)), near = (q + (1 << (FINE - 1))) >> FINE;
    whole rest = q - (near << FINE) + (STEPS + 1);
    near += STEPS + 1;
    for (int l = 0; l < W; l++) near_bytes[l] = (uint8_t)near[l];
    for (int l = 0; l < W; l++) rest_bytes[l] = (uint8_t)rest[l];
}

/* What the cells show, as the projection takes it: a pair of bytes, an int16, a bfloat16 or a float. */
static inline void show(const Matrix *matrix, floats value, int32_t m, int32_t place, uint8_t *shown) {
    int64_t step = row_step(matrix);
    uint8_t *at = shown + m * step + place * item_size(matrix);
    if (matrix->kind == INT8)
        put_pair(value, at + m * step, at + (m + 1) * step);
    else if (matrix->kind == INT16) {
        whole near = nearest(value * (float)matrix->steps);
        for (int l = 0; l < W; l++) ((int16_t *)at)[l] = (int16_t)near[l];
    } else if (matrix->kind == BFLOAT16)
        put_halves(value, (uint16_t *)at);
    else
        put((float *)at, value);
}

/* What the cells showed, (M, inputs) or pairs (M, 2, inputs), to the layer's output (M, P). */
static void project(const Layer *layer, int32_t M, const uint8_t *shown, int32_t *sums, float *out) {
    const Matrix *matrix = layer->projection;
    int32_t P = layer->outputs, each = matrix->kind == INT8 ? 2 : 1;
    for (int32_t b = 0; b < matrix->blocks; b++) {
        multiply(each * M, shown, matrix, b, b + 1, sums);
        size_t size = 4 * (size_t)smaller(P - b * 4 * W, 4 * W);
        for (int32_t m = 0; m < M; m++) {
            float made[4 * W];
            for (int v = 0; v < 4; v++) {
                const int32_t *near = sums + (each * 4 * m + v) * W, *rest = near + 4 * W;
                int64_t place = (int64_t)(4 * b + v) * W;
                floats sum = each == 1 ? sum_at(matrix, near, place, 1.0f)
                                       : (from(rest) * (1.0f / (1 << FINE)) + from(near)) * get(matrix->scale + place);
                put(made + v * W, within(sum, layer->output_clip));
            }
            memcpy(out + (int64_t)m * P + b * 4 * W, made, size);
        }
    }
}

/* A step of M <= CHUNK rows: `slots` (M) of the ready inputs, the state before (M, P) or none where it is 0, cells
 * (blocks, M of B, W) in place, the output (M, P). `bytes` and `shown` are room for what is multiplied. Every second step
 * goes through the blocks from the last to the first, so that those used last are still in the nearer cache. */
static void step(const Layer *layer, int32_t M, int32_t B, int32_t back, const Ready *ready, const int32_t *slots,
                 const float *before, float *cells, uint8_t *bytes, uint8_t *shown, int32_t *sums, float *out) {
    const Matrix *recurrent = layer->recurrent;
    int32_t P = layer->outputs, H = layer->cells, blocks = recurrent->blocks;
    int64_t size = row_step(recurrent);
    float largest[CHUNK];
    for (int32_t m = 0; before && m < M; m++)
        largest[m] = take(P, before + (int64_t)m * P, recurrent, bytes + m * size);
    for (int32_t k = 0; k < blocks; k++) {
        int32_t b = back ? blocks - 1 - k : k, next_block = back ? b - 1 : b + 1;
        if (before) multiply(M, bytes, recurrent, b, next_block, sums);
        for (int32_t m = 0; m < M; m++) {
            const float *input = ready->sums + ((int64_t)b * ready->most + slots[m]) * 4 * W;
            float *cell = cells + ((int64_t)b * B + m) * W;
            if (before) fetch_ahead(recurrent, next_block, m, M);
            fetch_row(ready, next_block, slots[m], blocks);
            floats gate[4];
            for (int v = 0; v < 4; v++) {
                gate[v] = get(input + v * W);
                if (before)
                    gate[v] = sum_at(recurrent, sums + (4 * m + v) * W, (int64_t)(4 * b + v) * W, largest[m]) + gate[v];
            }
            floats next = sigmoid(gate[2]) * get(cell) + gated_tanh(gate[0], gate[1]);
            next = within(next, layer->cell_clip);
            put(cell, next);
            floats value = gated_tanh(gate[3], next);
            if (layer->projection) {
                show(layer->projection, value, m, b * W, shown);
            } else {
                float made[W];
                put(made, value);
                memcpy(out + (int64_t)m * H + b * W, made, 4 * (size_t)smaller(H - b * W, W));
            }
        }
    }
    if (layer->projection) project(layer, M, shown, sums, out);
}

/* Rows `first` to `end` of a batch over T steps: x (N, D) packed; `h` (B, P) and `c` (B, H) become each row's last
 * state; out (N, P). `keep` (N) or none: 0 starts a row anew before that step. `stretch` is the number of different
 * inputs that are multiplied ahead. Returns 0, or 1 where memory is lacking. */
int32_t OWN(lstm)(const Layer *layer, int32_t T, const int32_t *steps, int32_t first, int32_t end, int32_t stretch,
                  const float *x, const float *keep, float *h, float *c, float *out) {
    int32_t P = layer->outputs, H = layer->cells, B = end - first, most = B > stretch ? B : stretch, ahead = 8 * most;
    int64_t width = (int64_t)layer->recurrent->blocks * W, rows = CHUNK; /* of what is shown, two to a row for int8 */
    if (layer->projection && layer->projection->kind == INT8) rows *= 2;
    uint32_t places = 1;
    while (places < 2 * (uint32_t)most + 2) places *= 2;
    Ready ready = {.most = most, .mask = places - 1};
    ready.bytes = room((size_t)((most + 16) * row_step(layer->input))); /* more: what may prove known; whole tiles */
    ready.largest = room(4 * (size_t)(most + 1));
    ready.sums = room(16 * (size_t)most * (size_t)width);
    ready.places = room(4 * (size_t)places);
    int32_t *slots = room(4 * (size_t)ahead), *sums = room(4 * 2 * CHUNK * 4 * W);
    uint8_t *bytes = room((size_t)(CHUNK * row_step(layer->recurrent)));
    uint8_t *shown = empty_room(layer->projection ? (size_t)(rows * row_step(layer->projection)) : 0);
    float *cells = empty_room(4 * (size_t)B * (size_t)width), *state = room(4 * (size_t)B * (size_t)P);
    int32_t lacking = !ready.bytes || !ready.largest || !ready.sums || !ready.places || !slots || !sums || !bytes ||
                      !shown || !cells || !state;
    if (!lacking) {
        int32_t zero = 1;
        begin_products();
        memcpy(state, h + (int64_t)first * P, 4 * (size_t)B * (size_t)P);
        for (int64_t k = 0; k < (int64_t)B * P; k++) zero &= state[k] == 0;
        for (int32_t r = 0; r < B; r++)
            for (int32_t k = 0; k < H; k += W)
                memcpy(cells + (int64_t)k * B + r * W, c + (int64_t)(first + r) * H + k, 4 * (size_t)smaller(H - k, W));
        int64_t at = 0;                        /* where step t begins */
        int32_t known = 0, used = 0, held = 0; /* steps whose inputs are ready; their rows, taken and all */
        for (int32_t t = 0; t < T && steps[t] > first; at += steps[t], t++) {
            int32_t M = smaller(steps[t], end) - first;
            if (t == known) {
                int64_t there = at;
                memset(ready.places, 0xff, 4 * (size_t)places);
                ready.count = used = held = 0;
                for (; known < T && steps[known] > first; there += steps[known], known++) {
                    int32_t n = smaller(steps[known], end) - first;
                    if (held && (ready.count + n > most || held + n > ahead)) break;
                    for (int32_t m = 0; m < n; m++)
                        slots[held++] = add_row(layer, x + (there + first + m) * layer->inputs, &ready);
                }
                feed(layer, &ready, sums);
            }
            for (int32_t m = 0; keep && m < M; m++)
                if (keep[at + first + m] == 0) {
                    memset(state + (int64_t)m * P, 0, 4 * (size_t)P);
                    for (int64_t k = 0; k < width; k += W) memset(cells + k * B + m * W, 0, 4 * W);
                }
            for (int32_t m = 0; m < M; m += CHUNK) {
                float *now = out + (at + first + m) * P, *before = state + (int64_t)m * P;
                int32_t n = smaller(M - m, CHUNK);
                step(layer, n, B, t & 1, &ready, slots + used + m, zero ? NULL : before, cells + (int64_t)m * W, bytes, shown,
                     sums, now);
                memcpy(before, now, 4 * (size_t)n * (size_t)P);
            }
            used += M;
            zero = 0;
        }
        end_products();
        memcpy(h + (int64_t)first * P, state, 4 * (size_t)B * (size_t)P);
        for (int32_t r = 0; r < B; r++)
            for (int32_t k = 0; k < H; k += W)
                memcpy(c + (int64_t)(first + r) * H + k, cells + (int64_t)k * B + r * W, 4 * (size_t)smaller(H - k, W));
    }
    void *owned[] = {ready.bytes, ready.largest, ready.sums, ready.places, slots, sums, bytes, shown, cells, state};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) give_back(owned[k]);
    return lacking;
}
