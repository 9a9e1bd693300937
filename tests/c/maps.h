/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of libgomp's entry with lists that a test writes down. */
#ifndef MAPS_H
#define MAPS_H

#include "lab.h"

struct maps {
	struct revoff_device *device;
	struct revoff_image *image;
	struct revoff_kernel *kernel;
	unsigned index;
	uint64_t fn;
	struct revoff_stats stats; /* of the last call */
};

struct map_item {
	uint64_t address;
	uint64_t size;
	uint16_t kind;
};

/* As the kernel's struct step. */
struct maps_step {
	int32_t device, pad;
	uint64_t fn, mapnum, addrs, sizes, kinds;
};

void maps_open(struct maps *m, const struct revoff_device_options *options);
void maps_close(struct maps *m);
/* Call region(); returns what revoff_run gave. */
int maps_call(struct maps *m, const struct map_item *items, unsigned n,
	      revoff_handler *handler, void *user);
/* The same with the count and the step under the test's control. */
int maps_call_raw(struct maps *m, const struct maps_step *step,
		  revoff_handler *handler, void *user);
/* Fresh device memory that holds lab_fill(seed). */
uint64_t maps_device(struct maps *m, size_t size, unsigned seed);
void maps_free(struct maps *m, uint64_t address);
int maps_device_is(struct maps *m, uint64_t address, size_t size,
		   unsigned seed);
void maps_read(struct maps *m, void *to, uint64_t address, size_t size);
void maps_write(struct maps *m, uint64_t address, const void *from,
		size_t size);
/* Three placements, with and without the packet. */
void maps_each_config(void (*test)(struct maps *m));

#endif /* MAPS_H */
