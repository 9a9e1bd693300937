/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define DEFAULT_SPIN_US	 1000
#define DEFAULT_SLEEP_US 50

REVOFF_API int revoff_device_count(int platform, int *count)
{
	const struct revoff_driver *drv;
	CUresult r;
	int rc = platform_driver(platform, &drv);

	*count = 0;
	if (rc)
		return rc;
	r = drv->cuDeviceGetCount(count);
	if (r)
		return fail_driver(drv, r, "cuDeviceGetCount",
				   "cannot count devices");
	return 0;
}

static int query(const struct revoff_driver *drv, int ordinal, CUdevice *cu,
		 struct revoff_device_info *info)
{
	const struct {
		int attribute, *to;
	} wanted[] = {
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->major },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->minor },
		{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
		  &info->multiprocessors },
		{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, &info->warp_size },
		{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
		  &info->max_threads_per_block },
		{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
		  &info->can_map_host_memory },
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
		  &info->unified_addressing },
		{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &info->managed_memory },
		{ CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
		  &info->concurrent_managed_access },
		{ CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
		  &info->pageable_memory_access },
		{ CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
		  &info->host_native_atomics },
	};
	int count = 0;
	unsigned i;
	size_t total = 0;
	CUresult r = drv->cuDeviceGetCount(&count);

	if (r)
		return fail_driver(drv, r, "cuDeviceGetCount",
				   "cannot count devices");
	if (ordinal < 0 || ordinal >= count)
		return fail(REVOFF_ENODEVICE,
			    "no device %d: the driver shows %d device%s to "
			    "this process",
			    ordinal, count, count == 1 ? "" : "s");
	memset(info, 0, sizeof(*info));
	info->ordinal = ordinal;
	r = drv->cuDeviceGet(cu, ordinal);
	if (r)
		return fail_driver(drv, r, "cuDeviceGet", "device %d", ordinal);
	r = drv->cuDeviceGetName(info->name, sizeof(info->name), *cu);
	if (r)
		return fail_driver(drv, r, "cuDeviceGetName", "device %d",
				   ordinal);
	r = drv->cuDriverGetVersion(&info->driver_version);
	if (r)
		return fail_driver(drv, r, "cuDriverGetVersion", "device %d",
				   ordinal);
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); ++i) {
		r = drv->cuDeviceGetAttribute(wanted[i].to, wanted[i].attribute,
					      *cu);
		if (r)
			return fail_driver(drv, r, "cuDeviceGetAttribute",
					   "device %d", ordinal);
	}
	if (drv->cuDeviceTotalMem && !drv->cuDeviceTotalMem(&total, *cu))
		info->total_memory = total;
	return 0;
}

REVOFF_API int revoff_device_query(int platform, int ordinal,
				   struct revoff_device_info *info)
{
	const struct revoff_driver *drv;
	CUdevice cu;
	int rc = platform_driver(platform, &drv);

	return rc ? rc : query(drv, ordinal, &cu, info);
}

/*
 * Whether the innermost entries of this thread pushed a context: one bit each,
 * the newest at bit 62.  Entries nest a few deep at most (a handler that
 * copies, on a device that serves for another).
 */
static __thread uint64_t pushed;

int device_enter(struct revoff_device *device, int flags, const char *what)
{
	struct revoff_launch *l;
	const char *entry = "cuCtxGetCurrent";
	CUcontext now = NULL;
	CUresult r;

	if (forked())
		return fail(REVOFF_EFORKED,
			    "%s: device %d was opened before this process was "
			    "forked: start the process with the \"spawn\" "
			    "method instead",
			    what, device->ordinal);
	if (flags & ENTER_NO_HANDLER) {
		for (l = serving(); l; l = l->outer)
			if (l->device->platform == device->platform &&
			    l->device->ordinal == device->ordinal)
				return fail(REVOFF_EBUSY,
					    "%s from a handler of the same "
					    "device (kernel %s is waiting): "
					    "it would wait for itself. Do it "
					    "after run() has returned",
					    what, l->kernel->name);
	}
	if (__atomic_load_n(&device->lost, __ATOMIC_RELAXED))
		return fail(REVOFF_ELOST,
			    "%s: the context of device %d was lost by an "
			    "earlier fault (driver error %d): start a new "
			    "process",
			    what, device->ordinal, device->lost);
	/* Asking is cheaper than pushing and popping. */
	r = device->drv->cuCtxGetCurrent(&now);
	if (!r && now != device->context) {
		entry = "cuCtxPushCurrent";
		r = device->drv->cuCtxPushCurrent(device->context);
		if (!r)
			pushed |= 1ull << 63;
	}
	if (r)
		return fail_driver(device->drv, r, entry, "%s", what);
	pushed = pushed >> 1;
	return 0;
}

