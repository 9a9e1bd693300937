/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

/*
 * A pointer per thread, not the record itself: thread-local memory of a library
 * that Python loads comes out of a small reserve.
 */
static __thread struct revoff_error *last;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	pthread_key_create(&key, free);
}

struct revoff_error *error_slot(void)
{
	static struct revoff_error shared; /* better than nothing */

	if (last)
		return last;
	pthread_once(&once, make_key);
	last = calloc(1, sizeof(*last));
	if (!last)
		return &shared;
	pthread_setspecific(key, last);
	return last;
}

REVOFF_API const struct revoff_error *revoff_last_error(void)
{
	return error_slot();
}

REVOFF_API unsigned revoff_abi_version(void)
{
	return REVOFF_ABI_VERSION;
}

REVOFF_API const char *revoff_status_name(int status)
{
	static const char *const names[] = {
		[REVOFF_OK] = "ok",
		[REVOFF_HANDLER] = "handler failed",
		[REVOFF_ABORTED] = "aborted",
		[REVOFF_UNBOUND] = "no handler bound",
		[REVOFF_UNKNOWN] = "unknown function",
		[REVOFF_BADMAP] = "argument cannot be mapped",
		[REVOFF_COPYFAILED] = "copy failed",
		[REVOFF_UNCONNECTED] = "image not connected to a host",
		[REVOFF_TOOBIG] = "arguments exceed a packet",
		[REVOFF_BADCALL] =
			"NULL function or a device number other than the host's",
	};
	if (status < 0 || status > REVOFF_BADCALL)
		return "unknown status";
	return names[status];
}

int fail(int code, const char *format, ...)
{
	struct revoff_error *e = error_slot();
	va_list ap;

	memset(e, 0, offsetof(struct revoff_error, text));
	e->code = code;
	va_start(ap, format);
	vsnprintf(e->text, sizeof(e->text), format, ap);
	va_end(ap);
	return code;
}

int fail_driver(const struct revoff_driver *drv, CUresult result,
		const char *entry, const char *format, ...)
{
	const char *name = NULL, *text = NULL;
	struct revoff_error *e;
	char what[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(what, sizeof(what), format, ap);
	va_end(ap);
	if (drv->cuGetErrorName(result, &name) || !name)
		name = "unknown driver error";
	if (drv->cuGetErrorString(result, &text) || !text)
		text = "no description";
	fail(result == CUDA_ERROR_OUT_OF_MEMORY ? REVOFF_ENOMEM
						: REVOFF_EDRIVER,
	     "%s: %s gave %d (%s): %s", what, entry, result, name, text);
	e = error_slot();
	e->driver_code = result;
	snprintf(e->driver_name, sizeof(e->driver_name), "%s", name);
	snprintf(e->entry, sizeof(e->entry), "%s", entry);
	return e->code;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
