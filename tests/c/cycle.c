/* SPDX-License-Identifier: Apache-2.0 */
#include "cycle.h"

#define N 3000 /* ints: more than the packet takes */

struct parts {
	struct revoff_device *device;
	struct revoff_image *typed, *gomp, *plain;
	uint64_t a, answer, lists, mapped, word;
	int array[N], back[N];
	char host[256];
	int mapping;
	int calls, regions;
};

static int change(struct revoff_call *call, void *user)
{
	int *v = (int *)(uintptr_t)call->words[0];
	size_t i, n = call->sizes[0] / sizeof(*v);

	++*(int *)user;
	for (i = 0; i < n; ++i)
		v[i] += 1;
	call->result = n;
	return 0;
}

static int region(struct revoff_call *call, void *user)
{
	++*(int *)user;
	memset((void *)(uintptr_t)call->words[0], 7, call->sizes[0]);
	return 0;
}

/* Note the first failure; 1 if there is one. */
static int failed(struct cycle *c, const char *step, int rc)
{
	if (rc >= 0)
		return 0;
	if (!c->rc) {
		c->rc = rc;
		c->error = *revoff_last_error();
		c->step = step;
	}
	return 1;
}

#define STEP(call)                            \
	do {                                  \
		if (failed(c, #call, (call))) \
			return;               \
	} while (0)

static void typed_part(struct cycle *c, struct parts *p)
{
	struct revoff_input in = { c->typed, c->typed_size, REVOFF_INPUT_MODULE,
				   "typed" };
	struct revoff_kernel *kernel;
	int n = N, index, i, answer = 0;
	void *params[] = { &p->a, &n, &p->answer };

	STEP(revoff_image_load(p->device, &in, 1, NULL, &p->typed));
	index = revoff_image_find(p->typed, "change");
	STEP(index);
	STEP(revoff_image_bind(p->typed, (unsigned)index, change, &p->calls));
	STEP(revoff_kernel_get(p->typed, "modify", &kernel));
	STEP(revoff_alloc(p->device, sizeof(p->array), &p->a));
	STEP(revoff_alloc(p->device, sizeof(int), &p->answer));
	for (i = 0; i < N; ++i)
		p->array[i] = i;
	STEP(revoff_copy_to_device(p->device, p->a, p->array,
				   sizeof(p->array)));
	STEP(lab_run(kernel, 1, 1, params, NULL));
	STEP(revoff_copy_from_device(p->device, p->back, p->a,
				     sizeof(p->back)));
	STEP(revoff_copy_from_device(p->device, &answer, p->answer,
				     sizeof(answer)));
	t_check(p->calls == 1 && answer == N);
	for (i = 0; i < N; ++i)
		t_check(p->back[i] == i + 1);
}

static void gomp_part(struct cycle *c, struct parts *p)
{
	static const char *const names[] = { "steps", "region", "region2" };
	struct revoff_image_options io = { names, 3, -1 };
	struct revoff_input in = { c->gomp, c->gomp_size, REVOFF_INPUT_MODULE,
				   "gomp" };
	struct revoff_kernel *kernel;
	struct revoff_function f;
	struct {
		int32_t device, pad;
		uint64_t fn, mapnum, addrs, sizes, kinds;
		uint64_t addr, size;
		uint16_t kind;
	} lists = { .device = -2, .mapnum = 1, .size = 100, .kind = 0x83 };
	int n = 1, index, i;
	void *params[] = { &p->lists, &n };

	STEP(revoff_image_load(p->device, &in, 1, &io, &p->gomp));
	index = revoff_image_find(p->gomp, "region");
	STEP(index);
	STEP(revoff_image_function(p->gomp, (unsigned)index, &f));
	STEP(revoff_image_bind(p->gomp, (unsigned)index, region, &p->regions));
	STEP(revoff_kernel_get(p->gomp, "steps", &kernel));
	STEP(revoff_map_enter(p->device, p->host, sizeof(p->host),
			      REVOFF_MAP_TOFROM, &p->mapped));
	p->mapping = 1;
	STEP(revoff_alloc(p->device, sizeof(lists), &p->lists));
	lists.fn = f.fn;
	lists.addr = p->mapped + 10;
	lists.addrs = p->lists + offsetof(__typeof__(lists), addr);
	lists.sizes = p->lists + offsetof(__typeof__(lists), size);
	lists.kinds = p->lists + offsetof(__typeof__(lists), kind);
	STEP(revoff_copy_to_device(p->device, p->lists, &lists, sizeof(lists)));
	STEP(lab_run(kernel, 1, 1, params, NULL));
	p->mapping = 0;
	STEP(revoff_map_exit(p->device, p->host, sizeof(p->host),
			     REVOFF_MAP_TOFROM));
	t_check(p->regions == 1);
	for (i = 0; i < (int)sizeof(p->host); ++i)
		t_check(p->host[i] == (i >= 10 && i < 110 ? 7 : 1));
}

/* A kernel that cannot call, run without a limit. */
static void plain_part(struct cycle *c, struct parts *p)
{
	struct revoff_input in = { c->plain, c->plain_size, REVOFF_INPUT_MODULE,
				   "plain" };
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, NULL
	};
	struct revoff_kernel *kernel;
	struct revoff_stats stats;
	void *params[] = { &p->word };
	int value = 5, i;

	config.params = params;
	STEP(revoff_image_load(p->device, &in, 1, NULL, &p->plain));
	STEP(revoff_kernel_get(p->plain, "touch", &kernel));
	STEP(revoff_alloc(p->device, sizeof(value), &p->word));
	STEP(revoff_copy_to_device(p->device, p->word, &value, sizeof(value)));
	for (i = 0; i < 2; ++i)
		STEP(revoff_run(kernel, &config, UINT64_MAX,
				i ? &stats : NULL));
	STEP(revoff_copy_from_device(p->device, &value, p->word,
				     sizeof(value)));
	t_check(value == 7);
}

/* What cannot be undone at once is tried again: a fault hits once. */
static void undo(struct cycle *c, const char *what, int (*call)(void *object),
		 void *object)
{
	int rc, turn;

	for (turn = 0; turn < 3; ++turn) {
		rc = call(object);
		if (!failed(c, what, rc))
			return;
	}
	fprintf(stderr, "%s gave %d for good: %s\n", what, rc,
		revoff_last_error()->text);
	exit(T_FAIL);
}

static int unload(void *image)
{
	return revoff_image_unload(image);
}

static int close_device(void *device)
{
	return revoff_device_close(device);
}

static int drain(void *device)
{
	return revoff_device_drain(device, LAB_LIMIT);
}

static void free_all(struct cycle *c, struct parts *p)
{
	uint64_t *all[] = { &p->a, &p->answer, &p->lists, &p->word };
	unsigned i;

	for (i = 0; i < 4; ++i)
		failed(c, "revoff_free", revoff_free(p->device, *all[i]));
	if (p->mapping)
		failed(c, "revoff_map_exit",
		       revoff_map_exit(p->device, p->host, sizeof(p->host),
				       REVOFF_MAP_ALLOC));
}

int cycle_run(struct cycle *c)
{
	struct revoff_device_info info;
	struct parts p;
	int count;

	memset(&p, 0, sizeof(p));
	memset(p.host, 1, sizeof(p.host));
	c->rc = 0;
	c->step = "";
	memset(&c->error, 0, sizeof(c->error));
	if (failed(c, "revoff_device_count",
		   revoff_device_count(lab_platform, &count)) ||
	    failed(c, "revoff_device_query",
		   revoff_device_query(lab_platform, 0, &info)) ||
	    failed(c, "revoff_device_open",
		   revoff_device_open(lab_platform, 0, &c->options, &p.device)))
		return c->rc;
	t_check(count >= 1 && info.name[0]);
	typed_part(c, &p);
	if (!c->rc)
		gomp_part(c, &p);
	if (!c->rc)
		plain_part(c, &p);
	undo(c, "revoff_device_drain", drain, p.device);
	free_all(c, &p);
	if (p.plain)
		undo(c, "revoff_image_unload", unload, p.plain);
	if (p.gomp)
		undo(c, "revoff_image_unload", unload, p.gomp);
	if (p.typed)
		undo(c, "revoff_image_unload", unload, p.typed);
	undo(c, "revoff_device_close", close_device, p.device);
	return c->rc;
}

void cycle_prepare(struct cycle *c)
{
	memset(c, 0, sizeof(*c));
	c->typed = lab_read("typed", &c->typed_size);
	c->gomp = lab_read("gomp", &c->gomp_size);
	c->plain = lab_read("plain", &c->plain_size);
}

void cycle_done(struct cycle *c)
{
	free(c->typed);
	free(c->gomp);
	free(c->plain);
}
