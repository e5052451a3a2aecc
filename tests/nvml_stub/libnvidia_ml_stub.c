/* A libnvidia-ml.so.1 for tests: the functions this project calls, with NVML's own structs, versions and codes.
 *
 * Compiled by the tests, loaded by the real pynvml. What it answers is set through the stub_* functions. A handle is a
 * number with the generation of the nvmlInit that gave it out, so that one kept over a shutdown is found out.
 * -DOLD_DRIVER leaves out what came after driver 470: memory v2 and process lists v2 and v3. -DNO_MIG leaves MIG out.
 * -DNO_INIT leaves out the initialisation itself. -DWITH_CARD has a card from the start, for programs that set nothing;
 * that card is lost while the file that NVML_STUB_LOST names exists.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES 8
#define SLICES 8
#define PROCESSES 64
#define FAULTS 32

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, STRUCT_VERSION = 25 };

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_v2;
typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    char uuid[96], name[96];
    u64 total, used, free, reserved;
    process_v2 processes[PROCESSES];
    unsigned process_count, slice_count, mig, minor;
} device_state;

static device_state devices[DEVICES * (SLICES + 1)]; /* a GPU, then its slices */
static unsigned device_count = 1, references = 0, generation = 0, inits = 0, calls = 0;
static struct { char function[64]; unsigned device; int code; unsigned after; } faults[FAULTS];
static unsigned fault_count = 0;

#define ANY_DEVICE 0xffffffffu

/* -- what the tests set -------------------------------------------------------------------------------------------- */

void stub_devices(unsigned count) { device_count = count; }
unsigned stub_references(void) { return references; }
unsigned stub_inits(void) { return inits; }
unsigned stub_calls(void) { return calls; }

void stub_identity(unsigned slot, const char *uuid, const char *name, unsigned minor) {
    snprintf(devices[slot].uuid, sizeof devices[slot].uuid, "%s", uuid);
    snprintf(devices[slot].name, sizeof devices[slot].name, "%s", name);
    devices[slot].minor = minor;
}

void stub_memory(unsigned slot, u64 total, u64 used, u64 free, u64 reserved) {
    devices[slot].total = total; devices[slot].used = used; devices[slot].free = free; devices[slot].reserved = reserved;
}

void stub_mig(unsigned slot, unsigned enabled, unsigned slices) { devices[slot].mig = enabled; devices[slot].slice_count = slices; }

void stub_process(unsigned slot, unsigned pid, u64 used) {
    process_v2 *process = &devices[slot].processes[devices[slot].process_count++];
    process->pid = pid; process->used = used; process->gpu_instance = process->compute_instance = 0xffffffffu;
}

void stub_forget_processes(unsigned slot) { devices[slot].process_count = 0; }

/* From its (after + 1)-th call on, the function answers code for that slot (or any); code 0 takes the fault away. */
void stub_fault(const char *function, unsigned slot, int code, unsigned after) {
    unsigned at = 0;
    while (at < fault_count && (strcmp(faults[at].function, function) || faults[at].device != slot)) at++;
    if (at == fault_count) { if (fault_count == FAULTS) return; fault_count++; }
    snprintf(faults[at].function, sizeof faults[at].function, "%s", function);
    faults[at].device = slot; faults[at].code = code; faults[at].after = after;
}

/* -- NVML ---------------------------------------------------------------------------------------------------------- */

static int fault(const char *function, unsigned slot) {
    calls++;
#ifdef WITH_CARD
    const char *lost = getenv("NVML_STUB_LOST");
    if (lost && !access(lost, F_OK)) return 15;
#endif
    for (unsigned at = 0; at < fault_count; at++) {
        if (strcmp(faults[at].function, function)) continue;
        if (faults[at].device != ANY_DEVICE && faults[at].device != slot) continue;
        if (faults[at].after) { faults[at].after--; continue; }
        return faults[at].code;
    }
    return SUCCESS;
}

static void *handle_of(unsigned slot) { return (void *)(((uintptr_t)generation << 16) | (slot + 1)); }

static int slot_of(void *handle, const char *function, unsigned *slot) {
    uintptr_t value = (uintptr_t)handle;
    if (!references || value >> 16 != generation) return UNINITIALIZED;
    if (!(value & 0xffff)) return INVALID;
    *slot = (unsigned)(value & 0xffff) - 1;
    return fault(function, *slot);
}

#define ENTER(handle) unsigned slot; int code = slot_of(handle, __func__, &slot); if (code) return code
#define ENTER_LIBRARY() int code = references ? fault(__func__, ANY_DEVICE) : UNINITIALIZED; if (code) return code

#ifndef NO_INIT
int nvmlInitWithFlags(unsigned flags) {
    int code = fault(__func__, ANY_DEVICE);
    (void)flags;
    if (code) return code;
    if (!references++) generation++;
    inits++;
#ifdef WITH_CARD
    stub_identity(0, "GPU-00000000", "NVIDIA Stub", 0);
    stub_memory(0, 80ull << 30, 70ull << 30, 9ull << 30, 1ull << 30);
#endif
    return SUCCESS;
}
#endif

int nvmlShutdown(void) {
    if (!references) return UNINITIALIZED;
    references--;
    return fault(__func__, ANY_DEVICE);
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ENTER_LIBRARY(); snprintf(text, size, "580.65.06"); return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER_LIBRARY(); *count = device_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    ENTER_LIBRARY();
    if (index >= device_count) return INVALID;
    if ((code = fault("handle", index))) return code;
    *handle = handle_of(index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    ENTER(handle); snprintf(text, size, "%s", devices[slot].uuid); return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    ENTER(handle); snprintf(text, size, "%s", devices[slot].name); return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) { ENTER(handle); *minor = devices[slot].minor; return SUCCESS; }

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info) {
    ENTER(handle);
    memset(info, 0, sizeof *info);
    info->bus = slot + 1;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", slot + 1);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    ENTER(handle);
    memory->total = devices[slot].total;
    memory->free = devices[slot].free;
    memory->used = devices[slot].used + devices[slot].reserved; /* version 1 counts the reserved part as used */
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    ENTER(handle);
    if (memory->version != (sizeof *memory | (2u << 24))) return STRUCT_VERSION;
    memory->total = devices[slot].total; memory->reserved = devices[slot].reserved;
    memory->free = devices[slot].free; memory->used = devices[slot].used;
    return SUCCESS;
}

static int list(unsigned slot, unsigned *count, process_v2 *processes) {
    unsigned room = *count;
    *count = devices[slot].process_count;
    if (room < *count) return INSUFFICIENT_SIZE;
    if (*count) memcpy(processes, devices[slot].processes, *count * sizeof *processes);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_v2 *processes) {
    ENTER(handle); return list(slot, count, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, process_v2 *processes) {
    ENTER(handle); return list(slot, count, processes);
}
#endif

#ifndef NO_MIG
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ENTER(handle); *current = *pending = devices[slot].mig; return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { ENTER(handle); *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice) {
    ENTER(handle);
    if (index >= devices[slot].slice_count) return NOT_FOUND;
    *slice = handle_of(DEVICES + slot * SLICES + index);
    return SUCCESS;
}
#endif