void device_leave(struct revoff_device *device)
{
	CUcontext context;

	pushed <<= 1;
	if (pushed & 1ull << 63)
		device->drv->cuCtxPopCurrent(&context);
	pushed &= ~(1ull << 63);
}

/* These leave a context in which nothing works any more. */
static int is_fatal(CUresult r)
{
	return r == CUDA_ERROR_ILLEGAL_ADDRESS || r == CUDA_ERROR_ASSERT ||
	       (r >= 714 && r <= 719) || r == 702;
}

int device_result(struct revoff_device *device, CUresult result,
		  const char *entry, const char *what)
{
	if (!result)
		return 0;
	if (is_fatal(result))
		__atomic_store_n(&device->lost, result, __ATOMIC_RELAXED);
	return fail_driver(device->drv, result, entry, "%s", what);
}

static int copy_and_wait(struct revoff_device *device, uint64_t to_device,
			 uint64_t from_device, void *host, size_t size)
{
	const struct revoff_driver *drv = device->drv;
	const char *entry;
	CUresult r = 0, sync;

	pthread_mutex_lock(&device->copy);
	if (to_device) {
		entry = "cuMemcpyHtoDAsync";
		r = drv->cuMemcpyHtoDAsync(to_device, host, size,
					   device->copy_stream);
	} else {
		entry = "cuMemcpyDtoHAsync";
		r = drv->cuMemcpyDtoHAsync(host, from_device, size,
					   device->copy_stream);
	}
	sync = drv->cuStreamSynchronize(device->copy_stream);
	pthread_mutex_unlock(&device->copy);
	if (r)
		return device_result(device, r, entry, "copy");
	return device_result(device, sync, "cuStreamSynchronize", "copy");
}

int device_write(struct revoff_device *device, uint64_t to, const void *from,
		 size_t size)
{
	return copy_and_wait(device, to, 0, (void *)from, size);
}

int device_read(struct revoff_device *device, void *to, uint64_t from,
		size_t size)
{
	return copy_and_wait(device, 0, from, to, size);
}

static int open_streams(struct revoff_device *d)
{
	CUresult r =
		d->drv->cuStreamCreate(&d->copy_stream, CU_STREAM_NON_BLOCKING);

	if (!r)
		r = d->drv->cuStreamCreate(&d->map_stream,
					   CU_STREAM_NON_BLOCKING);
	return device_result(d, r, "cuStreamCreate", "cannot open the device");
}

static int open_controls(struct revoff_device *d)
{
	size_t size = sizeof(d->control_used) / sizeof(d->control_used[0]) *
		      sizeof(struct revoff_control);
	CUdeviceptr address = 0;
	void *page = NULL;
	CUresult r = d->drv->cuMemHostAlloc(&page, size,
					    CU_MEMHOSTALLOC_PORTABLE |
						    CU_MEMHOSTALLOC_DEVICEMAP);

	if (r)
		return device_result(d, r, "cuMemHostAlloc",
				     "no mapped host memory for control words");
	memset(page, 0, size);
	d->controls = page;
	r = d->drv->cuMemHostGetDevicePointer(&address, page, 0);
	d->controls_address = address;
	return device_result(d, r, "cuMemHostGetDevicePointer",
			     "control words");
}

