/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of an image: looked up once, loaded eagerly. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void read_params(struct revoff_kernel *k)
{
	const struct revoff_driver *drv = k->image->device->drv;
	CUresult r = 0;
	int n = 0;

	k->nparams = -1;
	if (!drv->cuFuncGetParamInfo)
		return;
	while (n < REVOFF_MAX_PARAMS && !r) {
		r = drv->cuFuncGetParamInfo(k->function, (size_t)n,
					    &k->offset[n], &k->size[n]);
		n += !r;
	}
	/* An index past the last one is invalid; all else tells nothing. */
	if (!r || r == CUDA_ERROR_INVALID_VALUE)
		k->nparams = n;
}

static int make_kernel(struct revoff_image *image, const char *name,
		       struct revoff_kernel **kernel)
{
	struct revoff_device *d = image->device;
	struct revoff_kernel *k = calloc(1, sizeof(*k));
	const char *entry = "cuModuleGetFunction";
	CUresult r;

	if (!k)
		return fail(REVOFF_ENOMEM, "out of host memory");
	k->image = image;
	k->name = strdup(name);
	if (!k->name) {
		free(k);
		return fail(REVOFF_ENOMEM, "out of host memory");
	}
	r = d->drv->cuModuleGetFunction(&k->function, image->module, name);
	/*
	 * Under lazy loading the first launch of a kernel waits for the device
	 * to drain, so all of it is brought in now.
	 */
	if (!r && d->drv->cuFuncLoad) {
		entry = "cuFuncLoad";
		r = d->drv->cuFuncLoad(k->function);
	}
	if (!r) {
		entry = "cuFuncGetAttribute";
		r = d->drv->cuFuncGetAttribute(
			&k->max_threads,
			CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k->function);
	}
	if (r) {
		int rc = r == CUDA_ERROR_NOT_FOUND
				 ? fail(REVOFF_ENOTFOUND,
					"the image has no kernel named %s "
					"(declare it extern \"C\" __global__)",
					name)
				 : device_result(d, r, entry, name);
		free(k->name);
		free(k);
		return rc;
	}
	read_params(k);
	k->next = image->kernels;
	image->kernels = k;
	*kernel = k;
	return 0;
}

REVOFF_API int revoff_kernel_get(struct revoff_image *image, const char *name,
				 struct revoff_kernel **kernel)
{
	struct revoff_kernel *k;
	int rc;

	*kernel = NULL;
	pthread_mutex_lock(&image->device->lock);
	for (k = image->kernels; k && strcmp(k->name, name); k = k->next)
		;
	pthread_mutex_unlock(&image->device->lock);
	if (k) {
		*kernel = k;
		return 0;
	}
	rc = device_enter(image->device, ENTER_NO_HANDLER, "load a kernel");
	if (rc)
		return rc;
	pthread_mutex_lock(&image->device->lock);
	rc = make_kernel(image, name, kernel);
	pthread_mutex_unlock(&image->device->lock);
	device_leave(image->device);
	return rc;
}

REVOFF_API int revoff_kernel_param_count(struct revoff_kernel *kernel)
{
	return kernel->nparams < 0
		       ? fail(REVOFF_EUNSUPPORTED,
			      "the driver does not tell a kernel's parameters "
			      "(12.4 and later do)")
		       : kernel->nparams;
}

REVOFF_API int revoff_kernel_param(struct revoff_kernel *kernel, unsigned index,
				   size_t *offset, size_t *size)
{
	if (kernel->nparams < 0 || index >= (unsigned)kernel->nparams)
		return fail(REVOFF_EINVAL, "kernel %s has no parameter %u",
			    kernel->name, index);
	*offset = kernel->offset[index];
	*size = kernel->size[index];
	return 0;
}

REVOFF_API int revoff_kernel_max_threads(struct revoff_kernel *kernel)
{
	return kernel->max_threads;
}

REVOFF_API int revoff_kernel_param_class(struct revoff_kernel *kernel,
					 unsigned index)
{
	if (kernel->image->device->platform != REVOFF_PLATFORM_CPU)
		return REVOFF_PARAM_OTHER;
	return revoff_cpu_param_class(kernel->function, index);
}
