/* SPDX-License-Identifier: Apache-2.0 */
/* The error log among the JIT options of cuModuleLoadDataEx and cuLink*. */
#include "cpu.h"

#include <stdarg.h>
#include <stdio.h>

/*
 * Option values are pointers or numbers in pointer clothes; a size is read on
 * entry and replaced by the number of bytes written.
 */
void cpu_log_open(struct cpu_log *log, unsigned n, const int *options,
		  void **values)
{
	unsigned i;

	*log = (struct cpu_log){ NULL, 0, NULL };
	if (!options || !values)
		return;
	for (i = 0; i < n; ++i) {
		switch (options[i]) {
		case CU_JIT_ERROR_LOG_BUFFER:
			log->buffer = values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			log->size = (size_t)(uintptr_t)values[i];
			log->written = &values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			values[i] = NULL; /* nothing to say */
			break;
		}
	}
	if (!log->size)
		log->buffer = NULL;
	if (log->buffer)
		log->buffer[0] = '\0';
	if (log->written)
		*log->written = NULL;
}

void cpu_log(struct cpu_log *log, const char *format, ...)
{
	va_list list;
	int n;

	if (!log->buffer)
		return;
	va_start(list, format);
	n = vsnprintf(log->buffer, log->size, format, list);
	va_end(list);
	if (n < 0)
		n = 0;
	if ((size_t)n >= log->size)
		n = (int)log->size - 1;
	if (log->written)
		*log->written = (void *)(uintptr_t)n;
}
