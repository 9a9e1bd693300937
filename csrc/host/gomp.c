/* SPDX-License-Identifier: Apache-2.0 */
/* libgomp's plugin hooks: its image data, its tables, its way to launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* The plugin's part of the compiler's image data, after the requires mask. */
struct ptx_object {
	const char *code;
	size_t size; /* with the final NUL */
};

struct launch_dims {
	const char *name;
	unsigned short dim[3];
};

struct image_data {
	const struct ptx_object *objects;
	unsigned nobjects;
	const char *const *variables;
	unsigned nvariables;
	const struct launch_dims *functions;
	unsigned nfunctions;
	/* GCC 14 and later: number of indirect functions follows */
};

#define VERSION_COMPILER(v) ((v) >> 16)

/* Launch arguments: value in bits 16 and up, or (bit 7) in the next word. */
#define ARG_DEVICE_MASK	 0x7f
#define ARG_VALUE_NEXT	 0x80
#define ARG_ID_MASK	 0xff00
#define ARG_NUM_TEAMS	 0x100
#define ARG_THREAD_LIMIT 0x200

#define DEFAULT_THREADS 8
#define SOFT_STACK	(128u << 10)
#define SHARED_BYTES	8192

REVOFF_API void revoff_gomp_free(void *table)
{
	free(table);
}

static int variable_pairs(struct revoff_image *image,
			  const struct image_data *data,
			  struct revoff_addr_pair *pair)
{
	unsigned i;

	for (i = 0; i < data->nvariables; ++i) {
		uint64_t address;
		size_t size;
		int rc = revoff_image_symbol(image, data->variables[i],
					     &address, &size);

		if (rc)
			return rc;
		pair[i].start = address;
		pair[i].end = address + size;
	}
	return 0;
}

static int function_pairs(struct revoff_image *image,
			  const struct image_data *data, const uint64_t *rev,
			  struct revoff_addr_pair *pair)
{
	unsigned i;

	for (i = 0; i < data->nfunctions; ++i) {
		struct revoff_kernel *k = NULL;
		int rc;

		/* A reverse function is a .func: it cannot be launched. */
		if (!rev || !rev[i]) {
			rc = revoff_kernel_get(image, data->functions[i].name,
					       &k);
			if (rc)
				return rc;
		}
		pair[i].start = (uint64_t)(uintptr_t)k;
		pair[i].end = pair[i].start + 1;
	}
	return 0;
}

static unsigned count_reverse(const struct revoff_image *image)
{
	unsigned i, n = 0;

	for (i = 0; i < image->nfunctions; ++i)
		n += image->functions[i].kind == REVOFF_FUNCTION_GOMP;
	return n;
}

/* One device address per function. */
static uint64_t *reverse_table(struct revoff_image *image, unsigned n,
			       const char *const *names)
{
	uint64_t *rev = calloc(n, sizeof(*rev));
	const struct function *f;
	unsigned i, k;

	for (i = 0; rev && i < image->nfunctions; ++i) {
		f = &image->functions[i];
		for (k = 0; k < n && f->kind == REVOFF_FUNCTION_GOMP; ++k)
			if (!strcmp(f->name, names[k]))
				rev[k] = f->fn;
	}
	return rev;
}

static int tables(struct revoff_image *image, const struct image_data *data,
		  const char *const *names,
		  struct revoff_addr_pair **target_table,
		  uint64_t **rev_fn_table)
{
	unsigned n = data->nfunctions + data->nvariables;
	struct revoff_addr_pair *pair = calloc(n + 1, sizeof(*pair));
	int any = count_reverse(image) != 0;
	uint64_t *rev = any ? reverse_table(image, data->nfunctions, names)
			    : NULL;
	uint64_t address;
	size_t size;
	int rc;

	if (!pair || (any && !rev)) {
		free(pair);
		free(rev);
		return fail(REVOFF_ENOMEM, "out of host memory");
	}
	rc = function_pairs(image, data, rev, pair);
	if (!rc)
		rc = variable_pairs(image, data, pair + data->nfunctions);
	if (rc) {
		free(pair);
		free(rev);
		return rc;
	}
	/* The last pair is the ICVs', both 0 if the image has none. */
	if (!revoff_image_symbol(image, REVOFF_SYM_ICVS, &address, &size)) {
		pair[n].start = address;
		pair[n].end = address + size;
	}
	*target_table = pair;
	if (rev_fn_table)
		*rev_fn_table = rev;
	else
		free(rev);
	return (int)n + 1;
}

static int read_data(unsigned version, const void *target_data,
		     struct image_data *data)
{
	unsigned compiler = VERSION_COMPILER(version);
	unsigned i;

