/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As a program whose reverse regions all run on the host: the table names one,
 * but nothing calls GOMP_target_ext, so there is no mailbox variable.
 */
extern "C" {
__device__ void region()
{
}
extern void *offload_func_table[] __asm__("$offload_func_table");
__attribute__((used)) void *offload_func_table[] = { 0, (void *)region };

__global__ void touch(int *word)
{
	*word += 1;
}
}