static void close_all(struct revoff_device *d)
{
	const struct revoff_driver *drv = d->drv;

	if (d->context) {
		CUcontext context;
		int entered = !drv->cuCtxPushCurrent(d->context);

		/* Without it the driver refuses, but our own memory goes. */
		mailbox_close(d);
		ports_close(d);
		memory_close(d);
		pool_close(d);
		while (d->nstreams)
			drv->cuStreamDestroy(d->streams[--d->nstreams]);
		if (d->copy_stream)
			drv->cuStreamDestroy(d->copy_stream);
		if (d->map_stream)
			drv->cuStreamDestroy(d->map_stream);
		if (d->controls)
			drv->cuMemFreeHost(d->controls);
		if (entered)
			drv->cuCtxPopCurrent(&context);
		drv->cuDevicePrimaryCtxRelease(d->cu);
	}
	while (d->spare) {
		struct revoff_launch *l = d->spare;

		d->spare = l->next;
		launch_free(l);
	}
	free(d->streams);
	free(d->present);
	free(d->cache);
	pthread_cond_destroy(&d->quiet);
	pthread_mutex_destroy(&d->copy);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int check_placement(struct revoff_device *d)
{
	int p = d->options.placement, t = d->options.transport;

	if (t != REVOFF_TRANSPORT_PORTS && t != REVOFF_TRANSPORT_MAILBOX)
		return fail(REVOFF_EINVAL, "no transport %d", t);
	if (p < REVOFF_PLACE_PINNED || p > REVOFF_PLACE_COPY)
		return fail(REVOFF_EINVAL, "no placement %d", p);
	if (!d->info.can_map_host_memory)
		return fail(REVOFF_EUNSUPPORTED,
			    "device %d (%s) cannot map host memory, which "
			    "pyrevoff needs",
			    d->ordinal, d->info.name);
	if (p == REVOFF_PLACE_MANAGED &&
	    (!d->info.managed_memory || !d->info.concurrent_managed_access ||
	     !d->drv->cuMemAllocManaged))
		return fail(REVOFF_EUNSUPPORTED,
			    "placement \"managed\": device %d (%s) does not "
			    "report concurrent managed access; use \"pinned\" "
			    "or \"copy\"",
			    d->ordinal, d->info.name);
	if (d->platform == REVOFF_PLATFORM_CUDA && d->info.major < 7)
		return fail(REVOFF_EUNSUPPORTED,
			    "device %d (%s) has compute capability %d.%d: "
			    "pyrevoff needs 7.0 (system-scope memory order, "
			    "lanes that wait independently)",
			    d->ordinal, d->info.name, d->info.major,
			    d->info.minor);
	return 0;
}

static int open_context(struct revoff_device *d)
{
	CUresult r = d->drv->cuDevicePrimaryCtxRetain(&d->context, d->cu);
	int rc;

	if (r) {
		d->context = NULL;
		return fail_driver(d->drv, r, "cuDevicePrimaryCtxRetain",
				   "cannot open device %d", d->ordinal);
	}
	rc = device_enter(d, 0, "open");
	if (rc)
		return rc;
	rc = open_streams(d);
	if (!rc)
		rc = open_controls(d);
	if (!rc)
		rc = pool_create(d);
	if (!rc)
		rc = mailbox_open(d);
	device_leave(d);
	return rc;
}

REVOFF_API int revoff_device_open(int platform, int ordinal,
				  const struct revoff_device_options *options,
				  struct revoff_device **device)
{
	const struct revoff_driver *drv;
	struct revoff_device *d;
	int rc = platform_driver(platform, &drv);

	*device = NULL;
	if (rc)
		return rc;
	d = calloc(1, sizeof(*d));
	if (!d)
		return fail(REVOFF_ENOMEM, "out of host memory");
	d->drv = drv;
	d->target_rev = revoff_target_rev;
	d->platform = platform;
	d->ordinal = ordinal;
	if (options)
		d->options = *options;
	if (!d->options.spin_us)
		d->options.spin_us = DEFAULT_SPIN_US;
	if (!d->options.sleep_us)
		d->options.sleep_us = DEFAULT_SLEEP_US;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->copy, NULL);
	pthread_cond_init(&d->quiet, NULL);
	rc = query(drv, ordinal, &d->cu, &d->info);
	if (!rc)
		rc = check_placement(d);
	if (!rc)
		rc = open_context(d);
	if (rc) {
		/* Closing must not overwrite why opening failed. */
		struct revoff_error kept = *error_slot();

		close_all(d);
		*error_slot() = kept;
		return rc;
	}
	*device = d;
	return 0;
}

