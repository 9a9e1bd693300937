/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: libcuda.so.1 is found by PYREVOFF_LIBCUDA, and nothing links to
 * it: a missing file, a file that is no library, a driver that lacks a symbol
 * or does not start are errors that say so, and a later try with a good one
 * works in all placements.  A device that cannot do it is refused (V20).
 * Images: typed gomp plain fake-cuda fake-cuda-without-cuLaunchKernel
 * Images: fake-cuda-without-cuMemFree_v2 fake-cuda-without-cuMemAllocManaged
 * Covers: V20
 */
#include "cycle.h"

static void use(const char *library)
{
	t_check(!setenv("PYREVOFF_LIBCUDA", library, 1));
}

static void refused(int code, const char *word, const char *more)
{
	struct revoff_device *device;
	struct revoff_device_info info;
	int count = 7;

	lab_refused(revoff_device_count(REVOFF_PLATFORM_CUDA, &count), code,
		    word, more);
	t_check(!count);
	lab_refused(revoff_device_open(REVOFF_PLATFORM_CUDA, 0, NULL, &device),
		    code, word, more);
	t_check(!device);
	lab_refused(revoff_device_query(REVOFF_PLATFORM_CUDA, 0, &info), code,
		    word, more);
}

static void unable(const char *variable, const char *value, int placement,
		   const char *word)
{
	struct revoff_device_options o = { .placement = placement };
	struct revoff_device *device;

	setenv(variable, value, 1);
	lab_refused(revoff_device_open(REVOFF_PLATFORM_CUDA, 0, &o, &device),
		    REVOFF_EUNSUPPORTED, word);
	t_check(!device);
	unsetenv(variable);
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { .placement = 3 };
	struct revoff_device_info info;
	struct revoff_device *device;
	struct cycle c;
	int placement, count;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	use("/nonexistent/libcuda.so.1");
	refused(REVOFF_ENODRIVER, "/nonexistent/libcuda.so.1",
		"PYREVOFF_DEVICE=cpu");
	use(argv[0]); /* a program */
	refused(REVOFF_ENODRIVER, argv[0], "no CUDA driver");
	use(lab_image_path("typed")); /* a library, of something else */
	refused(REVOFF_ENODRIVER, "lacks cuInit", "too old");
	use(lab_image_path("fake-cuda-without-cuLaunchKernel"));
	refused(REVOFF_ENODRIVER, "lacks cuLaunchKernel", "too old");
	use(lab_image_path("fake-cuda-without-cuMemFree_v2"));
	refused(REVOFF_ENODRIVER, "lacks cuMemFree_v2", "too old");
	use(lab_image_path("fake-cuda"));
	setenv("FAKE_CUDA_INIT", "999", 1);
	refused(REVOFF_ENODRIVER, "does not start", "cuInit");
	t_check(revoff_last_error()->driver_code == 999);
	setenv("FAKE_CUDA_INIT", "100", 1);
	refused(REVOFF_ENODEVICE, "does not start", "CUDA_ERROR_NO_DEVICE");
	unsetenv("FAKE_CUDA_INIT");

	/* From here on a driver is there. */
	use(lab_image_path("fake-cuda-without-cuMemAllocManaged"));
	lab_platform = REVOFF_PLATFORM_CUDA;
	lab_ok(revoff_device_count(REVOFF_PLATFORM_CUDA, &count));
	t_check(count >= 1);
	lab_refused(revoff_device_query(REVOFF_PLATFORM_CUDA, count, &info),
		    REVOFF_ENODEVICE, "no device");
	lab_refused(revoff_device_query(REVOFF_PLATFORM_CUDA, -1, &info),
		    REVOFF_ENODEVICE, "no device -1");
	lab_refused(revoff_device_query(7, 0, &info), REVOFF_EINVAL,
		    "platform 7");
	for (placement = 0; placement < 3; ++placement) {
		c.options.placement = placement;
		if (placement == REVOFF_PLACE_MANAGED)
			t_check(cycle_run(&c) == REVOFF_EUNSUPPORTED);
		else if (cycle_run(&c))
			lab_ok(c.rc);
	}
	unable("FAKE_CUDA_MAJOR", "6", REVOFF_PLACE_PINNED,
	       "compute capability 6.0");
	unable("FAKE_CUDA_NO_MAPPING", "1", REVOFF_PLACE_COPY,
	       "cannot map host memory");
	unable("FAKE_CUDA_NO_CONCURRENT", "1", REVOFF_PLACE_MANAGED,
	       "concurrent managed access");
	lab_refused(revoff_device_open(REVOFF_PLATFORM_CUDA, 0, &o, &device),
		    REVOFF_EINVAL, "placement 3");
	cycle_done(&c);
	return T_PASS;
}
