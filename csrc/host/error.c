/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "internal.h"

static __thread struct revoff_error last;

struct revoff_error *error_slot(void)
{
	return &last;
}

REVOFF_API const struct revoff_error *revoff_last_error(void)
{
	return &last;
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
	va_list ap;

	memset(&last, 0, offsetof(struct revoff_error, text));
	last.code = code;
	va_start(ap, format);
	vsnprintf(last.text, sizeof(last.text), format, ap);
	va_end(ap);
	return code;
}

int fail_driver(const struct revoff_driver *drv, CUresult result,
		const char *entry, const char *format, ...)
{
	const char *name = NULL, *text = NULL;
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
	last.driver_code = result;
	snprintf(last.driver_name, sizeof(last.driver_name), "%s", name);
	snprintf(last.entry, sizeof(last.entry), "%s", entry);
	return last.code;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
