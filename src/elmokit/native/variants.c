/* Which of the library's variants run on this CPU. Compiled for any CPU of its kind: it runs before the choice.
 *
 * The compiler is told WITH_name for every variant that is in the library, and SOURCES, a digest of what it is made of.
 */
#include <stdint.h>

#ifdef _WIN32
#define SHOWN __declspec(dllexport)
#else
#define SHOWN
#endif

#if defined(__x86_64__)
#include <cpuid.h>

/* Whether the system saves these parts of the registers (bits of XCR0) when it changes between programs. */
static int saved(uint32_t parts) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & parts) == parts;
}

/* Whether a leaf of CPUID has all these bits in its register 0 to 3 (a, b, c, d). */
static int has(uint32_t leaf, uint32_t part, int in, uint32_t bits) {
    uint32_t told[4] = {0};
    if (!__get_cpuid_count(leaf, part, told, told + 1, told + 2, told + 3)) return 0;
    return (told[in] & bits) == bits;
}

static int avx2(void) { /* with FMA, BMI, BMI2 and PCLMUL */
    return saved(0x6) && has(1, 0, 2, 1u << 1 | 1u << 12 | 1u << 28) && has(7, 0, 1, 1u << 3 | 1u << 5 | 1u << 8);
}
static int avxvnni(void) { return avx2() && has(7, 1, 0, 1u << 4); }
static int avx512(void) { /* F, DQ, BW, VL */
    return avx2() && saved(0xe6) && has(7, 0, 1, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);
}
static int avx512vnni(void) { return avx512() && has(7, 0, 2, 1u << 11); }
static int avx512bf16(void) { return avx512vnni() && has(7, 1, 0, 1u << 5); }

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
/* Tiles are 8 KB of registers for each thread; Linux saves them for a process that asked, and may refuse. */
static int tiles_allowed(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return saved(3u << 17) && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}
#else
static int tiles_allowed(void) { return 0; }
#endif
static int amx(void) { /* BF16, TILE, INT8 */
    return avx512bf16() && has(7, 0, 3, 1u << 22 | 1u << 24 | 1u << 25) && tiles_allowed();
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
static int dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; }
static int i8mm(void) { return dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); }
#elif defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>
static int told(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return !sysctlbyname(name, &value, &size, NULL, 0) && value;
}
static int dotprod(void) { return told("hw.optional.arm.FEAT_DotProd"); }
static int i8mm(void) { return dotprod() && told("hw.optional.arm.FEAT_I8MM"); }
#else
static int dotprod(void) { return 0; }
static int i8mm(void) { return 0; }
#endif
static int neon(void) { return 1; } /* all of these CPUs have it */
#endif

/* In order of choice. */
static const struct {
    const char *name;
    int (*runs)(void);
} VARIANTS[] = {
#ifdef WITH_amx
    {"amx", amx},
#endif
#ifdef WITH_avx512vnni
    {"avx512vnni", avx512vnni},
#endif
#ifdef WITH_avx512bf16
    {"avx512bf16", avx512bf16}, /* its products of bfloat16 are a third as fast as those of int16 (Xeon, model 207) */
#endif
#ifdef WITH_avxvnni
    {"avxvnni", avxvnni},
#endif
#ifdef WITH_avx512
    {"avx512", avx512},
#endif
#ifdef WITH_avx2
    {"avx2", avx2},
#endif
#ifdef WITH_i8mm
    {"i8mm", i8mm},
#endif
#ifdef WITH_dotprod
    {"dotprod", dotprod},
#endif
#ifdef WITH_neon
    {"neon", neon},
#endif
};

#define COUNT ((int32_t)(sizeof VARIANTS / sizeof *VARIANTS))

/* The digest of the sources. */
SHOWN const char *elmokit_sources(void) { return SOURCES; }

/* The name of variant k, the best first; none behind the last. */
SHOWN const char *elmokit_variant(int32_t k) { return k >= 0 && k < COUNT ? VARIANTS[k].name : 0; }

/* Whether variant k runs on this CPU. */
SHOWN int32_t elmokit_runs(int32_t k) { return k >= 0 && k < COUNT && VARIANTS[k].runs(); }
