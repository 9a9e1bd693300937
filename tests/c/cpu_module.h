/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the CPU device: make a module from CUDA C++ text (written as
 * pyrevoff._cpu_source would leave it), and a device to run it on.
 */
#ifndef T_CPU_MODULE_H
#define T_CPU_MODULE_H

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../csrc/host/driver.h"
#include "t.h"

#define D	   (revoff_cpu_driver())
#define t_ok(call) t_check((call) == CUDA_SUCCESS)

static inline uint64_t t_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Bytes of the shared object; skips the test if there is no compiler. */
static inline void *t_cpu_compile(const char *source)
{
	const char *compiler = getenv("CXX"), *flags = getenv("T_CPU_FLAGS");
	char folder[] = "/tmp/revoff-test-XXXXXX", here[] = __FILE__;
	char path[128], command[2048];
	char *slash = strrchr(here, '/');
	void *image;
	long size;
	FILE *f;

	if (slash)
		*slash = '\0';
	if (!compiler || !*compiler)
		compiler = "c++";
	snprintf(command, sizeof(command), "%s --version >/dev/null 2>&1",
		 compiler);
	if (system(command)) {
		fprintf(stderr, "no C++ compiler\n");
		exit(T_SKIP);
	}
	t_check(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/k.cu", folder);
	f = fopen(path, "w");
	t_check(f && fputs(source, f) >= 0 && !fclose(f));
	snprintf(command, sizeof(command),
		 "%s -std=c++17 -O2 -g1 -fPIC -shared -fno-strict-aliasing "
		 "-Wl,-Bsymbolic %s -I%s/../../csrc/include "
		 "-include revoff/cpu.h -x c++ %s -o %s/k.so",
		 compiler, flags ? flags : "", slash ? here : ".", path,
		 folder);
	t_check(!system(command));
	unlink(path);
	snprintf(path, sizeof(path), "%s/k.so", folder);
	f = fopen(path, "rb");
	t_check(f && !fseek(f, 0, SEEK_END));
	size = ftell(f);
	rewind(f);
	image = malloc((size_t)size);
	t_check(image && fread(image, 1, (size_t)size, f) == (size_t)size);
	fclose(f);
	unlink(path);
	rmdir(folder);
	return image;
}

/* The first device's context, current in this thread. */
static inline CUcontext t_cpu_open(void)
{
	CUcontext context;

	t_ok(D->cuInit(0));
	t_ok(D->cuDevicePrimaryCtxRetain(&context, 0));
	t_ok(D->cuCtxPushCurrent(context));
	return context;
}

static inline void t_cpu_close(void)
{
	CUcontext context;

	t_ok(D->cuCtxPopCurrent(&context));
	t_ok(D->cuDevicePrimaryCtxRelease(0));
}

static inline CUmodule t_cpu_load(const char *source)
{
	void *image = t_cpu_compile(source);
	CUmodule module = NULL;
	char log[512] = "";
	int options[2] = { CU_JIT_ERROR_LOG_BUFFER,
			   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[2] = { log, (void *)sizeof(log) };

	if (D->cuModuleLoadDataEx(&module, image, 2, options, values)) {
		fprintf(stderr, "not loaded: %s\n", log);
		exit(T_FAIL);
	}
	free(image);
	return module;
}

static inline CUfunction t_cpu_kernel(CUmodule module, const char *name)
{
	CUfunction function;

	t_ok(D->cuModuleGetFunction(&function, module, name));
	return function;
}

static inline void *t_cpu_pinned(size_t size)
{
	void *p;

	t_ok(D->cuMemHostAlloc(&p, size, 0));
	memset(p, 0, size);
	return p;
}

/* Launch on the NULL stream; the result of the launch, or of the wait. */
static inline int t_cpu_run(CUfunction function, unsigned grid, unsigned block,
			    void **params)
{
	int result = D->cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0,
				       NULL, params, NULL);

	return result ? result : D->cuStreamSynchronize(NULL);
}

#endif /* T_CPU_MODULE_H */