	if (compiler != 2 && compiler != 3)
		return fail(REVOFF_EIMAGE,
			    "image data of version 0x%x: 0x20001 (GCC 13) and "
			    "0x30001 (GCC 14 and later) are known",
			    version);
	if (!target_data)
		return fail(REVOFF_EINVAL, "no image data");
	memcpy(data, target_data, sizeof(*data));
	if (!data->nobjects || !data->objects || data->nobjects > 65536 ||
	    data->nfunctions > 65536 || data->nvariables > 65536 ||
	    (data->nfunctions && !data->functions) ||
	    (data->nvariables && !data->variables))
		return fail(REVOFF_EIMAGE,
			    "image data with %u objects, %u variables and %u "
			    "functions",
			    data->nobjects, data->nvariables, data->nfunctions);
	for (i = 0; i < data->nfunctions; ++i)
		if (!data->functions[i].name)
			return fail(REVOFF_EIMAGE, "function %u has no name",
				    i);
	for (i = 0; i < data->nvariables; ++i)
		if (!data->variables[i])
			return fail(REVOFF_EIMAGE, "variable %u has no name",
				    i);
	return 0;
}

REVOFF_API int revoff_gomp_load_image(struct revoff_device *device,
				      unsigned version, const void *target_data,
				      struct revoff_addr_pair **target_table,
				      uint64_t **rev_fn_table,
				      struct revoff_image **image)
{
	struct revoff_image_options options = { .device_number = -1 };
	struct revoff_input *inputs = NULL;
	const char **names = NULL;
	struct image_data data;
	unsigned i;
	int rc = read_data(version, target_data, &data);

	*image = NULL;
	*target_table = NULL;
	if (rev_fn_table)
		*rev_fn_table = NULL;
	if (rc)
		return rc;
	inputs = calloc(data.nobjects, sizeof(*inputs));
	names = calloc(data.nfunctions + 1, sizeof(*names));
	if (!inputs || !names) {
		rc = fail(REVOFF_ENOMEM, "out of host memory");
		goto out;
	}
	for (i = 0; i < data.nobjects; ++i) {
		inputs[i].data = data.objects[i].code;
		inputs[i].size = data.objects[i].size;
		inputs[i].type = device->platform == REVOFF_PLATFORM_CPU
					 ? REVOFF_INPUT_MODULE
					 : REVOFF_INPUT_PTX;
		inputs[i].name = "libgomp image";
	}
	for (i = 0; i < data.nfunctions; ++i)
		names[i] = data.functions[i].name;
	options.function_names = names;
	options.nfunction_names = data.nfunctions;
	rc = revoff_image_load(device, inputs, data.nobjects, &options, image);
	if (!rc)
		rc = tables(*image, &data, names, target_table, rev_fn_table);
	if (rc < 0 && *image) {
		struct revoff_error kept = *error_slot();

		revoff_image_unload(*image);
		*image = NULL;
		*error_slot() = kept;
	}
out:
	free(inputs);
	free(names);
	return rc;
}

static int soft_stacks(struct revoff_image *image, size_t size)
{
	struct revoff_device *d = image->device;
	CUdeviceptr address = 0;
	CUresult r;
	int rc = 0;

	if (image->stacks_size >= size)
		return 0;
	/* The old ones are freed: nobody may be using them. */
	pthread_mutex_lock(&d->lock);
	if (image->launch)
		rc = fail(REVOFF_EBUSY,
			  "the image already runs %s; an image runs one kernel "
			  "at a time",
			  image->launch->kernel->name);
	pthread_mutex_unlock(&d->lock);
	if (rc)
		return rc;
	rc = device_enter(d, ENTER_NO_HANDLER, "soft stacks");
	if (rc)
		return rc;
	r = d->drv->cuMemAlloc(&address, size);
	if (!r) {
		if (image->stacks)
			d->drv->cuMemFree(image->stacks);
		image->stacks = address;
		image->stacks_size = size;
	}
	rc = device_result(d, r, "cuMemAlloc", "no memory for soft stacks");
	device_leave(d);
	return rc;
}

static void launch_args(void **args, unsigned *teams, unsigned *threads)
{
	while (args && *args) {
		uintptr_t id = (uintptr_t)*args++;
		intptr_t value;

		if (id & ARG_VALUE_NEXT)
			value = (intptr_t)*args++;
		else
			value = (intptr_t)id >> 16;
		if ((id & ARG_ID_MASK) == ARG_NUM_TEAMS && value > 0)
			*teams = (unsigned)value;
		if ((id & ARG_ID_MASK) == ARG_THREAD_LIMIT && value > 0)
			*threads = (unsigned)value;
	}
}

REVOFF_API int revoff_gomp_run(struct revoff_kernel *kernel, void *tgt_vars,
			       void **args, uint64_t timeout_ns)
{
	unsigned teams = 1, threads = DEFAULT_THREADS, limit;
	struct revoff_launch_config config = { .shared = SHARED_BYTES };
	void *vars = tgt_vars, *stack, *size;
	void *params[] = { &vars, &stack, &size };
	int rc;

	limit = (unsigned)kernel->max_threads / 32;
	launch_args(args, &teams, &threads);
	if (threads > limit && limit)
		threads = limit;
	rc = soft_stacks(kernel->image, (size_t)teams * threads * SOFT_STACK);
	if (rc)
		return rc;
	stack = (void *)(uintptr_t)kernel->image->stacks;
	size = (void *)(uintptr_t)SOFT_STACK;
	config.grid[0] = teams;
	config.grid[1] = config.grid[2] = 1;
	config.block[0] = 32;
	config.block[1] = threads;
	config.block[2] = 1;
	config.params = params;
	return revoff_run(kernel, &config, timeout_ns, NULL);
}
