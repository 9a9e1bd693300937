/* SPDX-License-Identifier: Apache-2.0 */
/* What an image is, told from its bytes alone. */
#include "cpu.h"

#include <elf.h>
#include <string.h>

#if defined(__x86_64__)
#define MACHINE	     EM_X86_64
#define MACHINE_NAME "x86-64"
#elif defined(__aarch64__)
#define MACHINE	     EM_AARCH64
#define MACHINE_NAME "aarch64"
#else
#define MACHINE	     EM_NONE
#define MACHINE_NAME "this machine"
#endif

/*
 * The driver's interface gives no size, so the image must tell: its end is the
 * end of whatever its headers name last.  0 if the headers make no sense.
 */
static size_t image_size(const unsigned char *image, const Elf64_Ehdr *e)
{
	const uint64_t limit = (uint64_t)1 << 40;
	uint64_t end = sizeof(*e), at;
	unsigned i;

	if (e->e_phoff >= limit || e->e_shoff >= limit ||
	    e->e_phentsize != sizeof(Elf64_Phdr) ||
	    (e->e_shnum && e->e_shentsize != sizeof(Elf64_Shdr)))
		return 0;
	at = e->e_phoff + (uint64_t)e->e_phnum * sizeof(Elf64_Phdr);
	end = at > end ? at : end;
	for (i = 0; i < e->e_phnum; ++i) {
		Elf64_Phdr p;

		memcpy(&p, image + e->e_phoff + i * sizeof(p), sizeof(p));
		if (p.p_offset >= limit || p.p_filesz >= limit)
			return 0;
		at = p.p_offset + p.p_filesz;
		end = at > end ? at : end;
	}
	if (!e->e_shoff)
		return end;
	at = e->e_shoff + (uint64_t)e->e_shnum * sizeof(Elf64_Shdr);
	end = at > end ? at : end;
	for (i = 0; i < e->e_shnum; ++i) {
		Elf64_Shdr s;

		memcpy(&s, image + e->e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type == SHT_NOBITS)
			continue;
		if (s.sh_offset >= limit || s.sh_size >= limit)
			return 0;
		at = s.sh_offset + s.sh_size;
		end = at > end ? at : end;
	}
	return end;
}

/* Does this read like PTX?  Comments may come first. */
static int is_ptx(const char *text)
{
	while (*text) {
		if (*text == ' ' || *text == '\t' || *text == '\n' ||
		    *text == '\r') {
			++text;
		} else if (text[0] == '/' && text[1] == '/') {
			while (*text && *text != '\n')
				++text;
		} else if (text[0] == '/' && text[1] == '*') {
			const char *end = strstr(text + 2, "*/");

			if (!end)
				return 0;
			text = end + 2;
		} else {
			return !strncmp(text, ".version", 8);
		}
	}
	return 0;
}

CUresult cpu_image_check(const void *image, size_t *size, struct cpu_log *log)
{
	const unsigned char *bytes = image;
	Elf64_Ehdr e;

	if (is_ptx(image)) {
		cpu_log(log, "this is PTX: the CPU device needs a shared "
			     "object, made from the CUDA C++ source by a host "
			     "C++ compiler");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (!strncmp(image, "\x50\xed\x55\xba", 4)) {
		cpu_log(log, "this is a CUDA fat binary: the CPU device needs "
			     "a shared object, made from the CUDA C++ source "
			     "by a host C++ compiler");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (strncmp(image, ELFMAG, SELFMAG)) {
		cpu_log(log, "the image is not an ELF shared object");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB) {
		cpu_log(log, "the image is not an ELF shared object for this "
			     "machine (" MACHINE_NAME "): it is not 64-bit "
			     "little-endian");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	memcpy(&e, image, sizeof(e));
	if (e.e_machine != MACHINE) {
		cpu_log(log,
			"the image is not an ELF shared object for this "
			"machine (" MACHINE_NAME "): its ELF machine is "
			"%u%s",
			e.e_machine,
			e.e_machine == 190 ? ", a cubin for a GPU" : "");
		return e.e_machine == 190 ? CUDA_ERROR_NO_BINARY_FOR_GPU
					  : CUDA_ERROR_INVALID_IMAGE;
	}
	if (e.e_type != ET_DYN) {
		cpu_log(log,
			"the image is an ELF file of type %u, not a "
			"shared object: link it with -shared",
			e.e_type);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*size = image_size(bytes, &e);
	if (!*size) {
		cpu_log(log, "the image's ELF headers are damaged");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	return CUDA_SUCCESS;
}

/*
 * g++ makes templates' static variables "unique": one for all libraries of the
 * process, which would tie modules to each other and keep them loaded for
 * ever.  Weak is what they are without that extension.
 */
void cpu_image_make_own(char *image)
{
	Elf64_Ehdr e;
	unsigned i;

	memcpy(&e, image, sizeof(e));
	for (i = 0; e.e_shoff && i < e.e_shnum; ++i) {
		Elf64_Shdr s;
		uint64_t at;

		memcpy(&s, image + e.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_DYNSYM)
			continue;
		for (at = 0; at + sizeof(Elf64_Sym) <= s.sh_size;
		     at += sizeof(Elf64_Sym)) {
			char *where = image + s.sh_offset + at;
			Elf64_Sym symbol;

			memcpy(&symbol, where, sizeof(symbol));
			if (ELF64_ST_BIND(symbol.st_info) != STB_GNU_UNIQUE)
				continue;
			symbol.st_info = ELF64_ST_INFO(
				STB_WEAK, ELF64_ST_TYPE(symbol.st_info));
			memcpy(where, &symbol, sizeof(symbol));
		}
	}
}
