/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C regression programs share.  A program gets the folder of its
 * images as its first argument; lab_* functions end it with T_FAIL when
 * something that must work does not.
 */
#ifndef LAB_H
#define LAB_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include <revoff/protocol.h>

#include "driver.h"
#include "revoff.h"
#include "t.h"

/* A negative result fails the program and tells the library's error. */
#define lab_ok(call) lab_ok_at(__FILE__, __LINE__, #call, (call))
int lab_ok_at(const char *file, int line, const char *what, int rc);

/* rc must be code, and the error's text must hold each of the words. */
#define lab_refused(rc, code, ...)                            \
	lab_refused_at(__FILE__, __LINE__, #rc, (rc), (code), \
		       (const char *const[]){ __VA_ARGS__, NULL })
void lab_refused_at(const char *file, int line, const char *what, int rc,
		    int code, const char *const *words);

#define LAB_SECOND 1000000000ull
/* Nothing that a program waits for takes longer. */
#define LAB_LIMIT (40 * LAB_SECOND)

void lab_begin(int argc, char **argv);
/* Which driver table: REVOFF_PLATFORM_CPU unless set otherwise. */
extern int lab_platform;
const char *lab_image_path(const char *image);
void *lab_read(const char *image, size_t *size);

struct revoff_device *lab_open(const struct revoff_device_options *options);
void lab_close(struct revoff_device *device);
struct revoff_image *lab_load(struct revoff_device *device, const char *image);
int lab_try_load(struct revoff_device *device, const char *image,
		 const struct revoff_image_options *options,
		 struct revoff_image **out);
unsigned lab_bind(struct revoff_image *image, const char *function,
		  revoff_handler *handler, void *user);
struct revoff_kernel *lab_kernel(struct revoff_image *image, const char *name);
/* revoff_run with LAB_LIMIT; params as cuLaunchKernel. */
int lab_run(struct revoff_kernel *kernel, unsigned grid, unsigned block,
	    void **params, struct revoff_stats *stats);
struct revoff_launch *lab_start(struct revoff_kernel *kernel, unsigned grid,
				unsigned block, void **params);

/* Every placement, with and without the packet, both places of the lock. */
typedef void lab_config_test(const struct revoff_device_options *options);
void lab_each_config(lab_config_test *test);
const char *lab_config_name(const struct revoff_device_options *options);

/* Wait (bounded) until *word has the value. */
void lab_await(const uint32_t *word, uint32_t value);
void lab_set(uint32_t *word, uint32_t value);
uint32_t lab_get(const uint32_t *word);
void lab_sleep_ms(unsigned ms);
uint64_t lab_now(void);
pthread_t lab_thread(void *(*main)(void *), void *argument);
void lab_join(pthread_t thread);

/* The hash that kernels and handlers check a counter with. */
static inline uint64_t lab_mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

/* Bytes that tell where they came from: seed and position. */
void lab_fill(void *memory, size_t size, unsigned seed);
int lab_is(const void *memory, size_t size, unsigned seed);

#endif /* LAB_H */
