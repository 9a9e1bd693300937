/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU device knows of a kernel and a driver does not. */
#include "cpu.h"

int revoff_cpu_param_class(CUfunction function, unsigned index)
{
	struct cpu_function *f = cpu_handle_object(function, CPU_FUNCTION);

	if (!f || index >= f->kernel->nparams)
		return REVOFF_CPU_OTHER;
	return (int)f->kernel->params[index].type;
}
