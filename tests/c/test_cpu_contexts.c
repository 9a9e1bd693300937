/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: contexts are per device and counted, the current one is per
 * thread, releasing the last ends kernels that wait for ever, and a forked
 * child is refused.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "cpu_module.h"

static const char source[] =
	"extern \"C\" __global__ void ever() { for (;;) __nanosleep(100); }\n"
	"REVOFF_CPU_KERNEL(ever)\n";

static void *other_thread(void *argument)
{
	CUcontext c = (CUcontext)1;
	CUdeviceptr a;

	(void)argument;
	t_ok(D->cuCtxGetCurrent(&c));
	t_check(!c);
	t_check(D->cuMemAlloc(&a, 8) == CUDA_ERROR_INVALID_CONTEXT);
	return NULL;
}

int main(void)
{
	CUcontext c[3], again, top;
	CUdeviceptr a;
	pthread_t thread;
	CUfunction k;
	CUstream s;
	uint64_t begin;
	int i, n, status;
	char name[80];
	pid_t child;

	setenv("PYREVOFF_CPU_DEVICES", "3", 1);
	t_ok(D->cuDeviceGetCount(&n));
	t_check(n == 3);
	for (i = 0; i < 3; ++i) {
		t_ok(D->cuDevicePrimaryCtxRetain(&c[i], i));
		t_ok(D->cuDeviceGetName(name, sizeof(name), i));
		t_check(strstr(name, "CPU"));
		t_ok(D->cuCtxPushCurrent(c[i]));
	}
	t_check(c[0] != c[1] && c[1] != c[2]);
	t_ok(D->cuDevicePrimaryCtxRetain(&again, 1));
	t_check(again == c[1]);
	t_check(!pthread_create(&thread, NULL, other_thread, NULL));
	pthread_join(thread, NULL);
	k = t_cpu_kernel(t_cpu_load(source), "ever");
	t_ok(D->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	t_ok(D->cuLaunchKernel(k, 9, 1, 1, 100, 1, 1, 0, s, NULL, NULL));
	t_ok(D->cuCtxPopCurrent(&top));
	t_check(top == c[2]);
	/* A function of another context is no handle of this one. */
	t_check(D->cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) ==
		CUDA_ERROR_INVALID_HANDLE);
	usleep(20000);
	t_check(D->cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
	begin = t_now();
	t_ok(D->cuDevicePrimaryCtxRelease(2));
	t_check(t_now() - begin < 5000000000u);
	t_check(D->cuStreamQuery(s) == CUDA_ERROR_INVALID_HANDLE);
	t_ok(D->cuDevicePrimaryCtxRelease(1));
	t_ok(D->cuMemAlloc(&a, 8));
	t_ok(D->cuDevicePrimaryCtxRelease(1));
	t_check(D->cuMemAlloc(&a, 8) == CUDA_ERROR_INVALID_CONTEXT);
	t_ok(D->cuCtxPopCurrent(&top));
	t_check(top == c[1]);
	t_ok(D->cuMemAlloc(&a, 8));

	fflush(NULL);
	child = fork();
	t_check(child >= 0);
	if (!child)
		_exit(D->cuMemAlloc(&a, 8) == CUDA_ERROR_NOT_INITIALIZED
			      ? T_PASS
			      : T_FAIL);
	t_check(waitpid(child, &status, 0) == child);
	t_check(WIFEXITED(status) && WEXITSTATUS(status) == T_PASS);
	t_ok(D->cuDevicePrimaryCtxRelease(0));
	return T_PASS;
}
