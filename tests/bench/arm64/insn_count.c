/* Counts the instructions of an aarch64 program: a plugin of qemu's user-mode emulation.
 *
 *   gcc -O2 -shared -fPIC -o insn_count.so insn_count.c
 *   qemu-aarch64 -L /usr/aarch64-linux-gnu -plugin ./insn_count.so,out=FILE ./program
 *
 * When the program ends, FILE gets a line for each function (symbol of its ELF file): its name, then how many instructions of each
 * class it ran, in the order of `kind`, separated by tabs. Counts are exact: the same program on the same input gives the same figures
 * on any host.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of qemu's plugin interface (version 1, qemu 7.2) that this file uses. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
typedef void (*tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*udata_cb)(qemu_plugin_id_t, void *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_trans_cb);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, udata_cb, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int op, void *,
                                                       uint64_t imm);
enum { INLINE_ADD_U64 = 0 };
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum kind { VEC_FMA, VEC_DOT, VEC_OTHER, VEC_LOAD, VEC_STORE, LOAD, STORE, BRANCH, OTHER, KINDS };

struct fn {
  char name[256];
  uint64_t count[KINDS];
};
static struct fn *table[65536];
static size_t used;
static char out[4096];

static enum kind classify(uint32_t w) {
  uint32_t op0 = (w >> 25) & 15;
  if ((op0 & 14) == 10) return BRANCH;
  if ((op0 & 5) == 4) { /* loads and stores */
    bool vector = (w >> 26) & 1;
    bool load;
    if ((w & 0xbe000000) == 0x0c000000) /* ld1/st1 and friends */
      load = (w >> 22) & 1;
    else if ((w & 0x3a000000) == 0x28000000) /* pairs */
      load = (w >> 22) & 1;
    else if ((w & 0x3b000000) == 0x18000000) /* literal */
      load = true;
    else
      load = vector ? (w >> 22) & 1 : ((w >> 22) & 3) != 0;
    return vector ? (load ? VEC_LOAD : VEC_STORE) : (load ? LOAD : STORE);
  }
  if ((op0 & 7) == 7) { /* scalar float and advanced SIMD */
    if ((w & 0xbfa0fc00) == 0x0e20cc00 || (w & 0xbf80f400) == 0x0f801000 ||
        (w & 0xbfe0fc00) == 0x0e400c00 || (w & 0xbfc0f400) == 0x0f001000 ||
        (w & 0xbf20fc00) == 0x0e209400 || (w & 0x9f20fc00) == 0x0e208000)
      return VEC_FMA; /* fmla, fmls, fmla by element (also half precision), mla, smlal */
    if ((w & 0x9f20fc00) == 0x0e009400 || (w & 0x9f00f400) == 0x0f00e000 ||
        (w & 0xbfe0f400) == 0x0e80a400)
      return VEC_DOT; /* sdot, udot, by element, smmla */
    return VEC_OTHER;
  }
  return OTHER;
}

static struct fn *function(const char *name) {
  if (!name) name = "(no symbol)";
  uint32_t h = 2166136261u;
  for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
  for (uint32_t i = h & 65535;; i = (i + 1) & 65535) {
    if (!table[i]) {
      if (used > 60000) return table[h & 65535];
      table[i] = calloc(1, sizeof(struct fn));
      snprintf(table[i]->name, sizeof table[i]->name, "%s", name);
      used++;
      return table[i];
    }
    if (!strncmp(table[i]->name, name, sizeof table[i]->name - 1)) return table[i];
  }
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  for (size_t i = 0, n = qemu_plugin_tb_n_insns(tb); i < n; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    const char *symbol = qemu_plugin_insn_symbol(insn);
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(insn), 4);
    qemu_plugin_register_vcpu_insn_exec_inline(insn, INLINE_ADD_U64,
                                               &function(symbol)->count[classify(word)], 1);
  }
}

static void on_exit_(qemu_plugin_id_t id, void *unused) {
  (void)id, (void)unused;
  FILE *file = fopen(out, "w");
  if (!file) return;
  for (int i = 0; i < 65536; i++)
    if (table[i]) {
      fprintf(file, "%s", table[i]->name);
      for (int k = 0; k < KINDS; k++) fprintf(file, "\t%" PRIu64, table[i]->count[k]);
      fprintf(file, "\n");
    }
  fclose(file);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t *info, int argc,
                                                               char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++)
    if (!strncmp(argv[i], "out=", 4)) snprintf(out, sizeof out, "%s", argv[i] + 4);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
  qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
  return 0;
}
