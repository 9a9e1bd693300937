/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reverse functions of an image: found by the names in its bytes, in
 * libgomp's table, or, where both are hidden, when they are called.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_FUNCTIONS 4096
#define ADOPT_ROOM    64
/* The longest name of a symbol: C++ adds namespaces and types to it. */
#define SYMBOL_MAX 512

/* Room for functions found later, so that the table need not move then. */
int functions_room(struct revoff_image *image)
{
	image->functions = calloc(ADOPT_ROOM, sizeof(*image->functions));
	image->mfunctions = image->functions ? ADOPT_ROOM : 0;
	return image->functions ? 0 : REVOFF_ENOMEM;
}

void functions_free(struct revoff_image *image)
{
	unsigned i;

	for (i = 0; i < image->nfunctions; ++i) {
		free(image->functions[i].name);
		free(image->functions[i].signature);
	}
	free(image->functions);
}

static int add_function(struct revoff_image *image, uint64_t fn, int kind,
			const char *name, const char *signature)
{
	struct function *f;

	if (image->nfunctions == MAX_FUNCTIONS)
		return fail(REVOFF_EIMAGE, "more than %d reverse functions",
			    MAX_FUNCTIONS);
	if (image->nfunctions == image->mfunctions) {
		unsigned m = 2 * image->mfunctions + ADOPT_ROOM;

		f = realloc(image->functions, m * sizeof(*f));
		if (!f)
			return fail(REVOFF_ENOMEM, "out of host memory");
		image->functions = f;
		image->mfunctions = m;
	}
	f = image->functions;
	f += image->nfunctions;
	memset(f, 0, sizeof(*f));
	f->fn = fn;
	f->kind = kind;
	if (kind == REVOFF_FUNCTION_TYPED) {
		int rc = signature_parse(signature, &f->shape);

		if (rc)
			return rc;
	}
	f->name = strdup(name);
	f->signature = strdup(signature);
	if (!f->name || !f->signature) {
		free(f->name);
		free(f->signature);
		return fail(REVOFF_ENOMEM, "out of host memory");
	}
	/* [functions store] */
	__atomic_store_n(&image->nfunctions, image->nfunctions + 1,
			 __ATOMIC_RELEASE);
	return 0;
}

int image_find_fn(struct revoff_image *image, uint64_t fn)
{
	unsigned i, n = image_count(image);

	for (i = 0; i < n; ++i)
		if (image->functions[i].fn == fn)
			return (int)i;
	return -1;
}

static int add_typed(struct revoff_image *image, uint64_t fn,
		     const struct revoff_descriptor *d)
{
	if (d->magic != REVOFF_DESCRIPTOR_MAGIC ||
	    memchr(d->name, 0, sizeof(d->name)) == NULL ||
	    memchr(d->signature, 0, sizeof(d->signature)) == NULL)
		return fail(REVOFF_EIMAGE,
			    "the image's reverse function at 0x%llx has a "
			    "damaged descriptor",
			    (unsigned long long)fn);
	if (d->abi != REVOFF_ABI_VERSION)
		return fail(REVOFF_EABI,
			    "reverse function %s was compiled with wire "
			    "version %u, this library speaks %u: compile the "
			    "kernel again with the installed pyrevoff.h",
			    d->name, d->abi, REVOFF_ABI_VERSION);
	return add_function(image, fn, REVOFF_FUNCTION_TYPED, d->name,
			    d->signature);
}

/* ---- names in an image's bytes --------------------------------------------- */

static int in_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* The descriptor of a symbol, if the image has it and it is a new one. */
static int try_symbol(struct revoff_image *image, const char *symbol)
{
	struct revoff_descriptor d;
	CUdeviceptr fn;
	size_t bytes;
	int rc = image_global(image, symbol, &fn, &bytes);

	if (rc <= 0)
		return rc;
	if (bytes != sizeof(d) || image_find_fn(image, fn) >= 0)
		return 1;
	rc = device_read(image->device, &d, fn, sizeof(d));
	if (!rc)
		rc = add_typed(image, fn, &d);
	return rc ? rc : 1;
}

