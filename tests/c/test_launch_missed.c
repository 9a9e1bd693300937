/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: no call is dropped in silence (V13): a NULL function, a device
 * number that is not the host's and a call of an image that no host serves are
 * reported by run, with the name or address of the function.
 * Images: typed plain
 * Covers: V13
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	t_check(!"called");
	return 0;
}

static void test(const struct revoff_device_options *o)
{
	static const int numbers[] = { 0, 1, -1, -3 };
	struct revoff_device *d = lab_open(o);
	struct revoff_image *typed = lab_load(d, "typed");
	struct revoff_image *plain = lab_load(d, "plain");
	struct revoff_kernel *wrong = lab_kernel(typed, "wrong");
	struct revoff_kernel *empty = lab_kernel(typed, "empty");
	struct revoff_stats stats;
	int number, null, i;
	void *params[] = { &number, &null };

	lab_bind(typed, "nothing", nothing, NULL);
	for (i = 0; i < 4; ++i) {
		number = numbers[i];
		null = 0;
		lab_refused(lab_run(wrong, 1, 1, params, &stats), REVOFF_ECALL,
			    "wrong", "1 call of", "nothing", "device number");
		t_check(!stats.calls);
	}
	number = -2;
	null = 1;
	lab_refused(lab_run(wrong, 3, 7, params, &stats), REVOFF_ECALL, "wrong",
		    "21 calls", "0x0", "NULL function");
	/* The note is of one launch. */
	lab_ok(lab_run(empty, 1, 1, NULL, NULL));
	t_check(!revoff_image_is_connected(plain));
	lab_refused(lab_run(lab_kernel(plain, "stray"), 1, 1, NULL, &stats),
		    REVOFF_ECALL, "stray", "not connected",
		    "no reverse function in its table");
	lab_ok(revoff_image_unload(plain));
	lab_ok(revoff_image_unload(typed));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
