/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define LOG_BYTES 16384
#define QUIET_NS  10000000000ull

/* ---- loading ------------------------------------------------------------ */

struct log {
	char info[LOG_BYTES], error[LOG_BYTES];
	int options[4];
	void *values[4];
};

static void log_start(struct log *log)
{
	static const int options[4] = { CU_JIT_INFO_LOG_BUFFER,
					CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
					CU_JIT_ERROR_LOG_BUFFER,
					CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };

	log->info[0] = log->error[0] = 0;
	memcpy(log->options, options, sizeof(options));
	log->values[0] = log->info;
	log->values[1] = (void *)(uintptr_t)LOG_BYTES;
	log->values[2] = log->error;
	log->values[3] = (void *)(uintptr_t)LOG_BYTES;
}

/* Refused images are the user's to mend: say what the JIT said. */
static int refused(struct revoff_device *d, CUresult r, const char *entry,
		   const char *name, struct log *log)
{
	int rc;

	log->error[LOG_BYTES - 1] = 0;
	rc = fail_driver(d->drv, r, entry, "image %s%s%s", name ? name : "",
			 log->error[0] ? ": " : "",
			 log->error[0] ? log->error : "");
	if (r == CUDA_ERROR_OUT_OF_MEMORY || r == CUDA_ERROR_INVALID_CONTEXT)
		return rc;
	error_slot()->code = REVOFF_EIMAGE;
	return REVOFF_EIMAGE;
}

static int load_module(struct revoff_device *d, const void *data,
		       const char *name, CUmodule *module, struct log *log)
{
	CUresult r;

	log_start(log);
	r = d->drv->cuModuleLoadDataEx(module, data, 4, log->options,
				       log->values);
	return r ? refused(d, r, "cuModuleLoadDataEx", name, log) : 0;
}

static int link_and_load(struct revoff_device *d,
			 const struct revoff_input *inputs, unsigned ninputs,
			 CUmodule *module, struct log *log)
{
	static const int types[] = {
		[REVOFF_INPUT_PTX] = CU_JIT_INPUT_PTX,
		[REVOFF_INPUT_CUBIN] = CU_JIT_INPUT_CUBIN,
		[REVOFF_INPUT_FATBIN] = CU_JIT_INPUT_FATBINARY,
		[REVOFF_INPUT_OBJECT] = CU_JIT_INPUT_OBJECT,
		[REVOFF_INPUT_LIBRARY] = CU_JIT_INPUT_LIBRARY,
	};
	CUlinkState state = NULL;
	void *cubin = NULL;
	size_t size = 0;
	unsigned i;
	CUresult r;
	int rc = 0;

	log_start(log);
	r = d->drv->cuLinkCreate(4, log->options, log->values, &state);
	if (r)
		return refused(d, r, "cuLinkCreate", inputs[0].name, log);
	for (i = 0; i < ninputs && !rc; ++i) {
		const struct revoff_input *in = &inputs[i];

		r = d->drv->cuLinkAddData(state, types[in->type],
					  (void *)in->data, in->size,
					  in->name ? in->name : "input", 0,
					  NULL, NULL);
		if (r)
			rc = refused(d, r, "cuLinkAddData", in->name, log);
	}
	if (!rc) {
		r = d->drv->cuLinkComplete(state, &cubin, &size);
		if (r)
			rc = refused(d, r, "cuLinkComplete", inputs[0].name,
				     log);
	}
	/* The cubin belongs to the link state: load before destroying it. */
	if (!rc) {
		struct log *second = malloc(sizeof(*second));

		if (!second) {
			rc = fail(REVOFF_ENOMEM, "out of host memory");
		} else {
			rc = load_module(d, cubin, inputs[0].name, module,
					 second);
			free(second);
		}
	}
	d->drv->cuLinkDestroy(state);
	return rc;
}

static int check_inputs(const struct revoff_input *inputs, unsigned ninputs)
{
	unsigned i;

	if (!ninputs)
		return fail(REVOFF_EINVAL, "an image needs at least one input");
	for (i = 0; i < ninputs; ++i) {
		const struct revoff_input *in = &inputs[i];

		if (!in->data || !in->size)
			return fail(REVOFF_EINVAL, "image %s is empty",
				    in->name ? in->name : "");
		if (in->type < REVOFF_INPUT_MODULE ||
		    in->type > REVOFF_INPUT_LIBRARY ||
		    (in->type == REVOFF_INPUT_MODULE && ninputs > 1))
			return fail(REVOFF_EINVAL,
				    "image %s: input type %d cannot be linked",
				    in->name ? in->name : "", in->type);
		if (!image_is_whole(in->data, in->size))
			return fail(REVOFF_EIMAGE,
				    "image %s is cut short or damaged: its "
				    "headers name more than its %zu bytes",
				    in->name ? in->name : "", in->size);
		/* The driver reads PTX up to its NUL, wherever that is. */
		if (in->type == REVOFF_INPUT_PTX &&
		    ((const char *)in->data)[in->size - 1])
			return fail(REVOFF_EINVAL,
				    "image %s: PTX must end in a NUL",
				    in->name ? in->name : "");
	}
	return 0;
}

