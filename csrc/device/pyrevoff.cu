/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device library: what code generated for libgomp links against.  Built
 * to ptx/pyrevoff.ptx ("make ptx"); everything is in the header.
 */
#define REVOFF_LIBRARY
#include <revoff/device.h>