/*
 * Names that begin with the prefix of descriptors, or have it within: those of
 * the ready-made functions are in a namespace, whose mangled name cannot be
 * foretold where nvcc makes it local to a file.
 */
static int scan(struct revoff_image *image, const char *data, size_t size)
{
	static const char prefix[] = REVOFF_FN_PREFIX;
	const size_t n = sizeof(prefix) - 1;
	const char *at = data, *end = data + size;
	int rc = 0;

	while (rc >= 0 && (at = memmem(at, (size_t)(end - at), prefix, n))) {
		char name[SYMBOL_MAX];
		const char *first = at, *last = at + n;

		while (last < end && last - at < SYMBOL_MAX - 1 &&
		       in_name(*last))
			++last;
		while (first > data && last - first < SYMBOL_MAX - 1 &&
		       in_name(first[-1]))
			--first;
		memcpy(name, at, (size_t)(last - at));
		name[last - at] = 0;
		rc = try_symbol(image, name);
		if (!rc && first < at) {
			memcpy(name, first, (size_t)(last - first));
			name[last - first] = 0;
			rc = try_symbol(image, name);
		}
		at = last;
	}
	return rc < 0 ? rc : 0;
}

/* ---- names that are hidden ---------------------------------------------------- */

/*
 * Mangled names cannot be asked for, so in an image whose names are compressed
 * these stand ready, bound like others; the first call tells the address.
 */
static const struct {
	const char *name, *signature;
} builtins[] = {
	{ "revoff::print", "v(str,to:u8,str,str,str,str)" },
	{ "revoff::printf", "v(str,to:u8,str,str,str,str)" },
	{ "revoff::log", "v(str,to:u8,str,str,str,str)" },
	{ "revoff::progress", "v(u8,u8)" },
	{ "revoff::assert", "v(str,i4,str,str)" },
};

int function_is_builtin(const char *name)
{
	return !strncmp(name, "revoff::", 8);
}

static int add_builtins(struct revoff_image *image)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < sizeof(builtins) / sizeof(*builtins) && !rc; ++i)
		rc = add_function(image, 0, REVOFF_FUNCTION_TYPED,
				  builtins[i].name, builtins[i].signature);
	return rc;
}

static int adopt_builtin(struct revoff_image *image, uint64_t fn,
			 const struct revoff_descriptor *d)
{
	unsigned i;

	for (i = 0; i < image->nfunctions; ++i) {
		struct function *f = &image->functions[i];

		if (f->fn || strcmp(f->name, d->name) ||
		    strncmp(f->signature, d->signature, sizeof(d->signature)))
			continue;
		/* Only the thread that serves the image's launch comes here. */
		/* [identity store] */
		__atomic_store_n(&f->fn, fn, __ATOMIC_RELEASE);
		return (int)i;
	}
	return -1;
}

/* Its contents may be compressed, so that scan sees no names. */
static int is_fatbin(const struct revoff_input *in)
{
	static const uint32_t magic = 0xba55ed50u;

	return in->size >= sizeof(magic) &&
	       !memcmp(in->data, &magic, sizeof(magic));
}

static int adopt_name(struct revoff_image *image, const char *name)
{
	char symbol[REVOFF_NAME_MAX + sizeof(REVOFF_FN_PREFIX)];
	struct revoff_descriptor d;
	CUdeviceptr fn;
	size_t bytes;
	int index;

	snprintf(symbol, sizeof(symbol), "%s%s", REVOFF_FN_PREFIX, name);
	if (image_global(image, symbol, &fn, &bytes) <= 0 ||
	    bytes != sizeof(d) || device_read(image->device, &d, fn, sizeof(d)))
		return -1;
	/* Who binds a function may meet the thread that serves a call of it. */
	pthread_mutex_lock(&image->device->lock);
	index = image_find_fn(image, fn);
	/* Others read the table meanwhile, so it must not move. */
	if (index < 0 && image->nfunctions < image->mfunctions &&
	    !add_typed(image, fn, &d))
		index = (int)image->nfunctions - 1;
	pthread_mutex_unlock(&image->device->lock);
	return index;
}

