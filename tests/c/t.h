/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes and checks of the C regression programs. */
#ifndef T_H
#define T_H

#include <stdio.h>
#include <stdlib.h>

enum {
	T_PASS = 0,
	T_FAIL = 1,
	T_SKIP = 77
};

#define t_check(cond)                                                    \
	do {                                                             \
		if (!(cond)) {                                           \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, \
				__LINE__, #cond);                        \
			exit(T_FAIL);                                    \
		}                                                        \
	} while (0)

#endif /* T_H */
