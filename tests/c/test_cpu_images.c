/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what is not a module is refused with the right code and a log
 * that says what to do; linking passes one input through and refuses two.
 */
#include <elf.h>

#include "cpu_module.h"

static int load(const void *image, char *log, size_t size)
{
	int options[2] = { CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
			   CU_JIT_ERROR_LOG_BUFFER };
	void *values[2] = { (void *)size, log };
	CUmodule m;
	int result;

	memset(log, '#', size);
	result = D->cuModuleLoadDataEx(&m, image, 2, options, values);
	t_check(memchr(log, 0, size) && strlen(log) == (size_t)values[0]);
	if (!result)
		t_ok(D->cuModuleUnload(m));
	return result;
}

/* Change the value of __revoff_cpu_abi in the image's own bytes. */
static void set_abi(char *image, unsigned value)
{
	Elf64_Ehdr *e = (Elf64_Ehdr *)image;
	Elf64_Shdr *s = (Elf64_Shdr *)(image + e->e_shoff);
	Elf64_Phdr *p = (Elf64_Phdr *)(image + e->e_phoff);
	unsigned i, j, k, found = 0;

	for (i = 0; i < e->e_shnum; ++i) {
		Elf64_Sym *sym = (Elf64_Sym *)(image + s[i].sh_offset);
		const char *names;

		if (s[i].sh_type != SHT_DYNSYM)
			continue;
		names = image + s[s[i].sh_link].sh_offset;
		for (j = 0; j < s[i].sh_size / sizeof(*sym); ++j) {
			if (strcmp(names + sym[j].st_name, "__revoff_cpu_abi"))
				continue;
			for (k = 0; k < e->e_phnum; ++k) {
				size_t at = sym[j].st_value - p[k].p_vaddr;

				if (p[k].p_type != PT_LOAD ||
				    at >= p[k].p_filesz)
					continue;
				memcpy(image + p[k].p_offset + at, &value,
				       sizeof(value));
				++found;
			}
		}
	}
	t_check(found == 1);
}

int main(void)
{
	static const char source[] =
		"#ifdef OTHER\n"
		"extern \"C\" void missing_function();\n"
		"extern \"C\" void user() { missing_function(); }\n"
		"#endif\n"
		"extern \"C\" __global__ void k() {} REVOFF_CPU_KERNEL(k)\n";
	char log[400], tiny[10], text[1000] = "#define OTHER\n", *image;
	CUlinkState link;
	Elf64_Ehdr *e;
	size_t size, n;
	void *linked;

	t_cpu_open();
	t_check(load("hello", log, 400) == CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "not an ELF"));
	t_check(load("", tiny, 10) == CUDA_ERROR_INVALID_IMAGE);
	t_check(load("//\n// a comment\n\n.version 9.0\n.target sm_75\n", log,
		     400) == CUDA_ERROR_NO_BINARY_FOR_GPU);
	t_check(strstr(log, "PTX") && strstr(log, "shared object"));

	image = t_cpu_compile(source);
	t_ok(load(image, log, 400));
	e = (Elf64_Ehdr *)image;
	n = e->e_shoff + (size_t)e->e_shnum * sizeof(Elf64_Shdr);
	e->e_machine ^= 0x100;
	t_check(load(image, log, 400) == CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "this machine"));
	e->e_machine = 190;
	t_check(load(image, log, 400) == CUDA_ERROR_NO_BINARY_FOR_GPU);
	e->e_machine = EM_X86_64;
#if !defined(__x86_64__)
	e->e_machine = EM_AARCH64;
#endif
	e->e_type = ET_REL;
	t_check(load(image, log, 400) == CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "-shared"));
	e->e_type = ET_DYN;
	e->e_shoff = ~(uint64_t)7;
	t_check(load(image, log, 400) == CUDA_ERROR_INVALID_IMAGE);
	e->e_shoff = n - (size_t)e->e_shnum * sizeof(Elf64_Shdr);

	t_ok(D->cuLinkCreate(0, NULL, NULL, &link));
	t_ok(D->cuLinkAddData(link, CU_JIT_INPUT_CUBIN, image, n, "a", 0, NULL,
			      NULL));
	t_ok(D->cuLinkComplete(link, &linked, &size));
	t_check(size == n && !memcmp(linked, image, n));
	t_ok(load(linked, log, 400));
	t_check(D->cuLinkAddData(link, CU_JIT_INPUT_CUBIN, image, n, "b", 0,
				 NULL, NULL) == CUDA_ERROR_NOT_SUPPORTED);
	t_ok(D->cuLinkDestroy(link));

	strcat(text, source);
	free(image);
	image = t_cpu_compile(text);
	t_check(load(image, log, 400) == CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "missing_function"));
	t_check(load(image, tiny, 10) == CUDA_ERROR_INVALID_IMAGE);
	free(image);

	/* A module of another version. */
	image = t_cpu_compile(source);
	set_abi(image, 77);
	t_check(load(image, log, 400) == CUDA_ERROR_INVALID_IMAGE);
	t_check(strstr(log, "version 77") && strstr(log, "has 2"));
	free(image);
	t_cpu_close();
	return T_PASS;
}