REVOFF_API int revoff_image_find(struct revoff_image *image, const char *name)
{
	unsigned i, n = image_count(image);
	int rc;

	for (i = 0; i < n; ++i)
		if (!strcmp(image->functions[i].name, name))
			return (int)i;
	rc = device_enter(image->device, 0, "look up a function");
	if (rc)
		return rc;
	rc = image->opaque && strlen(name) < REVOFF_NAME_MAX
		     ? adopt_name(image, name)
		     : -1;
	device_leave(image->device);
	return rc >= 0 ? rc
		       : fail(REVOFF_ENOTFOUND,
			      "the image has no reverse function named %s",
			      name);
}

/*
 * A call names a function that was not found by scan (a compressed fatbin):
 * look at what lies there, and take it if this image confirms the address.
 */
int image_adopt(struct revoff_image *image, uint64_t fn)
{
	struct revoff_descriptor d;
	int index;

	/* Elsewhere scan has seen all there are. */
	if (!image->opaque)
		return -1;
	if (device_read(image->device, &d, fn, sizeof(d)) ||
	    d.magic != REVOFF_DESCRIPTOR_MAGIC ||
	    !memchr(d.name, 0, sizeof(d.name)))
		return -1;
	if (function_is_builtin(d.name))
		return d.abi == REVOFF_ABI_VERSION
			       ? adopt_builtin(image, fn, &d)
			       : -1;
	index = adopt_name(image, d.name);
	return index >= 0 && image->functions[index].fn == fn ? index : -1;
}

/* Those that an input of the image names. */
int functions_scan(struct revoff_image *image, const struct revoff_input *in)
{
	int rc = scan(image, in->data, in->size);

	if (rc || !is_fatbin(in) || image->opaque)
		return rc;
	image->opaque = 1;
	return image->has_link ? add_builtins(image) : 0;
}

/* ---- libgomp's table --------------------------------------------------------- */

/*
 * libgomp's table: one device address per function, 0 for kernels.  A table
 * that holds only zeros is dropped, so that such an image costs nothing.
 */
int functions_table(struct revoff_image *image,
		    const struct revoff_image_options *options)
{
	unsigned n = options ? options->nfunction_names : 0, i;
	CUdeviceptr at;
	size_t bytes;
	uint64_t *table;
	int rc;

	rc = n ? image_global(image, REVOFF_SYM_TABLE, &at, &bytes) : 0;
	if (rc <= 0)
		return rc;
	if (n > MAX_FUNCTIONS || bytes != n * sizeof(*table))
		return fail(REVOFF_EIMAGE,
			    "the image's function table has %zu bytes, %u "
			    "functions were named (8 bytes each)",
			    bytes, n);
	table = calloc(n, sizeof(*table));
	if (!table)
		return fail(REVOFF_ENOMEM, "out of host memory");
	rc = device_read(image->device, table, at, bytes);
	for (i = 0; i < n && !rc; ++i)
		if (table[i])
			rc = add_function(image, table[i], REVOFF_FUNCTION_GOMP,
					  options->function_names[i], "");
	free(table);
	return rc;
}

/* ---- questions and binding --------------------------------------------------- */

REVOFF_API unsigned revoff_image_function_count(struct revoff_image *image)
{
	return image_count(image);
}

REVOFF_API int revoff_image_function(struct revoff_image *image, unsigned index,
				     struct revoff_function *function)
{
	if (index >= image_count(image))
		return fail(REVOFF_ENOTFOUND, "no reverse function %u", index);
	function->fn = image->functions[index].fn;
	function->kind = image->functions[index].kind;
	function->name = image->functions[index].name;
	function->signature = image->functions[index].signature;
	return 0;
}

REVOFF_API int revoff_image_bind(struct revoff_image *image, unsigned index,
				 revoff_handler *handler, void *user)
{
	if (index >= image_count(image))
		return fail(REVOFF_ENOTFOUND, "no reverse function %u", index);
	/* A launch samples the table under the same lock. */
	pthread_mutex_lock(&image->device->lock);
	image->functions[index].bound =
		(struct bound){ handler, NULL, user, 0 };
	pthread_mutex_unlock(&image->device->lock);
	return 0;
}
