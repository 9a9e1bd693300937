/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: each driver entry is missing in turn.  Without an optional one
 * everything works, or the one thing that needs it says so; without a
 * mandatory one there is no driver, and the error names it.
 * Images: typed gomp plain
 */
#include "cycle.h"

static void without_optional(struct cycle *c, const char *entry)
{
	struct revoff_device_info info;
	struct revoff_device *device;
	struct revoff_image *image;
	int placement, rc;

	for (placement = -1; placement < 3; ++placement) {
		c->options.transport = placement < 0 ? REVOFF_TRANSPORT_PORTS
						     : REVOFF_TRANSPORT_MAILBOX;
		c->options.placement = placement < 0 ? 0 : placement;
		rc = cycle_run(c);
		if (placement == REVOFF_PLACE_MANAGED &&
		    !strcmp(entry, "cuMemAllocManaged")) {
			t_check(rc == REVOFF_EUNSUPPORTED);
			t_check(strstr(c->error.text, "managed"));
			continue;
		}
		if (rc) {
			fprintf(stderr, "without %s: %s says %s\n", entry,
				c->step, c->error.text);
			exit(T_FAIL);
		}
	}
	lab_ok(revoff_device_query(lab_platform, 0, &info));
	if (!strcmp(entry, "cuDeviceTotalMem"))
		t_check(!info.total_memory);
	device = lab_open(NULL);
	image = lab_load(device, "typed");
	rc = revoff_kernel_param_count(lab_kernel(image, "modify"));
	if (!strcmp(entry, "cuFuncGetParamInfo")) {
		size_t offset, size;

		lab_refused(rc, REVOFF_EUNSUPPORTED, "12.4");
		lab_refused(revoff_kernel_param(lab_kernel(image, "modify"), 0,
						&offset, &size),
			    REVOFF_EINVAL, "modify");
	} else {
		t_check(rc == 3);
	}
	lab_ok(revoff_image_unload(image));
	lab_close(device);
}

int main(int argc, char **argv)
{
	struct cycle c;
	struct revoff_device *device;
	struct revoff_device_info info;
	const char *entry;
	unsigned i, optional = 0, mandatory = 0;
	int count;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	revoff_fault_enable(1);
	for (i = 0; (entry = revoff_driver_entry(i)); ++i) {
		revoff_fault_clear();
		lab_ok(revoff_fault_set(entry, 1, -1));
		if (!revoff_driver_entry_mandatory(i)) {
			++optional;
			without_optional(&c, entry);
			continue;
		}
		++mandatory;
		lab_refused(revoff_device_open(lab_platform, 0, NULL, &device),
			    REVOFF_ENODRIVER, entry);
		t_check(!device);
		lab_refused(revoff_device_count(lab_platform, &count),
			    REVOFF_ENODRIVER, entry);
		t_check(!count);
		lab_refused(revoff_device_query(lab_platform, 0, &info),
			    REVOFF_ENODRIVER, entry);
	}
	t_check(!revoff_driver_entry(i) && !revoff_driver_entry(UINT32_MAX));
	t_check(optional >= 5 && mandatory >= 30);
	revoff_fault_clear();
	t_check(!cycle_run(&c));
	lab_refused(revoff_fault_set("cuNothing", 1, 1), REVOFF_EINVAL,
		    "cuNothing");
	cycle_done(&c);
	return T_PASS;
}
