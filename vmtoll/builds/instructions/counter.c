// counter.so, a plugin of QEMU 7.2: counts the instructions of an emulated AMD host and of its KVM
// guest.
//     -plugin counter.so,out=FILE,client=BEGIN-END[,profile=PREFIX]
// An instruction belongs to a level (the host, or the guest inside of it) and a kind (kernel: the
// upper half of the addresses; client: user code between BEGIN and END, both hexadecimal; user: the
// rest). The client marks where a window begins and ends; FILE gets all totals at each mark. With a
// profile, PREFIX.N gets those of window N, from 0, by level and 16 bytes of code.
//
// FILE is struct shared, 64-bit words; vmtoll/counting/windows.py reads it, also while the machine
// runs.
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// What this file uses of QEMU's plugin API, version 1. Debian packages no qemu-plugin.h for this
// release.
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus, max_vcpus;
    } system;
} machine_info;
enum { NO_REGISTERS, ADD = 0 };
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *),
                                            int, void *);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int qemu_plugin_version = 1;

enum { HOST, GUEST, LEVELS };
enum { KERNEL, USER, CLIENT, KINDS };
enum { BEGIN = 8, END = 9 }; // marks: the first byte of the displacement of the client's nopl
#define MOST_RECORDS 4096

struct totals {
    uint64_t instructions[LEVELS][KINDS];
    uint64_t repeats[LEVELS]; // iterations of REP instructions after the first, which
                              // `instructions` leaves out
    uint64_t entries;         // VMRUN: how often the host entered the guest
};
static struct shared {
    uint64_t magic, records;
    uint64_t executed[KINDS]; // whatever the level; the translated code itself adds to these
    struct record {
        uint64_t mark;
        struct totals totals;
    } record[MOST_RECORDS];
} * shared;

static struct totals totals;
static uint64_t booked[KINDS]; // how much of `executed` is in `totals`
static int level = HOST;
static uint64_t client_begin, client_end;

// Book what ran since the last change of level.
static void book(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        totals.instructions[level][kind] += shared->executed[kind] - booked[kind];
        booked[kind] = shared->executed[kind];
    }
}

static void on_entry(unsigned cpu, void *unused)
{
    (void)cpu, (void)unused;
    book();
    totals.entries++;
    level = GUEST;
}

static void on_exit_of_guest(unsigned cpu, void *unused)
{
    (void)cpu, (void)unused;
    if (level == HOST)
        return;
    book();
    level = HOST;
}

// The profile: a hash table with open addressing. A full one stops the machine.
#define SLOTS (1u << 21)
struct slot {
    uint64_t key, count, at_begin;
};
static struct slot *slots;
static const char *profile;

static uint64_t *slot_of(uint64_t address, int of_level)
{
    static uint32_t used;
    uint64_t key = (address >> 4 << 1 | (uint64_t)of_level) + 1;
    uint32_t at = (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 43);
    while (slots[at].key && slots[at].key != key)
        at = (at + 1) % SLOTS;
    if (!slots[at].key && ++used == SLOTS) {
        fputs("counter: the profile is full\n", stderr);
        abort();
    }
    slots[at].key = key;
    return &slots[at].count;
}

static void profile_mark(uint64_t mark)
{
    char path[4096];
    if (mark == BEGIN) {
        for (uint32_t at = 0; at < SLOTS; at++)
            slots[at].at_begin = slots[at].count;
        return;
    }
    snprintf(path, sizeof path, "%s.%" PRIu64, profile, shared->records / 2 - 1);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    for (const struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (slot->count == slot->at_begin)
            continue;
        fprintf(file, "%" PRIu64 " %" PRIx64 " %" PRIu64 "\n", (slot->key - 1) & 1,
                (slot->key - 1) >> 1 << 4, slot->count - slot->at_begin);
    }
    fclose(file);
}

static void on_mark(unsigned cpu, void *mark)
{
    (void)cpu;
    book();
    if (shared->records == MOST_RECORDS)
        return;
    shared->record[shared->records] = (struct record){(uint64_t)mark, totals};
    __atomic_store_n(&shared->records, shared->records + 1, __ATOMIC_RELEASE);
    if (profile)
        profile_mark((uint64_t)mark);
}

// QEMU runs each iteration of a REP instruction as an instruction. It counts once, as on a CPU; an
// iteration is one of the same address before which nothing else ran.
struct repeated {
    uint64_t address;
    int kind;
    uint64_t *slot;
};

