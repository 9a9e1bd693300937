/* SPDX-License-Identifier: Apache-2.0 */
/* The header, but no function that the host knows of. */
#include <pyrevoff.h>

extern "C" {
__device__ void region()
{
}
__global__ void touch(int *word)
{
	*word += 1;
}
/* A call that no table announces. */
__global__ void stray()
{
	GOMP_target_ext(-2, (void *)region, 0, 0, 0, 0, 0, 0, 0);
}
}
