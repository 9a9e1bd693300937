/* SPDX-License-Identifier: Apache-2.0 */
/* cuLink*: shared objects do not link to each other, so one passes through. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

struct link {
	void *handle;
	char *data;
	size_t size;
	struct cpu_log log;
};

CUresult cpu_cuLinkCreate(unsigned noptions, int *options, void **values,
			  CUlinkState *state)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct link *l;

	if (result)
		return result;
	if (!state || (noptions && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cpu_log_open(&l->log, noptions, options, values);
	l->handle = cpu_handle_new(CPU_LINK, l);
	if (!l->handle) {
		free(l);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*state = l->handle;
	return CUDA_SUCCESS;
}

CUresult cpu_cuLinkAddData(CUlinkState state, int type, void *data, size_t size,
			   const char *name, unsigned noptions, int *options,
			   void **values)
{
	struct link *l = cpu_handle_object(state, CPU_LINK);

	(void)type;
	(void)noptions;
	(void)options;
	(void)values;
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (l->data) {
		cpu_log(&l->log,
			"the CPU device cannot link \"%s\" to another "
			"input: its images are shared objects, so "
			"compile all sources into one",
			name ? name : "");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	/* Room for the NUL that ends a text. */
	l->data = calloc(1, size + 1);
	if (!l->data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(l->data, data, size);
	l->size = size;
	return CUDA_SUCCESS;
}

CUresult cpu_cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
	struct link *l = cpu_handle_object(state, CPU_LINK);

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image || !l->data)
		return CUDA_ERROR_INVALID_VALUE;
	*image = l->data;
	if (size)
		*size = l->size;
	return CUDA_SUCCESS;
}

CUresult cpu_cuLinkDestroy(CUlinkState state)
{
	struct link *l = cpu_handle_object(state, CPU_LINK);

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	cpu_handle_drop(l->handle);
	free(l->data);
	free(l);
	return CUDA_SUCCESS;
}
