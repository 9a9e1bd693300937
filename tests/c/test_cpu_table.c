/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: every entry of the driver table is there, every error code that
 * we know has a name and a text, and the attributes are as documented.
 */
#include "cpu_module.h"

int main(void)
{
	static const int codes[] = {
		0,   1,	  2,   3,   4,	 100, 101, 200, 201, 209, 218,
		222, 300, 400, 500, 600, 700, 701, 710, 719, 801, 999,
	};
	static const int attributes[][2] = {
		{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
		{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
		{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0 },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
		{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
		{ CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1 },
		{ CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0 },
		{ CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
	};
	const char *name, *text;
	size_t bytes;
	unsigned i;
	int value;

#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	t_check(D->name);
#include "../../csrc/host/driver.def"
#undef REVOFF_DRIVER
	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i) {
		t_ok(D->cuGetErrorName(codes[i], &name));
		t_ok(D->cuGetErrorString(codes[i], &text));
		t_check(!strncmp(name, "CUDA_", 5) && *text);
	}
	t_check(D->cuGetErrorName(12345, &name) == CUDA_ERROR_INVALID_VALUE);
	t_ok(D->cuDriverGetVersion(&value));
	t_check(value == 13000);
	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); ++i) {
		t_ok(D->cuDeviceGetAttribute(&value, attributes[i][0], 0));
		t_check(value == attributes[i][1]);
	}
	t_ok(D->cuDeviceTotalMem(&bytes, 0));
	t_check(bytes > 0);
	return T_PASS;
}
