// What CuPy finds in place of a driver: it initialises with STUB_CODE and says STUB_VERSION.
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}
static int code(void) { return number("STUB_CODE", 0); }

int cuInit(unsigned flags) { return (void)flags, code(); }
int cuDriverGetVersion(int *version) { return *version = number("STUB_VERSION", 13000), 0; }
int cuDeviceGetCount(int *count) { return *count = 0, code(); }
int cuGetErrorString(int error, const char **text) { return (void)error, *text = "stub", 0; }
int cuGetErrorName(int error, const char **text) { return (void)error, *text = "STUB", 0; }
int cuGetExportTable(const void **table, const void *id) { return (void)id, *table = 0, code(); }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
                        int *status) {
    (void)version, (void)flags;
    if (status) *status = 0;
    if (!strcmp(name, "cuInit")) *function = (void *)cuInit;
    else if (!strcmp(name, "cuDriverGetVersion")) *function = (void *)cuDriverGetVersion;
    else if (!strcmp(name, "cuDeviceGetCount")) *function = (void *)cuDeviceGetCount;
    else if (!strcmp(name, "cuGetErrorString")) *function = (void *)cuGetErrorString;
    else if (!strcmp(name, "cuGetErrorName")) *function = (void *)cuGetErrorName;
    else if (!strcmp(name, "cuGetExportTable")) *function = (void *)cuGetExportTable;
    else if (!strncmp(name, "cuGetProcAddress", 16)) *function = (void *)cuGetProcAddress_v2;
    else *function = (void *)code;  // whatever is asked of it, it gives the code
    return 0;
}