static void on_repeated(unsigned cpu, void *data)
{
    static uint64_t last_address, last_executed;
    struct repeated *instruction = data;
    uint64_t executed =
        shared->executed[KERNEL] + shared->executed[USER] + shared->executed[CLIENT];
    (void)cpu;
    if (last_address == instruction->address && last_executed == executed) {
        totals.repeats[level]++;
        return;
    }
    shared->executed[instruction->kind]++;
    if (instruction->slot)
        ++*instruction->slot;
    last_address = instruction->address;
    last_executed = executed + 1;
}

static bool is_repeated(const uint8_t *code, size_t size)
{
    bool rep = false;
    size_t at = 0;
    for (; at < size && memchr("\xf2\xf3\x66\x67\x2e\x36\x3e\x26\x64\x65", code[at], 10); at++)
        rep |= code[at] == 0xf2 || code[at] == 0xf3;
    if (at < size && (code[at] & 0xf0) == 0x40)
        at++; // REX
    if (!rep || at == size)
        return false;
    uint8_t op = code[at]; // movs, cmps; stos, lods, scas; ins, outs
    return (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf) || (op >= 0x6c && op <= 0x6f);
}

// VMRUN is followed by what the host runs after the guest's exit. It is known by where it lies in
// QEMU's memory: a virtual address could be the guest's as well.
static const char *after_entry[64];
static int entries_known;

static bool is_after_entry(const void *place)
{
    for (int each = 0; each < entries_known; each++)
        if (place && after_entry[each] == place)
            return true;
    return false;
}

static void know_entry(const char *place, size_t size)
{
    if (!place || is_after_entry(place + size))
        return;
    if (entries_known == sizeof after_entry / sizeof *after_entry) {
        fputs("counter: too many VMRUN instructions\n", stderr);
        abort();
    }
    after_entry[entries_known++] = place + size;
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *block)
{
    size_t length = qemu_plugin_tb_n_insns(block);
    int of_level =
        level; // blocks of host and guest differ in QEMU's flags, so a block belongs to one level
    (void)id;
    for (size_t each = 0; each < length; each++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, each);
        const uint8_t *code = qemu_plugin_insn_data(instruction);
        size_t size = qemu_plugin_insn_size(instruction);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        int kind = address >> 63                                     ? KERNEL
                   : address >= client_begin && address < client_end ? CLIENT
                                                                     : USER;
        void *place = qemu_plugin_insn_haddr(instruction);
        if (is_after_entry(place)) {
            of_level = HOST;
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_exit_of_guest, NO_REGISTERS,
                                                   NULL);
        }
        if (size == 3 && !memcmp(code, "\x0f\x01\xd8", 3)) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_entry, NO_REGISTERS, NULL);
            know_entry(place, size);
        }
        if (kind == CLIENT && size == 7 && !memcmp(code, "\x0f\x1f\x80", 3) &&
            !memcmp(code + 4, "tkm", 3))
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, NO_REGISTERS,
                                                   (void *)(uintptr_t)code[3]);
        uint64_t *slot = profile ? slot_of(address, of_level) : NULL;
        if (is_repeated(code, size)) {
            struct repeated *data =
                malloc(sizeof *data); // lives as long as the translated code: to the end
            if (!data)
                abort();
            *data = (struct repeated){address, kind, slot};
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_repeated, NO_REGISTERS, data);
            continue;
        }
        if (slot)
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, slot, 1);
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, &shared->executed[kind], 1);
    }
}

EXPORTED int qemu_plugin_install(plugin_id id, const machine_info *info, int count, char **words)
{
    const char *out = NULL;
    for (int each = 0; each < count; each++) {
        if (!strncmp(words[each], "out=", 4))
            out = words[each] + 4;
        if (!strncmp(words[each], "profile=", 8))
            profile = strdup(words[each] + 8);
        sscanf(words[each], "client=%" SCNx64 "-%" SCNx64, &client_begin, &client_end);
    }
    if (!out || !client_end || info->system.smp_vcpus != 1) {
        fputs("counter: needs out=, client= and a machine with one CPU\n", stderr);
        return -1;
    }
    int file = open(out, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, sizeof *shared))
        return -1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED || (profile && !(slots = calloc(SLOTS, sizeof *slots))))
        return -1;
    memcpy(&shared->magic, "vmtollc1", 8);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
