/* The token encoder: characters of words to one vector each, by convolutions, highways and a projection; or a vector of a
 * word itself, or both side by side.
 *
 * A convolution sums what each character of a window gives at its place, and a character gives the same wherever it
 * stands: that is looked up, not multiplied. Nothing behind a ReLU is negative, so bytes need no sign there.
 */
#include "products.h"

typedef struct {
    int32_t width, filters, pieces; /* pieces of 4 * W filters, the last of them filled up */
    const float *table;             /* (pieces, characters, width, 4, W) what a character gives at a place */
    const float *bias;              /* (pieces, 4, W) */
} Bank;

typedef struct {
    const Matrix *transform, *gate;
    const float *transform_bias, *gate_bias; /* (blocks, 4, W) each */
} Highway;

typedef struct {
    int32_t characters, pad; /* how many there are, and which one fills words up; -1: none does */
    int32_t filters, outputs;
    int32_t n_banks, n_highways;
    int32_t bends;    /* what follows the convolutions: 0 ReLU, 1 tanh */
    int32_t word_dim; /* numbers of a word's own vector, which stand before the filters; 0: none */
    const Bank *banks;
    const Highway *highways;
    const Matrix *projection; /* none: what there is goes out as it is */
    const float *projection_bias;
} Encoder;

/* One bank's filters over M words (M, C), whose lengths are known, into columns of x (M, filters). */
static void convolve(const Encoder *encoder, const Bank *bank, int32_t M, int32_t C, const int32_t *chars,
                     const int32_t *lengths, float *x) {
    int32_t width = bank->width;
    for (int32_t piece = 0; piece < bank->pieces; piece++) {
        const float *table = bank->table + (int64_t)piece * encoder->characters * width * 4 * W;
        size_t size = 4 * (size_t)smaller(bank->filters - piece * 4 * W, 4 * W);
        for (int32_t m = 0; m < M; m++) {
            const int32_t *word = chars + (int64_t)m * C;
            int32_t windows = smaller(C, lengths[m] + width) - width + 1; /* behind the word one stands for the rest */
            floats best[4] = {all(-__builtin_inff()), all(-__builtin_inff()), all(-__builtin_inff()), all(-__builtin_inff())};
            for (int32_t p = 0; p < windows; p++) {
                floats sum[4] = {all(0), all(0), all(0), all(0)};
                for (int32_t j = 0; j < width; j++) {
                    const float *row = table + ((int64_t)word[p + j] * width + j) * 4 * W;
                    for (int v = 0; v < 4; v++) sum[v] = sum[v] + get(row + v * W);
                }
                for (int v = 0; v < 4; v++) best[v] = larger(best[v], sum[v]);
            }
            float made[4 * W];
            for (int v = 0; v < 4; v++) {
                floats sum = best[v] + get(bank->bias + (piece * 4 + v) * W);
                put(made + v * W, encoder->bends ? tanh_of(sum) : larger(sum, all(0)));
            }
            memcpy(x + (int64_t)m * encoder->filters + piece * 4 * W, made, size);
        }
    }
}

static void take_rows(int32_t M, int32_t K, const float *x, const Matrix *matrix, uint8_t *bytes, float *largest) {
    for (int32_t m = 0; m < M; m++)
        largest[m] = take(K, x + (int64_t)m * K, matrix, bytes + m * row_step(matrix));
}

/* g * relu(transform x) + (1 - g) * x, g = sigmoid(gate x): x (M, F), in place. */
static void pass(const Highway *highway, int32_t M, int32_t F, uint8_t *bytes, int32_t *sums, float *x) {
    float largest[CHUNK];
    int32_t *gates = sums + CHUNK * 4 * W;
    take_rows(M, F, x, highway->transform, bytes, largest);
    for (int32_t b = 0; b < highway->transform->blocks; b++) {
        int64_t block = (int64_t)b * 4 * W;
        multiply(M, bytes, highway->transform, b, b + 1, sums);
        multiply(M, bytes, highway->gate, b, b + 1, gates);
        size_t size = 4 * (size_t)smaller(F - b * 4 * W, 4 * W);
        for (int32_t m = 0; m < M; m++) {
            float row[4 * W] = {0};
            memcpy(row, x + (int64_t)m * F + block, size);
            for (int v = 0; v < 4; v++) {
                int64_t place = block + v * W;
                floats t = sum_at(highway->transform, sums + (4 * m + v) * W, place, largest[m]);
                floats g = sum_at(highway->gate, gates + (4 * m + v) * W, place, largest[m]);
                t = larger(t + get(highway->transform_bias + place), all(0));
                g = sigmoid(g + get(highway->gate_bias + place));
                put(row + v * W, g * t + (1.0f - g) * get(row + v * W));
            }
            memcpy(x + (int64_t)m * F + block, row, size);
        }
    }
}

