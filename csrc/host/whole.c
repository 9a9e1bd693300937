/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an image all there?  A driver is given no size, so it reads on where a
 * file was cut short.
 */
#include <elf.h>
#include <string.h>

#include "internal.h"

/* CUDA's fat binary, as far as its size. */
struct fatbin {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* after the header */
};

static int within(uint64_t at, uint64_t bytes, size_t size)
{
	return at <= size && bytes <= size - at;
}

static int elf_is_whole(const char *data, size_t size)
{
	Elf64_Ehdr e;
	unsigned i;

	if (size < sizeof(e))
		return 0;
	memcpy(&e, data, sizeof(e));
	/* Others are refused by what they are, not by their size. */
	if (e.e_ident[EI_CLASS] != ELFCLASS64 ||
	    e.e_ident[EI_DATA] != ELFDATA2LSB)
		return 1;
	if ((e.e_phnum &&
	     (e.e_phentsize != sizeof(Elf64_Phdr) ||
	      !within(e.e_phoff, e.e_phnum * sizeof(Elf64_Phdr), size))) ||
	    (e.e_shoff && e.e_shnum &&
	     (e.e_shentsize != sizeof(Elf64_Shdr) ||
	      !within(e.e_shoff, e.e_shnum * sizeof(Elf64_Shdr), size))))
		return 0;
	for (i = 0; i < e.e_phnum; ++i) {
		Elf64_Phdr p;

		memcpy(&p, data + e.e_phoff + i * sizeof(p), sizeof(p));
		if (!within(p.p_offset, p.p_filesz, size))
			return 0;
	}
	for (i = 0; e.e_shoff && i < e.e_shnum; ++i) {
		Elf64_Shdr s;

		memcpy(&s, data + e.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_NOBITS &&
		    !within(s.sh_offset, s.sh_size, size))
			return 0;
	}
	return 1;
}

int image_is_whole(const void *data, size_t size)
{
	struct fatbin f;

	if (size >= SELFMAG && !memcmp(data, ELFMAG, SELFMAG))
		return elf_is_whole(data, size);
	if (size >= sizeof(f.magic)) {
		memcpy(&f.magic, data, sizeof(f.magic));
		if (f.magic != 0xba55ed50u)
			return 1;
		if (size < sizeof(f))
			return 0;
		memcpy(&f, data, sizeof(f));
		return within(f.header_bytes, f.bytes, size);
	}
	return 1;
}
