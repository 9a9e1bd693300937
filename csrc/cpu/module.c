/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: shared objects that a host C++ compiler made from CUDA C++. */
#include "cpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cpu_module *modules; /* under lock */

/* ---- loading ------------------------------------------------------------- */

static int write_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

/*
 * dlopen takes two libraries for the same if their names or their inodes are
 * equal.  The inode is new for each load; the name "/proc/self/fd/5" is not,
 * so the serial number is spelled into it: "./" is a one, ".//" a zero.
 */
static void unique_name(char *name, size_t size, int fd, uint64_t serial)
{
	size_t n = (size_t)snprintf(name, size, "/proc/self/fd/");

	for (; serial && n + 16 < size; serial >>= 1)
		n += (size_t)snprintf(name + n, size - n, "%s",
				      serial & 1 ? "./" : ".//");
	snprintf(name + n, size - n, "%d", fd);
}

static void *open_memfd(const void *image, size_t size, uint64_t serial)
{
	void *library = NULL;
	char name[256];
	int fd;

	fd = memfd_create("pyrevoff-image", MFD_CLOEXEC);
	if (fd < 0)
		return NULL;
	unique_name(name, sizeof(name), fd, serial);
	if (!write_all(fd, image, size))
		library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	close(fd);
	return library;
}

/* Where memfd_create or /proc is refused. */
static void *open_file(const void *image, size_t size, uint64_t serial)
{
	const char *folder = getenv("TMPDIR");
	void *library = NULL;
	char name[PATH_MAX];
	int fd;

	snprintf(name, sizeof(name), "%s/pyrevoff-%ld-%llu-XXXXXX",
		 folder && *folder ? folder : "/tmp", (long)getpid(),
		 (unsigned long long)serial);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (!write_all(fd, image, size))
		library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	unlink(name);
	close(fd);
	return library;
}

