/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <unistd.h>

#include "lab.h"

int lab_platform = REVOFF_PLATFORM_CPU;
static const char *folder = ".";

int lab_ok_at(const char *file, int line, const char *what, int rc)
{
	if (rc >= 0)
		return rc;
	fprintf(stderr, "%s:%d: %s gave %d: %s\n", file, line, what, rc,
		revoff_last_error()->text);
	exit(T_FAIL);
}

void lab_refused_at(const char *file, int line, const char *what, int rc,
		    int code, const char *const *words)
{
	const struct revoff_error *e = revoff_last_error();
	int bad = rc != code || e->code != code;

	for (; !bad && *words; ++words)
		bad = !strstr(e->text, *words);
	if (!bad)
		return;
	fprintf(stderr, "%s:%d: %s gave %d, not %d with \"%s\": %s\n", file,
		line, what, rc, code, *words ? *words : "", e->text);
	exit(T_FAIL);
}

void lab_begin(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		folder = argv[1];
}

const char *lab_image_path(const char *image)
{
	static __thread char path[4096];

	snprintf(path, sizeof(path), "%s/%s.so", folder, image);
	return path;
}

void *lab_read(const char *image, size_t *size)
{
	FILE *f = fopen(lab_image_path(image), "rb");
	long n;
	char *data;

	if (!f) {
		fprintf(stderr, "no image %s\n", lab_image_path(image));
		exit(T_FAIL);
	}
	t_check(!fseek(f, 0, SEEK_END));
	n = ftell(f);
	t_check(n > 0);
	rewind(f);
	data = malloc((size_t)n);
	t_check(data);
	t_check(fread(data, 1, (size_t)n, f) == (size_t)n);
	fclose(f);
	*size = (size_t)n;
	return data;
}

struct revoff_device *lab_open(const struct revoff_device_options *options)
{
	struct revoff_device *device;

	lab_ok(revoff_device_open(lab_platform, 0, options, &device));
	return device;
}

void lab_close(struct revoff_device *device)
{
	lab_ok(revoff_device_drain(device, LAB_LIMIT));
	lab_ok(revoff_device_close(device));
}

int lab_try_load(struct revoff_device *device, const char *image,
		 const struct revoff_image_options *options,
		 struct revoff_image **out)
{
	struct revoff_input input = { .name = image };
	void *data = lab_read(image, &input.size);
	int rc;

	input.data = data;
	rc = revoff_image_load(device, &input, 1, options, out);
	free(data);
	return rc;
}

struct revoff_image *lab_load(struct revoff_device *device, const char *image)
{
	struct revoff_image *out;

	lab_ok(lab_try_load(device, image, NULL, &out));
	return out;
}

unsigned lab_bind(struct revoff_image *image, const char *function,
		  revoff_handler *handler, void *user)
{
	int index = lab_ok(revoff_image_find(image, function));

	lab_ok(revoff_image_bind(image, (unsigned)index, handler, user));
	return (unsigned)index;
}

struct revoff_kernel *lab_kernel(struct revoff_image *image, const char *name)
{
	struct revoff_kernel *kernel;

	lab_ok(revoff_kernel_get(image, name, &kernel));
	return kernel;
}

int lab_run(struct revoff_kernel *kernel, unsigned grid, unsigned block,
	    void **params, struct revoff_stats *stats)
{
	struct revoff_launch_config config = {
		{ grid, 1, 1 }, { block, 1, 1 }, 0, NULL, params
	};

	return revoff_run(kernel, &config, LAB_LIMIT, stats);
}

struct revoff_launch *lab_start(struct revoff_kernel *kernel, unsigned grid,
				unsigned block, void **params)
{
	struct revoff_launch_config config = {
		{ grid, 1, 1 }, { block, 1, 1 }, 0, NULL, params
	};
	struct revoff_launch *launch;

	lab_ok(revoff_launch_start(kernel, &config, &launch));
	return launch;
}

const char *lab_config_name(const struct revoff_device_options *o)
{
	static const char *const places[] = { "pinned", "managed", "copy" };
	static __thread char name[64];

	if (o->transport == REVOFF_TRANSPORT_PORTS)
		snprintf(name, sizeof(name), "ports, %s",
			 o->no_packet ? "no packet" : "packet");
	else
		snprintf(name, sizeof(name), "%s, lock in %s, %s",
			 places[o->placement],
			 o->lock ? "mailbox" : "device memory",
			 o->no_packet ? "no packet" : "packet");
	return name;
}

void lab_each_config(lab_config_test *test)
{
	unsigned i;

	/* Ports, then the mailbox in all its forms. */
	for (i = 0; i < 14; ++i) {
		unsigned m = i - 2;
		struct revoff_device_options o = {
			.transport = i < 2 ? REVOFF_TRANSPORT_PORTS
					   : REVOFF_TRANSPORT_MAILBOX,
			.placement = i < 2 ? 0 : (int)(m / 4),
			.lock = i < 2 ? 0 : (int)(m / 2 % 2),
			.no_packet = (int)(i % 2),
		};

		fprintf(stderr, "[%s]\n", lab_config_name(&o));
		test(&o);
	}
}

uint64_t lab_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * LAB_SECOND + (uint64_t)t.tv_nsec;
}

void lab_sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

uint32_t lab_get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void lab_set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void lab_await(const uint32_t *word, uint32_t value)
{
	uint64_t end = lab_now() + LAB_LIMIT;

	while (lab_get(word) != value) {
		t_check(lab_now() < end);
		lab_sleep_ms(1);
	}
}

pthread_t lab_thread(void *(*main)(void *), void *argument)
{
	pthread_t thread;

	t_check(!pthread_create(&thread, NULL, main, argument));
	return thread;
}

void lab_join(pthread_t thread)
{
	t_check(!pthread_join(thread, NULL));
}

static unsigned char byte_of(size_t i, unsigned seed)
{
	return (unsigned char)(seed * 37 + i * 11 + (i >> 8) * 3 + 1);
}

void lab_fill(void *memory, size_t size, unsigned seed)
{
	unsigned char *p = memory;
	size_t i;

	for (i = 0; i < size; ++i)
		p[i] = byte_of(i, seed);
}

int lab_is(const void *memory, size_t size, unsigned seed)
{
	const unsigned char *p = memory;
	size_t i;

	for (i = 0; i < size; ++i)
		if (p[i] != byte_of(i, seed))
			return 0;
	return 1;
}
