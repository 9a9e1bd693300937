/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: unloading waits for no kernel: an image goes at once, its
 * module when the device is quiet; loading waits until then.  The running
 * kernel is not held up, and calls as before.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static uint32_t started, go;
static int count;

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	++count;
	return 0;
}

static void *serve(void *launch)
{
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	return NULL;
}

static void *load(void *device)
{
	struct revoff_image *image = lab_load(device, "typed");

	/* Loading has waited for the kernel. */
	t_check(lab_get(&go));
	return image;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *a, *b;
	struct revoff_launch *launch;
	uint32_t *ps = &started, *pg = &go;
	int calls = 5;
	void *params[] = { &ps, &pg, &calls }, *loaded;
	pthread_t server, loader;

	lab_begin(argc, argv);
	revoff_fault_enable(1);
	d = lab_open(NULL);
	a = lab_load(d, "typed");
	b = lab_load(d, "typed");
	lab_bind(a, "nothing", nothing, NULL);
	launch = lab_start(lab_kernel(a, "hold"), 1, 1, params);
	lab_await(&started, 1);
	server = lab_thread(serve, launch);
	revoff_fault_clear();
	lab_ok(revoff_image_unload(b));
	t_check(!revoff_fault_calls("cuModuleUnload"));
	loader = lab_thread(load, d);
	lab_sleep_ms(30);
	t_check(!revoff_fault_calls("cuModuleLoadDataEx"));
	lab_set(&go, 1);
	lab_join(server);
	t_check(count == 5);
	t_check(revoff_launch_finish(launch) == 1);
	t_check(revoff_fault_calls("cuModuleUnload") == 1);
	t_check(!pthread_join(loader, &loaded));
	lab_ok(revoff_image_unload(loaded));
	lab_ok(revoff_image_unload(a));
	t_check(revoff_fault_calls("cuModuleUnload") == 3);
	lab_close(d);
	return T_PASS;
}
