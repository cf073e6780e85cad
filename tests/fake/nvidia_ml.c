/* A stand-in for libnvidia-ml.so.1 with two GPUs, of which the second has no ECC and no MIG. What
 * is declared here is NVML's public interface (nvml.h), as far as it is called. Its numbers are
 * those that the tests expect. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

#define GIB (1024ull * 1024 * 1024)

static int gpus[2];

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
  snprintf(text, length, "580.65.06");
  return OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
  if (index > 1) {
    return INVALID;
  }
  *device = &gpus[index];
  return OK;
}

static unsigned number(const int *device) { return (unsigned)(device - gpus); }

int nvmlDeviceGetUUID(int *device, char *text, unsigned length) {
  snprintf(text, length, "GPU-0000000%u-1111-2222-3333-444444444444", number(device));
  return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, int **device) {
  for (unsigned index = 0; index < 2; ++index) {
    char own[96];
    nvmlDeviceGetUUID(&gpus[index], own, sizeof own);
    if (strcmp(own, uuid) == 0) {
      *device = &gpus[index];
      return OK;
    }
  }
  return NOT_FOUND;
}

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(int *device, struct pci *pci) {
  memset(pci, 0, sizeof *pci);
  snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", 7 + number(device));
  pci->bus = 7 + number(device);
  snprintf(pci->bus_id, sizeof pci->bus_id, "0000%s", pci->legacy);
  return OK;
}

int nvmlDeviceGetName(int *device, char *text, unsigned length) {
  snprintf(text, length, "NVIDIA A100-SXM4-40GB");
  return OK;
}

struct memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(int *device, struct memory *memory) {
  memory->total = 40 * GIB;
  memory->reserved = GIB;
  memory->used = 12 * GIB;
  memory->free = 27 * GIB;
  return OK;
}

int nvmlDeviceGetUtilizationRates(int *device, unsigned rates[2]) {
  rates[0] = 93;
  rates[1] = 40;
  return OK;
}

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

/* A stranger's process, and the caller's own. */
int nvmlDeviceGetComputeRunningProcesses_v3(int *device, unsigned *count, struct process *all) {
  if (all == NULL || *count < 2) {
    *count = 2;
    return TOO_SMALL;
  }
  *count = 2;
  all[0] = (struct process){1, GIB, ~0u, ~0u};
  all[1] = (struct process){(unsigned)getpid(), 11 * GIB, ~0u, ~0u};
  return OK;
}

int nvmlDeviceGetEccMode(int *device, unsigned *current, unsigned *pending) {
  *current = *pending = 1;
  return number(device) == 0 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(int *device, unsigned *current, unsigned *pending) {
  *current = *pending = 0;
  return number(device) == 0 ? OK : NOT_SUPPORTED;
}
