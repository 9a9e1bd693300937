/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that calls once and then touches memory that it may not. */
#include <pyrevoff.h>

REVOFF_FUNCTION(nothing, void());

extern "C" __global__ void crash(int *nowhere)
{
	nothing();
	*nowhere = 1;
}
