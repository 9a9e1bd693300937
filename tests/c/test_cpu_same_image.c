/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: an image that is loaded many times makes independent modules:
 * plain, inline and template variables are separate; nothing is left behind.
 */
#include <dirent.h>

#include "cpu_module.h"

static const char source[] =
	"extern \"C\" { __device__ int plain = 5; }\n"
	"template <class T> struct s { static inline int v = 5; };\n"
	"inline int &counter() { static int n = 5; return n; }\n"
	"extern \"C\" __global__ void k(int *out) {\n"
	"	out[0] = plain++; out[1] = s<int>::v++; out[2] = counter()++;\n"
	"} REVOFF_CPU_KERNEL(k)\n";

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	t_check(d);
	while (readdir(d))
		++n;
	closedir(d);
	return n;
}

int main(void)
{
	void *image = t_cpu_compile(source);
	CUdeviceptr first, second;
	int i, j, files, *out;
	void *p[] = { &out };
	CUmodule m[20];
	size_t size;

	t_cpu_open();
	out = t_cpu_pinned(3 * sizeof(*out));
	t_ok(D->cuModuleLoadDataEx(&m[0], image, 0, NULL, NULL));
	t_ok(D->cuModuleUnload(m[0]));
	files = open_files();
	for (i = 0; i < 20; ++i)
		t_ok(D->cuModuleLoadDataEx(&m[i], image, 0, NULL, NULL));
	t_ok(D->cuModuleGetGlobal(&first, &size, m[0], "plain"));
	t_ok(D->cuModuleGetGlobal(&second, &size, m[1], "plain"));
	t_check(size == sizeof(int) && first != second);
	for (i = 0; i < 20; ++i) {
		CUfunction k = t_cpu_kernel(m[i], "k");

		for (j = 0; j <= i % 3; ++j)
			t_ok(t_cpu_run(k, 1, 1, p));
		for (j = 0; j < 3; ++j)
			t_check(out[j] == 5 + i % 3);
	}
	for (i = 0; i < 20; ++i)
		t_ok(D->cuModuleUnload(m[i]));
	for (i = 0; i < 200; ++i) {
		t_ok(D->cuModuleLoadDataEx(&m[0], image, 0, NULL, NULL));
		t_ok(t_cpu_run(t_cpu_kernel(m[0], "k"), 1, 1, p));
		t_check(out[0] == 5 && out[1] == 5 && out[2] == 5);
		t_ok(D->cuModuleUnload(m[0]));
	}
	t_check(open_files() == files);
	free(image);
	t_cpu_close();
	return T_PASS;
}
