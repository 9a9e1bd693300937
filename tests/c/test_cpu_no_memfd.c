/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: where the system refuses memfd_create, images are loaded from a
 * private file, which is gone afterwards; where no file can be made either,
 * the log says so.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "cpu_module.h"

static int refuse_memfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int entries(const char *folder)
{
	DIR *d = opendir(folder);
	int n = 0;

	t_check(d);
	while (readdir(d))
		++n;
	closedir(d);
	return n;
}

int main(void)
{
	void *image = t_cpu_compile(
		"extern \"C\" __device__ int v = 0;\n"
		"extern \"C\" __global__ void k(int *x) { *x = ++v; }\n"
		"REVOFF_CPU_KERNEL(k)\n");
	char folder[] = "/tmp/revoff-test-XXXXXX", log[300];
	int *x, options[2] = { CU_JIT_ERROR_LOG_BUFFER,
			       CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[2] = { log, (void *)sizeof(log) }, *p[] = { &x };
	CUmodule m[3];
	int i;

	if (refuse_memfd()) {
		fprintf(stderr, "no seccomp\n");
		return T_SKIP;
	}
	t_check(mkdtemp(folder));
	setenv("TMPDIR", folder, 1);
	t_cpu_open();
	x = t_cpu_pinned(sizeof(*x));
	for (i = 0; i < 3; ++i) {
		t_ok(D->cuModuleLoadDataEx(&m[i], image, 0, NULL, NULL));
		t_check(entries(folder) == 2);
		t_ok(t_cpu_run(t_cpu_kernel(m[i], "k"), 1, 1, p));
		t_check(*x == 1);
	}
	t_check(!rmdir(folder));
	t_check(D->cuModuleLoadDataEx(&m[0], image, 2, options, values) ==
		CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "no file can be made"));
	free(image);
	t_cpu_close();
	return T_PASS;
}
