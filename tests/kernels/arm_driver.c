/* Runs one call of the recurrence, the token encoder or the checksum on numbers from a file, for a CPU that is only emulated here.
 * Linked with the sources of one variant; test_c_arm.py writes the file, and reads what this writes. */
#include <stdio.h>

#include "lstm.c"
#undef STEPS
#define project project_tokens
#include "tokens.c"
#undef project
#include "checksums.c"

static FILE *from_file;

static void *read_bytes(int64_t size) {
    void *made = malloc((size_t)size + 1);
    if (!made || fread(made, 1, (size_t)size, from_file) != (size_t)size) exit(3);
    return made;
}
static int32_t number(void) {
    int32_t *read = read_bytes(4), value = *read;
    free(read);
    return value;
}
/* An array: its bytes, behind their count; none where that is negative. */
static void *array(void) {
    int32_t size = number();
    return size < 0 ? NULL : read_bytes(size);
}
static Matrix *matrix(void) {
    if (!number()) return NULL;
    Matrix *made = malloc(sizeof *made);
    int32_t *fields[] = {&made->kind, &made->inputs, &made->blocks, &made->steps, &made->shift, &made->outputs, &made->gates};
    for (int k = 0; k < 7; k++) *fields[k] = number();
    made->values = array(), made->start = array(), made->scale = array(), made->zeros = array();
    return made;
}
static void write_floats(FILE *to, const float *numbers, int64_t count) { fwrite(numbers, 4, (size_t)count, to); }

static int32_t run_lstm(FILE *to) {
    Layer layer;
    layer.input = matrix(), layer.recurrent = matrix(), layer.projection = matrix();
    layer.bias = array();
    layer.inputs = number(), layer.cells = number(), layer.outputs = number();
    float *clips = array();
    layer.cell_clip = clips[0], layer.output_clip = clips[1];
    int32_t T = number(), N = number(), B = number(), rows = number(), stretch = number(); /* in this order */
    int32_t *steps = array();
    float *x = array(), *keep = array(), *h = array(), *c = array(), *out = calloc((size_t)N * (size_t)layer.outputs + 1, 4);
    int32_t lacking = OWN(lstm)(&layer, T, steps, 0, rows, stretch, x, keep, h, c, out);
    write_floats(to, out, (int64_t)N * layer.outputs);
    write_floats(to, h, (int64_t)B * layer.outputs);
    write_floats(to, c, (int64_t)B * layer.cells);
    return lacking;
}

static int32_t run_tokens(FILE *to) {
    Encoder encoder;
    encoder.characters = number(), encoder.pad = number(), encoder.filters = number(), encoder.outputs = number();
    encoder.n_banks = number(), encoder.n_highways = number(), encoder.bends = number(), encoder.word_dim = number();
    Bank *banks = calloc((size_t)encoder.n_banks + 1, sizeof *banks);
    for (int k = 0; k < encoder.n_banks; k++) {
        banks[k].width = number(), banks[k].filters = number(), banks[k].pieces = number();
        banks[k].table = array(), banks[k].bias = array();
    }
    Highway *highways = calloc((size_t)encoder.n_highways + 1, sizeof *highways);
    for (int k = 0; k < encoder.n_highways; k++) {
        highways[k].transform = matrix(), highways[k].gate = matrix();
        highways[k].transform_bias = array(), highways[k].gate_bias = array();
    }
    encoder.banks = banks, encoder.highways = highways;
    encoder.projection = matrix(), encoder.projection_bias = array();
    int32_t U = number(), C = number();
    int32_t *chars = array();
    float *words = array(), *out = calloc((size_t)U * (size_t)encoder.outputs + 1, 4);
    int32_t lacking = OWN(tokens)(&encoder, U, C, chars, words, out);
    write_floats(to, out, (int64_t)U * encoder.outputs);
    return lacking;
}

static int32_t run_checksum(FILE *to) {
    int32_t size = number();
    uint32_t sum = (uint32_t)number();
    int32_t added = OWN(crc32)(read_bytes(size), size, &sum);
    fwrite(&sum, 4, 1, to), fwrite(&added, 4, 1, to);
    return 0;
}

int main(int count, char **given) {
    if (count == 1) return printf("%d %d\n", OWN(lanes)(), OWN(most)()) < 0;
    from_file = fopen(given[1], "rb");
    FILE *to = fopen(given[2], "wb");
    if (!from_file || !to) return 2;
    int32_t (*const calls[])(FILE *) = {run_lstm, run_tokens, run_checksum};
    int32_t lacking = calls[number()](to);
    return fclose(to) || lacking;
}