/* What the library occupies, from the program headers in its image. */
static CUresult find_segments(struct cpu_module *m, const unsigned char *image)
{
	struct link_map *map;
	Elf64_Ehdr e;
	unsigned i;

	if (dlinfo(m->library, RTLD_DI_LINKMAP, &map))
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&e, image, sizeof(e));
	m->segments = calloc((size_t)e.e_phnum + 1, sizeof(*m->segments));
	if (!m->segments)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < e.e_phnum; ++i) {
		struct cpu_segment *s = &m->segments[m->nsegments];
		Elf64_Phdr p;

		memcpy(&p, image + e.e_phoff + i * sizeof(p), sizeof(p));
		if (p.p_type == PT_TLS)
			m->tls_size = p.p_memsz;
		if (p.p_type != PT_LOAD || !p.p_memsz)
			continue;
		s->start = map->l_addr + p.p_vaddr;
		s->end = s->start + p.p_memsz;
		s->writable = !!(p.p_flags & PF_W);
		s->executable = !!(p.p_flags & PF_X);
		++m->nsegments;
		if (cpu_range_add(s->start, p.p_memsz,
				  s->writable ? CPU_WRITABLE_IMAGE
					      : CPU_READONLY_IMAGE,
				  m->context)) {
			--m->nsegments;
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return CUDA_SUCCESS;
}

static struct cpu_segment *segment_of(const struct cpu_module *m, uintptr_t at)
{
	unsigned i;

	for (i = 0; i < m->nsegments; ++i)
		if (at - m->segments[i].start <
		    m->segments[i].end - m->segments[i].start)
			return &m->segments[i];
	return NULL;
}

int cpu_module_has_code(const struct cpu_module *m, uintptr_t pc)
{
	struct cpu_segment *s = segment_of(m, pc);

	return s && s->executable;
}

static CUresult connect(struct cpu_module *m, struct cpu_log *log)
{
	const struct revoff_cpu_runtime **runtime;
	const unsigned *abi;

	abi = dlsym(m->library, "__revoff_cpu_abi");
	if (!abi || !segment_of(m, (uintptr_t)abi)) {
		cpu_log(log, "the shared object was not compiled for the CPU "
			     "device: it lacks __revoff_cpu_abi (compile with "
			     "-include revoff/cpu.h)");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (*abi != REVOFF_CPU_ABI) {
		cpu_log(log,
			"the shared object has version %u of the CPU "
			"device's interface, this library has %u: compile "
			"it again",
			*abi, REVOFF_CPU_ABI);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	m->table = dlsym(m->library, "__revoff_cpu_module");
	runtime = dlsym(m->library, "__revoff_cpu_runtime");
	if (!m->table || !runtime) {
		cpu_log(log, "the shared object lacks %s",
			m->table ? "__revoff_cpu_runtime"
				 : "__revoff_cpu_module");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*runtime = &revoff_cpu_runtime;
	return CUDA_SUCCESS;
}

static void destroy(struct cpu_module *m)
{
	struct cpu_function *f, *next;
	unsigned i;

	for (f = m->functions; f; f = next) {
		next = f->next;
		free(f);
	}
	for (i = 0; i < m->nsegments; ++i)
		cpu_range_remove(m->segments[i].start);
	if (m->library)
		dlclose(m->library);
	free(m->segments);
	free(m);
}

void cpu_module_use(struct cpu_module *m)
{
	atomic_fetch_add(&m->uses, 1);
}

void cpu_module_drop(struct cpu_module *m)
{
	if (atomic_fetch_sub(&m->uses, 1) == 1)
		destroy(m);
}

static CUresult load(struct cpu_module *m, const void *image, size_t size,
		     struct cpu_log *log)
{
	char *own = malloc(size);
	CUresult result;
	const char *text;

	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(own, image, size);
	cpu_image_make_own(own);
	m->library = open_memfd(own, size, m->serial);
	/* A library that is wrong in itself fails a second time. */
	if (!m->library)
		m->library = open_file(own, size, m->serial);
	free(own);
	if (!m->library) {
		text = dlerror();
		cpu_log(log, "the shared object cannot be loaded: %s",
			text ? text : "no file can be made for it");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	result = find_segments(m, image);
	return result ? result : connect(m, log);
}

CUresult cpu_cuModuleLoadDataEx(CUmodule *module, const void *image,
				unsigned noptions, int *options, void **values)
{
	static _Atomic(uint64_t) serial;
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_module *m;
	struct cpu_log log;
	size_t size;

	if (result)
		return result;
	if (!module || !image || (noptions && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	cpu_log_open(&log, noptions, options, values);
	result = cpu_image_check(image, &size, &log);
	if (result)
		return result;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->context = context;
	m->serial = atomic_fetch_add(&serial, 1) + 1;
	atomic_store(&m->uses, 1);
	result = load(m, image, size, &log);
	if (!result) {
		m->handle = cpu_handle_new(CPU_MODULE, m);
		if (!m->handle)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result) {
		destroy(m);
		return result;
	}
	pthread_mutex_lock(&lock);
	m->next = modules;
	modules = m;
	pthread_mutex_unlock(&lock);
	*module = m->handle;
	return CUDA_SUCCESS;
}

/* Handles end here; code and data when the last launch has ended. */
static void retire(struct cpu_module *m)
{
	struct cpu_function *f;

	cpu_handle_drop(m->handle);
	for (f = m->functions; f; f = f->next)
		cpu_handle_drop(f->handle);
	cpu_module_drop(m);
}

CUresult cpu_cuModuleUnload(CUmodule module)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_module **p, *m = NULL;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	for (p = &modules; *p; p = &(*p)->next) {
		if ((*p)->handle == (void *)module) {
			m = *p;
			*p = m->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	retire(m);
	return CUDA_SUCCESS;
}

void cpu_module_reset(CUcontext context)
{
	struct cpu_module **p, *m, *mine = NULL;

	pthread_mutex_lock(&lock);
	for (p = &modules; *p;) {
		m = *p;
		if (m->context != context) {
			p = &m->next;
			continue;
		}
		*p = m->next;
		m->next = mine;
		mine = m;
	}
	pthread_mutex_unlock(&lock);
	while (mine) {
		m = mine;
		mine = m->next;
		retire(m);
	}
}

/* ---- looking things up --------------------------------------------------- */

/*
 * By the name in the source; or by the mangled one, which is how the driver
 * knows a kernel without extern "C".
 */
static const struct revoff_cpu_kernel *find_kernel(struct cpu_module *m,
						   const char *name)
{
	const struct revoff_cpu_kernel *const *k;
	void *entry;

	for (k = m->table->first; k < m->table->last; ++k)
		if (!strcmp((*k)->name, name))
			return *k;
	if (strncmp(name, "_Z", 2))
		return NULL;
	entry = dlsym(m->library, name);
	for (k = m->table->first; entry && k < m->table->last; ++k)
		if ((uintptr_t)(*k)->entry == (uintptr_t)entry)
			return *k;
	return NULL;
}

CUresult cpu_cuModuleGetFunction(CUfunction *function, CUmodule module,
				 const char *name)
{
	const struct revoff_cpu_kernel *kernel;
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_module *m;
	struct cpu_function *f;

	if (result)
		return result;
	if (!function || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	m = cpu_handle_object(module, CPU_MODULE);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = find_kernel(m, name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&lock);
	for (f = m->functions; f && f->kernel != kernel; f = f->next)
		;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (f) {
			f->module = m;
			f->kernel = kernel;
			f->handle = cpu_handle_new(CPU_FUNCTION, f);
		}
		if (f && f->handle) {
			f->next = m->functions;
			m->functions = f;
		} else {
			free(f);
			f = NULL;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*function = f->handle;
	return CUDA_SUCCESS;
}

CUresult cpu_cuModuleGetGlobal(CUdeviceptr *address, size_t *size,
			       CUmodule module, const char *name)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_module *m;
	ElfW(Sym) *symbol = NULL;
	Dl_info info;
	void *p;

	if (result)
		return result;
	if (!name || !*name || (!address && !size))
		return CUDA_ERROR_INVALID_VALUE;
	m = cpu_handle_object(module, CPU_MODULE);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	/*
	 * dlsym also looks into what the library depends on, and gives this
	 * thread's copy of a __shared__ variable: neither is a device global.
	 */
	p = dlsym(m->library, name);
	if (!p || !segment_of(m, (uintptr_t)p) ||
	    !dladdr1(p, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol ||
	    ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
		return CUDA_ERROR_NOT_FOUND;
	if (address)
		*address = (uintptr_t)p;
	if (size)
		*size = symbol->st_size;
	return CUDA_SUCCESS;
}

CUresult cpu_cuFuncLoad(CUfunction function)
{
	return cpu_handle_object(function, CPU_FUNCTION)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cpu_cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
	struct cpu_function *f = cpu_handle_object(function, CPU_FUNCTION);

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = CPU_MAX_THREADS;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		/* Of all kernels of the module: the compiler lays out one. */
		*value = f->module->tls_size > INT_MAX
				 ? INT_MAX
				 : (int)f->module->tls_size;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)cpu_stack_size();
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = CPU_DYNAMIC_SHARED;
		break;
	case 2: /* constant memory */
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
	case 5: /* PTX version */
	case 6: /* binary version */
	case 7: /* cache mode */
		*value = 0;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* There is nothing to set: a kernel may use all of dynamic shared memory. */
CUresult cpu_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
	if (!cpu_handle_object(function, CPU_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
	    attribute != 9 /* preferred carve-out */)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
	    (value < 0 || value > CPU_DYNAMIC_SHARED))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cpu_cuFuncGetParamInfo(CUfunction function, size_t index,
				size_t *offset, size_t *size)
{
	struct cpu_function *f = cpu_handle_object(function, CPU_FUNCTION);

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!offset || index >= f->kernel->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->kernel->params[index].offset;
	if (size)
		*size = f->kernel->params[index].size;
	return CUDA_SUCCESS;
}
