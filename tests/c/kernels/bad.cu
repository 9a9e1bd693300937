/* SPDX-License-Identifier: Apache-2.0 */
/* Images that a loader has to refuse; each define spoils one thing. */
#include <revoff/protocol.h>

#ifndef LINK_ABI
#define LINK_ABI REVOFF_ABI_VERSION
#endif
#ifndef LINK_SIZE
#define LINK_SIZE sizeof(revoff_link)
#endif
#ifndef FN_MAGIC
#define FN_MAGIC REVOFF_DESCRIPTOR_MAGIC
#endif
#ifndef FN_ABI
#define FN_ABI REVOFF_ABI_VERSION
#endif

/* 64 and 944 characters: no room for the NUL that must be there. */
#define C16                                                                   \
	'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', \
		'x', 'x'
#define C64 C16, C16, C16, C16

extern "C" {
#ifdef SHORT_LINK
__device__ revoff_u32 __revoff_link[4] = { LINK_ABI, LINK_SIZE, 0, 0 };
#else
__device__ revoff_link __revoff_link = { LINK_ABI, LINK_SIZE, 0, 0, 0 };
#endif
#ifdef SHORT_VAR
__device__ revoff_u32 __gomp_rev_offload_var = 0;
#else
__device__ revoff_mailbox *__gomp_rev_offload_var = 0;
#endif
#ifdef SHORT_FN
__device__ char __revoff_fn_f[100] = { 1 };
#else
__device__ revoff_descriptor __revoff_fn_f = {
	FN_MAGIC,
	FN_ABI,
	0,
#ifdef ENDLESS_NAME
	{ C64 },
#else
	{ 'f' },
#endif
#ifdef ENDLESS_SIGNATURE
	{ C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64,
	  C16, C16, C16 },
#else
	{ 'v', '(', ')' },
#endif
};
#endif

__global__ void touch(int *word)
{
	*word += 1;
}
}
