// fake_qemu PLUGIN WORD...: loads a plugin of QEMU's and executes the instructions that standard
// input lists, each a translation of its own: its virtual address, its bytes, and where it lies in
// memory (0: unknown), all hexadecimal.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct insn {
    uint64_t address, place;
    uint8_t code[16];
    size_t size;
    int callbacks, adds;
    void (*callback[4])(unsigned, void *);
    void *data[4];
    uint64_t *added[4], amount[4];
};
struct qemu_plugin_tb {
    struct insn only;
};
static void (*translated)(uint64_t, struct qemu_plugin_tb *);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                           void (*callback)(uint64_t, struct qemu_plugin_tb *))
{
    (void)id;
    translated = callback;
}
void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *insn, void (*callback)(unsigned, void *),
                                            int flags, void *data)
{
    (void)flags;
    insn->data[insn->callbacks] = data;
    insn->callback[insn->callbacks++] = callback;
}
void qemu_plugin_register_vcpu_insn_exec_inline(struct insn *insn, int op, void *word,
                                                uint64_t amount)
{
    (void)op;
    insn->amount[insn->adds] = amount;
    insn->added[insn->adds++] = word;
}
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block)
{
    return block != NULL;
}
struct insn *qemu_plugin_tb_get_insn(struct qemu_plugin_tb *block, size_t at)
{
    return at ? NULL : &block->only;
}
const void *qemu_plugin_insn_data(const struct insn *insn)
{
    return insn->code;
}
size_t qemu_plugin_insn_size(const struct insn *insn)
{
    return insn->size;
}
uint64_t qemu_plugin_insn_vaddr(const struct insn *insn)
{
    return insn->address;
}
void *qemu_plugin_insn_haddr(const struct insn *insn)
{
    return (void *)(uintptr_t)insn->place;
}

int main(int count, char **words)
{
    struct {
        const char *target;
        struct {
            int least, now;
        } version;
        bool is_system;
        struct {
            int cpus, most_cpus;
        } system;
    } machine = {"x86_64", {0, 1}, true, {1, 1}};
    void *plugin = dlopen(words[1], RTLD_NOW);
    if (!plugin)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*install)(uint64_t, const void *, int, char **) = dlsym(plugin, "qemu_plugin_install");
    if (install(1, &machine, count - 2, words + 2))
        return 3;
    char line[256], code[64];
    while (fgets(line, sizeof line, stdin)) {
        struct qemu_plugin_tb block = {0};
        struct insn *insn = &block.only;
        if (sscanf(line, "%lx %63s %lx", &insn->address, code, &insn->place) != 3)
            return 4;
        for (; code[2 * insn->size]; insn->size++)
            sscanf(code + 2 * insn->size, "%2hhx", &insn->code[insn->size]);
        translated(1, &block);
        for (int each = 0; each < insn->callbacks; each++)
            insn->callback[each](0, insn->data[each]);
        for (int each = 0; each < insn->adds; each++)
            *insn->added[each] += insn->amount[each];
    }
    return 0;
}