/* 1 if the image has the variable, 0 if not, negative if nobody knows. */
int image_global(struct revoff_image *image, const char *name,
		 CUdeviceptr *address, size_t *size)
{
	CUresult r;

	*address = 0;
	*size = 0;
	r = image->device->drv->cuModuleGetGlobal(address, size, image->module,
						  name);
	if (r == CUDA_ERROR_NOT_FOUND)
		return 0;
	return r ? device_result(image->device, r, "cuModuleGetGlobal", name)
		 : 1;
}

/* ---- connecting ---------------------------------------------------------- */

static int check_abi(struct revoff_image *image, CUdeviceptr *at)
{
	struct revoff_link link;
	size_t bytes;
	int rc;

	rc = image_global(image, REVOFF_SYM_LINK, at, &bytes);
	if (rc <= 0)
		return rc;
	image->has_link = 1;
	memset(&link, 0, sizeof(link));
	rc = device_read(image->device, &link, *at,
			 bytes < sizeof(link) ? bytes : sizeof(link));
	if (rc)
		return rc;
	if (link.abi != REVOFF_ABI_VERSION || link.size != sizeof(link) ||
	    bytes != sizeof(link))
		return fail(REVOFF_EABI,
			    "the image was compiled with wire version %u (%u "
			    "bytes of link), this library speaks version %u "
			    "(%zu bytes): compile the kernel again with the "
			    "installed pyrevoff.h",
			    link.abi, link.size, REVOFF_ABI_VERSION,
			    sizeof(link));
	return 0;
}

static int take_control(struct revoff_image *image)
{
	struct revoff_device *d = image->device;
	unsigned i, n = sizeof(d->control_used);

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < n && d->control_used[i]; ++i)
		;
	if (i < n)
		d->control_used[i] = 1;
	pthread_mutex_unlock(&d->lock);
	if (i == n)
		return fail(REVOFF_EBUSY,
			    "device %d: more than %u images that can call the "
			    "host are loaded; close some",
			    d->ordinal, n);
	image->control_index = (int)i;
	image->control = &d->controls[i];
	memset(image->control, 0, sizeof(*image->control));
	return 0;
}

/*
 * Every image that can call is connected, not only the first.  One without a
 * reverse function gets its control word (so that a stray call is noticed) but
 * no mailbox: it is never polled.
 */
static int connect(struct revoff_image *image, CUdeviceptr link_at,
		   const struct revoff_image_options *options)
{
	struct revoff_device *d = image->device;
	struct revoff_icvs icvs = { d->ordinal, 0, 0, 0 };
	struct revoff_link link = { .abi = REVOFF_ABI_VERSION,
				    .size = sizeof(link) };
	uint64_t mailbox = d->mailbox.address;
	CUdeviceptr at;
	size_t bytes;
	int has_var = image_global(image, REVOFF_SYM_MAILBOX, &at, &bytes);
	int rc = 0;

	if (has_var < 0)
		return has_var;
	if (options && options->device_number >= 0)
		icvs.device_num = options->device_number;
	/*
	 * No variable: a program whose reverse regions all run on the host.  No
	 * function: nothing to serve, unless names may be hidden from scan.
	 */
	image->connected = has_var && (image->nfunctions ||
				       (image->opaque && image->has_link));
	if (has_var && bytes != sizeof(mailbox))
		return fail(REVOFF_EIMAGE, "%s has %zu bytes, not 8",
			    REVOFF_SYM_MAILBOX, bytes);
	if (image->has_link) {
		rc = take_control(image);
		if (rc)
			return rc;
		if (image->connected)
			rc = ports_take(image);
		if (rc)
			return rc;
		if (image->connected) {
			link = image->ports->link;
			link.abi = REVOFF_ABI_VERSION;
			link.size = sizeof(link);
			link.flags =
				REVOFF_LINK_CONNECTED |
				(d->options.no_packet ? 0
						      : REVOFF_LINK_PACKET) |
				(d->options.lock == REVOFF_LOCK_MAILBOX
					 ? REVOFF_LINK_LOCK
					 : 0) |
				(image->ports->nports ? REVOFF_LINK_PORTS : 0);
		}
		link.control = d->controls_address +
			       (uint64_t)image->control_index *
				       sizeof(struct revoff_control);
		link.lock = d->mailbox.lock_address;
		link.gates = d->mailbox.gates_address;
		rc = device_write(d, link_at, &link, sizeof(link));
	}
	/* libgomp's own device code knows no ports. */
	image->by_mailbox = image->connected &&
			    !(link.flags & REVOFF_LINK_PORTS);
	if (!rc && image->connected)
		rc = device_write(d, at, &mailbox, sizeof(mailbox));
	if (!rc)
		rc = image_global(image, REVOFF_SYM_ICVS, &at, &bytes);
	if (rc > 0)
		rc = bytes == sizeof(icvs)
			     ? device_write(d, at, &icvs, sizeof(icvs))
			     : 0;
	return rc;
}

