/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that opens libcuda; nothing of ours links to it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum {
	OPTIONAL,
	MANDATORY
};

static const struct {
	const char *name, *symbol;
	int need;
	size_t at;
} entries[] = {
#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	{ #name, #symbol, need, offsetof(struct revoff_driver, name) },
#include "driver.def"
#undef REVOFF_DRIVER
};
#define NENTRIES (sizeof(entries) / sizeof(entries[0]))

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static struct revoff_driver cuda;
static int cuda_loaded;
static int child; /* this process was forked after first use */
static int watched;

static void in_child(void)
{
	child = 1;
}

/*
 * Driver, threads and locks do not survive a fork.  Only a fork after first
 * use matters, so the watch begins there.
 */
int forked(void)
{
	return child;
}

static void watch_forks(void)
{
	if (!watched)
		watched = !pthread_atfork(NULL, NULL, in_child);
}

REVOFF_API const char *revoff_driver_entry(unsigned index)
{
	return index < NENTRIES ? entries[index].name : NULL;
}

REVOFF_API int revoff_driver_entry_mandatory(unsigned index)
{
	return index < NENTRIES && entries[index].need == MANDATORY;
}

static int load_cuda(void)
{
	const char *path = getenv("PYREVOFF_LIBCUDA");
	struct revoff_driver table;
	void *library;
	CUresult result;
	unsigned i;

	if (cuda_loaded)
		return 0;
	if (!path || !*path)
		path = "libcuda.so.1";
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return fail(REVOFF_ENODRIVER,
			    "no CUDA driver: %s. Install the NVIDIA driver, or "
			    "use the CPU device (PYREVOFF_DEVICE=cpu)",
			    dlerror());
	for (i = 0; i < NENTRIES; ++i) {
		void *f = dlsym(library, entries[i].symbol);

		if (!f && entries[i].need == MANDATORY) {
			fail(REVOFF_ENODRIVER,
			     "the CUDA driver %s lacks %s: it is too old", path,
			     entries[i].symbol);
			dlclose(library);
			return REVOFF_ENODRIVER;
		}
		memcpy((char *)&table + entries[i].at, &f, sizeof(f));
	}
	result = table.cuInit(0);
	if (result) {
		int code = fail_driver(&table, result, "cuInit",
				       "the CUDA driver does not start");
		error_slot()->code = result == CUDA_ERROR_NO_DEVICE
					     ? REVOFF_ENODEVICE
					     : REVOFF_ENODRIVER;
		dlclose(library);
		return code ? error_slot()->code : 0;
	}
	cuda = table;
	cuda_loaded = 1;
	return 0;
}

int platform_driver(int platform, const struct revoff_driver **drv)
{
	int rc = 0;

	if (child)
		return fail(REVOFF_EFORKED,
			    "pyrevoff was in use before this process was "
			    "forked: start the process with the \"spawn\" "
			    "method instead");
	if (platform != REVOFF_PLATFORM_CUDA && platform != REVOFF_PLATFORM_CPU)
		return fail(REVOFF_EINVAL, "no platform %d", platform);
	pthread_mutex_lock(&once);
	watch_forks();
	if (platform == REVOFF_PLATFORM_CPU) {
		*drv = revoff_cpu_driver();
	} else {
		rc = load_cuda();
		*drv = &cuda;
	}
	if (!rc) {
		*drv = fault_wrap(platform, *drv);
		if (!*drv)
			rc = REVOFF_ENODRIVER;
	}
	pthread_mutex_unlock(&once);
	return rc;
}
