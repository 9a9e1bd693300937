/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection: a driver table whose every entry can fail or be missing.
 * Off, it costs nothing: devices get the inner table itself.
 */
#include <string.h>

#include "internal.h"

enum {
#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) AT_##name,
#include "driver.def"
#undef REVOFF_DRIVER
	NENTRIES
};

enum {
	OPTIONAL,
	MANDATORY
};
static const int needed[] = {
#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) need,
#include "driver.def"
#undef REVOFF_DRIVER
};

static int enabled;
static int missing[NENTRIES];
static int64_t countdown[NENTRIES];
static CUresult outcome[NENTRIES];
static int64_t calls[NENTRIES];
/* Tables outlive every device, so they are never freed: one per platform. */
static struct revoff_driver inner_of[2], outer_of[2];

static CUresult hit(int at)
{
	__atomic_add_fetch(&calls[at], 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&countdown[at], __ATOMIC_RELAXED) > 0 &&
	    __atomic_sub_fetch(&countdown[at], 1, __ATOMIC_RELAXED) == 0)
		return outcome[at];
	return CUDA_SUCCESS;
}

#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	static CUresult cuda_##name parameters                   \
	{                                                        \
		CUresult r = hit(AT_##name);                     \
		return r ? r : inner_of[0].name arguments;       \
	}                                                        \
	static CUresult cpu_##name parameters                    \
	{                                                        \
		CUresult r = hit(AT_##name);                     \
		return r ? r : inner_of[1].name arguments;       \
	}
#include "driver.def"
#undef REVOFF_DRIVER

const struct revoff_driver *fault_wrap(int platform,
				       const struct revoff_driver *inner)
{
	struct revoff_driver *outer = &outer_of[platform];

	if (!__atomic_load_n(&enabled, __ATOMIC_RELAXED))
		return inner;
	inner_of[platform] = *inner;
#define REVOFF_DRIVER(name, symbol, need, parameters, arguments)             \
	if (missing[AT_##name] && needed[AT_##name] == MANDATORY) {          \
		fail(REVOFF_ENODRIVER, "the driver lacks %s: it is too old", \
		     #name);                                                 \
		return NULL;                                                 \
	}                                                                    \
	outer->name = missing[AT_##name] || !inner->name ? NULL              \
		      : platform == REVOFF_PLATFORM_CUDA ? cuda_##name       \
							 : cpu_##name;
#include "driver.def"
#undef REVOFF_DRIVER
	return outer;
}

static int find(const char *entry)
{
	unsigned i;
	const char *name;

	for (i = 0; (name = revoff_driver_entry(i)); ++i)
		if (!strcmp(name, entry))
			return (int)i;
	return fail(REVOFF_EINVAL, "no driver entry is named %s", entry);
}

REVOFF_API int revoff_fault_enable(int on)
{
	__atomic_store_n(&enabled, on, __ATOMIC_RELAXED);
	return 0;
}

REVOFF_API int revoff_fault_set(const char *entry, unsigned nth, int result)
{
	int at = find(entry);

	if (at < 0)
		return at;
	if (result == -1) {
		missing[at] = 1;
		return 0;
	}
	outcome[at] = result;
	__atomic_store_n(&countdown[at], (int64_t)nth, __ATOMIC_RELAXED);
	return 0;
}

REVOFF_API void revoff_fault_clear(void)
{
	unsigned i;

	for (i = 0; i < NENTRIES; ++i) {
		missing[i] = 0;
		__atomic_store_n(&countdown[i], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&calls[i], 0, __ATOMIC_RELAXED);
	}
}

REVOFF_API int revoff_fault_calls(const char *entry)
{
	int at = find(entry);

	return at < 0 ? at : (int)__atomic_load_n(&calls[at], __ATOMIC_RELAXED);
}