static int load(struct revoff_image *image, const struct revoff_input *inputs,
		unsigned ninputs, const struct revoff_image_options *options)
{
	struct log *log = malloc(sizeof(*log));
	CUdeviceptr link_at = 0;
	unsigned i;
	int rc;

	if (!log || functions_room(image)) {
		free(log);
		return fail(REVOFF_ENOMEM, "out of host memory");
	}
	if (inputs[0].type == REVOFF_INPUT_MODULE)
		rc = load_module(image->device, inputs[0].data, inputs[0].name,
				 &image->module, log);
	else
		rc = link_and_load(image->device, inputs, ninputs,
				   &image->module, log);
	free(log);
	if (!rc)
		rc = check_abi(image, &link_at);
	for (i = 0; i < ninputs && !rc; ++i) {
		rc = functions_scan(image, &inputs[i]);
	}
	if (!rc)
		rc = functions_table(image, options);
	return rc ? rc : connect(image, link_at, options);
}

REVOFF_API int revoff_image_load(struct revoff_device *device,
				 const struct revoff_input *inputs,
				 unsigned ninputs,
				 const struct revoff_image_options *options,
				 struct revoff_image **image)
{
	struct revoff_image *img;
	int rc = check_inputs(inputs, ninputs);

	*image = NULL;
	if (!rc)
		rc = device_enter(device, ENTER_NO_HANDLER, "load an image");
	if (rc)
		return rc;
	/*
	 * The driver's loader waits for running kernels, with its locks held,
	 * so that the thread that serves them would stand still as well.
	 */
	rc = device_wait_quiet(device, QUIET_NS, "loading an image");
	img = rc ? NULL : calloc(1, sizeof(*img));
	if (!rc && !img)
		rc = fail(REVOFF_ENOMEM, "out of host memory");
	if (!rc) {
		img->device = device;
		img->control_index = -1;
		rc = load(img, inputs, ninputs, options);
		if (rc) {
			struct revoff_error kept = *error_slot();

			pthread_mutex_lock(&device->lock);
			image_destroy(img);
			pthread_mutex_unlock(&device->lock);
			*error_slot() = kept;
		}
	}
	device_leave(device);
	if (rc)
		return rc;
	pthread_mutex_lock(&device->lock);
	img->next = device->images;
	device->images = img;
	pthread_mutex_unlock(&device->lock);
	*image = img;
	return 0;
}

/* Lock held, context current, no kernel of the image runs. */
void image_destroy(struct revoff_image *image)
{
	struct revoff_device *d = image->device;

	while (image->kernels) {
		struct revoff_kernel *k = image->kernels;

		image->kernels = k->next;
		free(k->name);
		free(k);
	}
	if (image->module)
		d->drv->cuModuleUnload(image->module);
	if (image->stacks)
		d->drv->cuMemFree(image->stacks);
	if (image->control_index >= 0)
		d->control_used[image->control_index] = 0;
	ports_give(image);
	functions_free(image);
	free(image);
}

REVOFF_API int revoff_image_unload(struct revoff_image *image)
{
	struct revoff_device *d = image->device;
	struct revoff_image **at;
	int rc = device_enter(d, 0, "unload");

	/* With the context gone its modules are, too. */
	if (rc && rc != REVOFF_ELOST)
		return rc;
	pthread_mutex_lock(&d->lock);
	if (image->launch) {
		int busy = fail(REVOFF_EBUSY,
				"the image is in use: its kernel %s has not "
				"ended",
				image->launch->kernel->name);

		pthread_mutex_unlock(&d->lock);
		if (!rc)
			device_leave(d);
		return busy;
	}
	for (at = &d->images; *at != image; at = &(*at)->next)
		;
	*at = image->next;
	/* Unloading waits for every running kernel, so it is put off. */
	image->next = d->graves;
	d->graves = image;
	if (!d->nlaunches)
		device_flush(d);
	pthread_mutex_unlock(&d->lock);
	if (!rc)
		device_leave(d);
	return 0;
}

/* ---- questions ----------------------------------------------------------- */

REVOFF_API int revoff_image_is_connected(struct revoff_image *image)
{
	return image->connected;
}

REVOFF_API int revoff_image_symbol(struct revoff_image *image, const char *name,
				   uint64_t *address, size_t *size)
{
	CUdeviceptr at;
	int rc = device_enter(image->device, 0, "symbol");

	if (rc)
		return rc;
	rc = image_global(image, name, &at, size);
	device_leave(image->device);
	*address = at;
	if (!rc)
		return fail(REVOFF_ENOTFOUND,
			    "the image has no variable named %s (declare it "
			    "extern \"C\")",
			    name);
	return rc < 0 ? rc : 0;
}