/* x (M, K) times the projection, plus its bias: out (M, P). */
static void project(const Encoder *encoder, int32_t M, int32_t K, const float *x, uint8_t *bytes, int32_t *sums, float *out) {
    const Matrix *matrix = encoder->projection;
    float largest[CHUNK];
    int32_t P = encoder->outputs;
    take_rows(M, K, x, matrix, bytes, largest);
    for (int32_t b = 0; b < matrix->blocks; b++) {
        multiply(M, bytes, matrix, b, b + 1, sums);
        size_t size = 4 * (size_t)smaller(P - b * 4 * W, 4 * W);
        for (int32_t m = 0; m < M; m++) {
            float made[4 * W];
            for (int v = 0; v < 4; v++) {
                int64_t place = (int64_t)(4 * b + v) * W;
                floats sum = sum_at(matrix, sums + (4 * m + v) * W, place, largest[m]);
                put(made + v * W, sum + get(encoder->projection_bias + place));
            }
            memcpy(out + (int64_t)m * P + b * 4 * W, made, size);
        }
    }
}

static int32_t length_of(const int32_t *word, int32_t C, int32_t pad) {
    while (pad >= 0 && C > 0 && word[C - 1] == pad) C--;
    return C;
}

/* Words (U, C) and, if there are such, vectors of their own (U, word_dim) to vectors (U, outputs). Returns 0, or 1 where
 * memory is lacking. */
int32_t OWN(tokens)(const Encoder *encoder, int32_t U, int32_t C, const int32_t *chars, const float *words, float *out) {
    int32_t F = encoder->filters, D = encoder->word_dim, K = D + F;
    size_t inputs = (size_t)K + 4 * W; /* of a matrix, filled up */
    float *x = room(CHUNK * 4 * (size_t)F), *joined = room(CHUNK * 4 * (size_t)K);
    uint8_t *bytes = room(CHUNK * (4 * inputs + 64)); /* more: from one row to the next */
    int32_t *sums = room(4 * 2 * CHUNK * 4 * W), lacking = !x || !joined || !bytes || !sums;
    begin_products();
    for (int32_t first = 0; !lacking && first < U; first += CHUNK) {
        int32_t M = smaller(U - first, CHUNK), lengths[CHUNK];
        const int32_t *spelt = chars + (int64_t)first * C;
        float *column = x, *features = D ? joined : x, *made = out + (int64_t)first * encoder->outputs;
        for (int32_t m = 0; m < M; m++) lengths[m] = length_of(spelt + (int64_t)m * C, C, encoder->pad);
        for (int32_t k = 0; k < encoder->n_banks; column += encoder->banks[k++].filters)
            convolve(encoder, encoder->banks + k, M, C, spelt, lengths, column);
        for (int32_t k = 0; k < encoder->n_highways; k++) pass(encoder->highways + k, M, F, bytes, sums, x);
        for (int32_t m = 0; D && m < M; m++) {
            memcpy(joined + (int64_t)m * K, words + (int64_t)(first + m) * D, 4 * (size_t)D);
            memcpy(joined + (int64_t)m * K + D, x + (int64_t)m * F, 4 * (size_t)F);
        }
        if (encoder->projection)
            project(encoder, M, K, features, bytes, sums, made);
        else
            memcpy(made, features, 4 * (size_t)M * (size_t)K);
    }
    end_products();
    give_back(x), give_back(joined), give_back(bytes), give_back(sums);
    return lacking;
}
