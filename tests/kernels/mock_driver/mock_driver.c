/* A stand-in for libcuda.so.1: as much of the driver API as cuda.core needs to see devices, load a cubin and launch.
 *
 * It judges a launch as the driver does (a current context, the stream's device, sizes of the grid, shared memory within the
 * limit that was set) and hands what it accepted to a callback of the test. It computes nothing itself. A call of whatever
 * of the driver API is not written here fails aloud (MOCK_DRIVER_TRACE=1 lists what was looked up in vain).
 * Functions that begin with `mock_` are the test's side.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
};
/* Numbers of cuda.h. */
enum {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    ATTRIBUTE_WARP_SIZE = 10,
    ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    FUNCTION_MAX_THREADS_PER_BLOCK = 0,
    FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
enum { MAX_DEVICES = 4, MAX_STREAMS = 64, MAX_FAULTS = 16, DEFAULT_SHARED_LIMIT = 48 * 1024, MAX_GRID_Y = 65535, MAX_THREADS = 1024 };

/* ---- State ------------------------------------------------------------------------------------------------------------- */

typedef struct { int device; } Context;
typedef struct { int device; int capturing; } Stream;
typedef struct { unsigned char *code; size_t size; } Library;
typedef struct { char name[160]; Library *library; int shared_limit[MAX_DEVICES], on_device[MAX_DEVICES]; } Kernel;
typedef struct { char function[64]; Result result; int times; } Fault;

/* What the test sees of a launch; `arguments` points to the value of each parameter, as it does for the driver. */
typedef struct {
    const char *kernel;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    int shared_limit;
    uint64_t stream;
    int device;
    void **arguments;
    const void *code;
    uint64_t code_bytes;
} Launch;

static int device_count = 1, compute_capability[MAX_DEVICES] = {90, 90, 90, 90};
static Context contexts[MAX_DEVICES] = {{0}, {1}, {2}, {3}};
static __thread Context *current;
static Stream streams[MAX_STREAMS];
static int stream_count;
static Fault faults[MAX_FAULTS];
static int fault_count;
static long calls_of_initialize, calls_of_load, calls_of_set_attribute, calls_of_launch;
static void (*on_launch)(const Launch *);

static Result injected(const char *function) {
    for (int i = 0; i < fault_count; i++)
        if (faults[i].times && !strcmp(faults[i].function, function)) {
            faults[i].times--;
            return faults[i].result;
        }
    return SUCCESS;
}
#define MAY_FAIL do { Result fault = injected(__func__); if (fault) return fault; } while (0)

/* ---- The test's side --------------------------------------------------------------------------------------------------- */

void mock_set_devices(int count) { device_count = count; }
void mock_set_compute_capability(int device, int sm) { compute_capability[device] = sm; }
void mock_set_on_launch(void (*callback)(const Launch *)) { on_launch = callback; }
/* Back to no faults, no context, no callback; devices and what was loaded or created stay. */
void mock_reset(void) {
    fault_count = 0;
    current = NULL;
    on_launch = NULL;
    calls_of_initialize = calls_of_load = calls_of_set_attribute = calls_of_launch = 0;
    for (int i = 0; i < stream_count; i++) streams[i].capturing = 0;
}
/* The next `times` calls of a function return `result`. */
void mock_inject(const char *function, Result result, int times) {
    if (fault_count == MAX_FAULTS) return;
    Fault *fault = &faults[fault_count++];
    snprintf(fault->function, sizeof fault->function, "%s", function);
    fault->result = result;
    fault->times = times;
}
uint64_t mock_create_stream(int device) {
    if (stream_count == MAX_STREAMS) return 0;
    streams[stream_count].device = device;
    return (uint64_t)(uintptr_t)&streams[stream_count++];
}
void mock_set_capturing(uint64_t stream, int capturing) { ((Stream *)(uintptr_t)stream)->capturing = capturing; }
long mock_calls(const char *function) {
    if (!strcmp(function, "cuInit")) return calls_of_initialize;
    if (!strcmp(function, "cuLibraryLoadData")) return calls_of_load;
    if (!strcmp(function, "cuKernelSetAttribute")) return calls_of_set_attribute;
    if (!strcmp(function, "cuLaunchKernelEx")) return calls_of_launch;
    return -1;
}

/* ---- Devices and contexts ---------------------------------------------------------------------------------------------- */

/* Shared memory that one block may ask for, of the CUDA programming guide's table of compute capabilities. */
static int shared_optin(int device) {
    switch (compute_capability[device]) {
        case 75: return 64 * 1024;
        case 80: case 87: return 163 * 1024;
        case 86: case 89: case 120: return 99 * 1024;
        default: return 227 * 1024;
    }
}

static int valid(int device) { return device >= 0 && device < device_count; }

Result cuInit(unsigned flags) {
    (void)flags;
    calls_of_initialize++;
    MAY_FAIL;
    return device_count ? SUCCESS : NO_DEVICE;
}
Result cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
Result cuDeviceGetCount(int *count) { MAY_FAIL; *count = device_count; return SUCCESS; }
Result cuDeviceGet(int *device, int ordinal) {
    MAY_FAIL;
    if (!valid(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
Result cuDeviceGetName(char *name, int length, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    snprintf(name, length, "mock device %d", device);
    return SUCCESS;
}
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    switch (attribute) {
        case ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; return SUCCESS;
        case ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = DEFAULT_SHARED_LIMIT; return SUCCESS;
        case ATTRIBUTE_WARP_SIZE: *value = 32; return SUCCESS;
        case ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return SUCCESS;
        case ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = compute_capability[device] / 10; return SUCCESS;
        case ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = compute_capability[device] % 10; return SUCCESS;
        case ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = shared_optin(device); return SUCCESS;
    }
    fprintf(stderr, "mock driver: device attribute %d is not written here\n", attribute);
    return INVALID_VALUE;
}
Result cuDevicePrimaryCtxRetain(Context **context, int device) {
    MAY_FAIL;
    if (!valid(device)) return INVALID_DEVICE;
    *context = &contexts[device];
    return SUCCESS;
}
Result cuDevicePrimaryCtxRelease_v2(int device) { return valid(device) ? SUCCESS : INVALID_DEVICE; }
Result cuCtxGetCurrent(Context **context) { *context = current; return SUCCESS; }
Result cuCtxSetCurrent(Context *context) { current = context; return SUCCESS; }
Result cuCtxGetDevice(int *device) {
    if (!current) return INVALID_CONTEXT;
    *device = current->device;
    return SUCCESS;
}

/* ---- Streams ----------------------------------------------------------------------------------------------------------- */

/* The stream of a handle, or NULL: 0, 1 and 2 are the default streams, which belong to the current context. */
static Stream *created(uint64_t handle) {
    for (int i = 0; i < stream_count; i++)
        if ((uint64_t)(uintptr_t)&streams[i] == handle) return &streams[i];
    return NULL;
}
Result cuStreamIsCapturing(uint64_t stream, int *status) {
    MAY_FAIL;
    if (stream > 2 && !created(stream)) return INVALID_HANDLE;
    *status = stream > 2 && created(stream)->capturing;
    return SUCCESS;
}

/* ---- Libraries and kernels --------------------------------------------------------------------------------------------- */

/* The architecture of a cubin, 90 for sm_90a: the low byte of the ELF header's flags before ABI version 8, the next byte since. */
static int architecture(const unsigned char *code) {
    uint32_t flags;
    memcpy(&flags, code + 48, sizeof flags);
    return code[8] >= 8 ? (flags >> 8) & 0xff : flags & 0xff;
}
/* The size of a cubin: its section headers stand last or its program headers do. */
static size_t image_size(const unsigned char *code) {
    uint64_t program, sections;
    uint16_t program_entry, programs, section_entry, section_count;
    memcpy(&program, code + 32, 8);
    memcpy(&sections, code + 40, 8);
    memcpy(&program_entry, code + 54, 2);
    memcpy(&programs, code + 56, 2);
    memcpy(&section_entry, code + 58, 2);
    memcpy(&section_count, code + 60, 2);
    uint64_t one = program + (uint64_t)program_entry * programs, other = sections + (uint64_t)section_entry * section_count;
    return one > other ? one : other;
}
static int runs_on(const unsigned char *code, int device) { return architecture(code) == compute_capability[device]; }

/* Needs no context. A cubin that no device here runs is refused; one of exact architecture ("sm_90a") runs on no other. */
Result cuLibraryLoadData(Library **library, const void *code, void *jit, void *jit_values, unsigned jit_count, void *options,
                         void *option_values, unsigned option_count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)option_values, (void)option_count;
    calls_of_load++;
    MAY_FAIL;
    if (memcmp(code, "\177ELF", 4)) return INVALID_IMAGE;
    int devices = 0;
    for (int device = 0; device < device_count; device++) devices += runs_on(code, device);
    if (!devices) return NO_BINARY_FOR_GPU;
    Library *made = malloc(sizeof *made);
    made->size = image_size(code);
    made->code = malloc(made->size);
    memcpy(made->code, code, made->size);
    *library = made;
    return SUCCESS;
}
Result cuLibraryUnload(Library *library) { (void)library; return SUCCESS; }
Result cuLibraryGetKernel(Kernel **kernel, Library *library, const char *name) {
    MAY_FAIL;
    char section[192];
    int length = snprintf(section, sizeof section, ".text.%s", name);
    if (!memmem(library->code, library->size, section, length + 1)) return NOT_FOUND;
    Kernel *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->library = library;
    for (int device = 0; device < MAX_DEVICES; device++) made->shared_limit[device] = DEFAULT_SHARED_LIMIT;
    *kernel = made;
    return SUCCESS;
}
Result cuKernelGetLibrary(Library **library, Kernel *kernel) { *library = kernel->library; return SUCCESS; }
Result cuKernelGetFunction(Kernel **function, Kernel *kernel) {
    MAY_FAIL;
    if (!current) return INVALID_CONTEXT;
    *function = kernel;
    return SUCCESS;
}
/* Code comes to the device at its first launch, as the driver loads lazily, or when it is asked to. */
Result cuFuncLoad(Kernel *function) {
    MAY_FAIL;
    if (!current) return INVALID_CONTEXT;
    function->on_device[current->device] = 1;
    return SUCCESS;
}
Result cuKernelGetAttribute(int *value, int attribute, Kernel *kernel, int device) {
    if (!valid(device)) return INVALID_DEVICE;
    switch (attribute) {
        case FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = kernel->shared_limit[device]; return SUCCESS;
        case FUNCTION_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; return SUCCESS;
        default: *value = 0; return SUCCESS;
    }
}
Result cuKernelSetAttribute(int attribute, int value, Kernel *kernel, int device) {
    calls_of_set_attribute++;
    MAY_FAIL;
    if (!valid(device)) return INVALID_DEVICE;
    if (!runs_on(kernel->library->code, device)) return NO_BINARY_FOR_GPU;
    if (attribute != FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > shared_optin(device)) return INVALID_VALUE;
    kernel->shared_limit[device] = value;
    return SUCCESS;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    uint64_t stream;
    void *attributes;
    unsigned attribute_count;
} LaunchConfiguration; /* CUlaunchConfig of cuda.h */

Result cuLaunchKernelEx(const LaunchConfiguration *configuration, Kernel *kernel, void **arguments, void **extra) {
    calls_of_launch++;
    MAY_FAIL;
    if (!current) return INVALID_CONTEXT;
    if (extra || configuration->attribute_count) return INVALID_VALUE;
    int device = current->device;
    if (!runs_on(kernel->library->code, device)) return NO_BINARY_FOR_GPU;
    if (configuration->stream > 2) {
        Stream *stream = created(configuration->stream);
        if (!stream) return INVALID_HANDLE;
        if (stream->device != device) return INVALID_HANDLE;
        if (stream->capturing && !kernel->on_device[device]) return STREAM_CAPTURE_UNSUPPORTED;
    }
    kernel->on_device[device] = 1;
    const unsigned *grid = configuration->grid, *block = configuration->block;
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > MAX_GRID_Y || grid[2] > MAX_GRID_Y) return INVALID_VALUE;
    if (!block[0] || !block[1] || !block[2] || (uint64_t)block[0] * block[1] * block[2] > MAX_THREADS) return INVALID_VALUE;
    if (configuration->shared_bytes > (unsigned)kernel->shared_limit[device]) return INVALID_VALUE;
    if (on_launch) {
        Launch launch = {.kernel = kernel->name, .shared_bytes = configuration->shared_bytes, .shared_limit = kernel->shared_limit[device],
                         .stream = configuration->stream, .device = device, .arguments = arguments,
                         .code = kernel->library->code, .code_bytes = kernel->library->size};
        memcpy(launch.grid, grid, sizeof launch.grid);
        memcpy(launch.block, block, sizeof launch.block);
        on_launch(&launch);
    }
    return SUCCESS;
}

/* ---- Errors and the table of functions --------------------------------------------------------------------------------- */

static const struct { Result result; const char *name; } NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"}, {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
};
Result cuGetErrorName(Result result, const char **name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].result == result) {
            *name = NAMES[i].name;
            return SUCCESS;
        }
    *name = NULL;
    return INVALID_VALUE;
}
Result cuGetErrorString(Result result, const char **text) { return cuGetErrorName(result, text); }

/* NVRTC looks for it in the driver, and calls what it found without a question: there are no such tables here. */
Result cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

static Result not_written(void) {
    fprintf(stderr, "mock driver: a function that is not written here was called; MOCK_DRIVER_TRACE=1 lists them\n");
    return NOT_SUPPORTED;
}

/* Where the bindings get every function from: by its name, or its name with the suffix of a later version. */
Result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    static void *self;
    if (!self) {
        Dl_info information;
        dladdr((void *)cuInit, &information);
        self = dlopen(information.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    char versioned[160];
    snprintf(versioned, sizeof versioned, "%s_v2", symbol);
    *function = dlsym(self, symbol);
    if (!*function) *function = dlsym(self, versioned);
    if (!*function && getenv("MOCK_DRIVER_TRACE")) fprintf(stderr, "mock driver: %s is not written here\n", symbol);
    if (!*function) *function = (void *)not_written;
    if (status) *status = 0;
    return SUCCESS;
}
Result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