REVOFF_API int revoff_device_close(struct revoff_device *device)
{
	struct revoff_launch *l;
	CUcontext context;
	int rc = 0, entered;

	if (forked())
		return fail(REVOFF_EFORKED, "close in a forked child");
	for (l = serving(); l; l = l->outer)
		if (l->device == device)
			return fail(REVOFF_EBUSY,
				    "close of device %d from one of its "
				    "handlers",
				    device->ordinal);
	pthread_mutex_lock(&device->lock);
	if (device->nlaunches)
		rc = fail(REVOFF_EBUSY,
			  "device %d cannot be closed: %u kernel%s still run%s",
			  device->ordinal, device->nlaunches,
			  device->nlaunches == 1 ? "" : "s",
			  device->nlaunches == 1 ? "s" : "");
	else if (device->images)
		rc = fail(REVOFF_EBUSY,
			  "device %d cannot be closed: images are loaded",
			  device->ordinal);
	pthread_mutex_unlock(&device->lock);
	if (rc)
		return rc;
	/* The reaper leaves by itself once it has no launch to wait for. */
	for (;;) {
		pthread_mutex_lock(&device->lock);
		rc = device->reaping;
		pthread_mutex_unlock(&device->lock);
		if (!rc)
			break;
		sched_yield();
	}
	entered = !device->drv->cuCtxPushCurrent(device->context);
	pthread_mutex_lock(&device->lock);
	device_flush(device);
	pthread_mutex_unlock(&device->lock);
	if (entered)
		device->drv->cuCtxPopCurrent(&context);
	close_all(device);
	return 0;
}

/* Lock held, no kernel runs: do what had to wait for that. */
void device_flush(struct revoff_device *device)
{
	while (device->graves) {
		struct revoff_image *image = device->graves;

		device->graves = image->next;
		image_destroy(image);
	}
}

int device_wait_quiet(struct revoff_device *device, uint64_t limit_ns,
		      const char *what)
{
	uint64_t end = now_ns() + limit_ns;
	int rc = 0;

	pthread_mutex_lock(&device->lock);
	while (device->nlaunches) {
		struct timespec t;

		if (now_ns() > end) {
			rc = fail(REVOFF_EBUSY,
				  "%s waits for running kernels to end, and "
				  "%u still run after %.0f s",
				  what, device->nlaunches,
				  (double)limit_ns * 1e-9);
			break;
		}
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += 20000000;
		if (t.tv_nsec >= 1000000000) {
			t.tv_nsec -= 1000000000;
			t.tv_sec++;
		}
		pthread_cond_timedwait(&device->quiet, &device->lock, &t);
	}
	pthread_mutex_unlock(&device->lock);
	return rc;
}

REVOFF_API int revoff_device_set_wait(struct revoff_device *device, int wait,
				      unsigned spin_us, unsigned sleep_us)
{
	if (wait < REVOFF_WAIT_ADAPTIVE || wait > REVOFF_WAIT_PATCH)
		return fail(REVOFF_EINVAL, "no wait policy %d", wait);
	device->options.wait = wait;
	device->options.spin_us = spin_us ? spin_us : DEFAULT_SPIN_US;
	device->options.sleep_us = sleep_us ? sleep_us : DEFAULT_SLEEP_US;
	return 0;
}

REVOFF_API void *revoff_device_context(struct revoff_device *device)
{
	return device->context;
}

REVOFF_API void *revoff_device_copy_stream(struct revoff_device *device)
{
	return device->copy_stream;
}

REVOFF_API int revoff_set_target_rev(struct revoff_device *device,
				     revoff_target_rev_fn *callback)
{
	__atomic_store_n(&device->target_rev, /* [callback store] */
			 callback ? callback : revoff_target_rev,
			 __ATOMIC_RELEASE);
	return 0;
}
