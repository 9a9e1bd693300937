/* SPDX-License-Identifier: Apache-2.0 */
/* An image that has never heard of pyrevoff. */
extern "C" __global__ void touch(int *word)
{
	*word += 1;
}
