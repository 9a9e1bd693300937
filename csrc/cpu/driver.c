/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device as the host library sees it, and the names of its errors. */
#include "cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct revoff_driver table = {
#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	.name = cpu_##name,
#include "../host/driver.def"
#undef REVOFF_DRIVER
};

const struct revoff_driver *revoff_cpu_driver(void)
{
	return &table;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
#define E(name, text) { CUDA_##name, "CUDA_" #name, text }
	E(SUCCESS, "no error"),
	E(ERROR_INVALID_VALUE, "invalid argument"),
	E(ERROR_OUT_OF_MEMORY, "out of memory"),
	E(ERROR_NOT_INITIALIZED, "initialization error"),
	E(ERROR_DEINITIALIZED, "driver shutting down"),
	E(ERROR_NO_DEVICE, "no device is detected"),
	E(ERROR_INVALID_DEVICE, "invalid device ordinal"),
	E(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
	E(ERROR_INVALID_CONTEXT, "invalid device context"),
	E(ERROR_NO_BINARY_FOR_GPU,
	  "no kernel image is available for execution on the device"),
	E(ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
	E(ERROR_UNSUPPORTED_PTX_VERSION,
	  "the provided PTX was compiled with an unsupported toolchain"),
	E(ERROR_INVALID_SOURCE, "device kernel image is invalid"),
	E(ERROR_INVALID_HANDLE, "invalid resource handle"),
	E(ERROR_NOT_FOUND, "named symbol not found"),
	E(ERROR_NOT_READY, "device not ready"),
	E(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	E(ERROR_LAUNCH_OUT_OF_RESOURCES,
	  "too many resources requested for launch"),
	E(ERROR_ASSERT, "device-side assert triggered"),
	E(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	E(ERROR_NOT_SUPPORTED, "operation not supported"),
	E(ERROR_UNKNOWN, "unknown error"),
#undef E
	{ CPU_ERROR_ALREADY_REGISTERED,
	  "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	  "part or all of the requested memory range is already mapped" },
	{ CPU_ERROR_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	  "pointer does not correspond to a registered memory region" },
};
#define NERRORS (sizeof(errors) / sizeof(errors[0]))

/*
 * A caller keeps the string that cuGetErrorString gave it, so a text is never
 * freed or changed; equal ones are kept once.
 */
struct fault {
	struct fault *next;
	int code;
	char text[320];
};
static struct fault *faults;  /* every text so far */
static struct fault *told[8]; /* the last one of each code */
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *plain_text(int code)
{
	unsigned i;

	for (i = 0; i < NERRORS; ++i)
		if (errors[i].code == code)
			return errors[i].text;
	return NULL;
}

/* Where code's last text is kept, or a free place; NULL if there is none. */
static struct fault **told_of(int code)
{
	unsigned i;

	for (i = 0; i < sizeof(told) / sizeof(told[0]); ++i)
		if (!told[i] || told[i]->code == code)
			return &told[i];
	return NULL;
}

void cpu_fault_text(int error, const char *format, ...)
{
	const char *plain = plain_text(error);
	struct fault *f, *old, **place;
	va_list list;
	int n;

	f = calloc(1, sizeof(*f));
	if (!f)
		return;
	f->code = error;
	n = snprintf(f->text, sizeof(f->text), "%s: ", plain ? plain : "");
	va_start(list, format);
	vsnprintf(f->text + n, sizeof(f->text) - (size_t)n, format, list);
	va_end(list);
	pthread_mutex_lock(&fault_lock);
	for (old = faults; old; old = old->next)
		if (old->code == error && !strcmp(old->text, f->text))
			break;
	if (old) {
		free(f);
		f = old;
	} else {
		f->next = faults;
		faults = f;
	}
	place = told_of(error);
	if (place)
		*place = f;
	pthread_mutex_unlock(&fault_lock);
}

CUresult cpu_cuGetErrorName(CUresult error, const char **name)
{
	unsigned i;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = NULL;
	for (i = 0; i < NERRORS; ++i)
		if (errors[i].code == error)
			*name = errors[i].name;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cpu_cuGetErrorString(CUresult error, const char **text)
{
	struct fault **place;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = plain_text(error);
	pthread_mutex_lock(&fault_lock);
	place = told_of(error);
	if (place && *place)
		*text = (*place)->text;
	pthread_mutex_unlock(&fault_lock);
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cpu_cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cpu_cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 13000;
	return CUDA_SUCCESS;
}
