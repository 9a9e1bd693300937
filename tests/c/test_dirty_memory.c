/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: nothing is taken for zero that was not made so.  The driver's
 * memory and malloc's are filled with rubbish before they are handed out
 * (V3: the device struct; V4, G9: the mailbox and its copies); every placement
 * and place of the lock works from there.
 * Images: typed gomp plain fake-cuda
 * Covers: V3 V4
 */
#include <unistd.h>

#include "cycle.h"

int main(int argc, char **argv)
{
	struct cycle c;
	unsigned i;

	lab_begin(argc, argv);
	/* malloc reads this when the program starts. */
	if (!getenv("MALLOC_PERTURB_")) {
		setenv("MALLOC_PERTURB_", "90", 1);
		setenv("FAKE_CUDA_DIRTY", "1", 1);
		execv("/proc/self/exe", argv);
		t_check(!"execv");
	}
	setenv("PYREVOFF_LIBCUDA", lab_image_path("fake-cuda"), 1);
	lab_platform = REVOFF_PLATFORM_CUDA;
	cycle_prepare(&c);
	for (i = 0; i < 14; ++i) {
		/* Ports, then the mailbox in all its forms. */
		c.options.transport = i < 2 ? REVOFF_TRANSPORT_PORTS
					    : REVOFF_TRANSPORT_MAILBOX;
		c.options.placement = i < 2 ? 0 : (int)((i - 2) / 4);
		c.options.lock = i < 2 ? 0 : (int)((i - 2) / 2 % 2);
		c.options.no_packet = (int)(i % 2);
		fprintf(stderr, "[%s]\n", lab_config_name(&c.options));
		if (cycle_run(&c)) {
			fprintf(stderr, "%s: %s\n", c.step, c.error.text);
			return T_FAIL;
		}
	}
	cycle_done(&c);
	return T_PASS;
}
