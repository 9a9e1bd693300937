/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher MODULE KERNEL GRID BLOCK SHARED: run a kernel that counts its
 * errors and its threads, 20 times, and check both.
 */
#include "../c/cpu_module.h"

int main(int argc, char **argv)
{
	unsigned *errors, *threads, grid, block, shared, run;
	void *p[] = { &errors, &threads }, *image;
	CUfunction f;
	CUmodule m;
	FILE *file;
	long size;

	t_check(argc == 6);
	file = fopen(argv[1], "rb");
	t_check(file && !fseek(file, 0, SEEK_END));
	size = ftell(file);
	rewind(file);
	image = malloc((size_t)size);
	t_check(image && fread(image, 1, (size_t)size, file) == (size_t)size);
	fclose(file);
	t_cpu_open();
	t_ok(D->cuModuleLoadDataEx(&m, image, 0, NULL, NULL));
	free(image);
	f = t_cpu_kernel(m, argv[2]);
	grid = (unsigned)atoi(argv[3]);
	block = (unsigned)atoi(argv[4]);
	shared = (unsigned)atoi(argv[5]);
	errors = t_cpu_pinned(sizeof(*errors));
	threads = t_cpu_pinned(sizeof(*threads));
	for (run = 0; run < 20; ++run) {
		*threads = 0;
		t_ok(D->cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, NULL,
				       p, NULL));
		t_ok(D->cuStreamSynchronize(NULL));
		t_check(*errors == 0);
		t_check(*threads == grid * block);
	}
	t_cpu_close();
	return T_PASS;
}
