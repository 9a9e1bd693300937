/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: an image that speaks another wire, or whose link, mailbox
 * variable or descriptors are damaged, is refused by name before anything of
 * it runs, and leaves nothing behind.  A symbol of another size that only has
 * the prefix is no function.
 * Images: bad bad-abi bad-link-size bad-link-short bad-variable bad-magic
 * Images: bad-function-abi bad-name bad-signature odd-function typed
 */
#include "lab.h"

static const struct {
	const char *image;
	int code;
	const char *word;
} refused[] = {
	{ "bad-abi", REVOFF_EABI, "wire version 99" },
	{ "bad-link-size", REVOFF_EABI, "48 bytes of link" },
	{ "bad-link-short", REVOFF_EABI, "wire version" },
	{ "bad-variable", REVOFF_EIMAGE, "__gomp_rev_offload_var has 4 bytes" },
	{ "bad-magic", REVOFF_EIMAGE, "damaged descriptor" },
	{ "bad-function-abi", REVOFF_EABI,
	  "f was compiled with wire version 7" },
	{ "bad-name", REVOFF_EIMAGE, "damaged descriptor" },
	{ "bad-signature", REVOFF_EIMAGE, "damaged descriptor" },
};

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	unsigned i, turn;

	lab_begin(argc, argv);
	d = lab_open(NULL);
	/* The same without damage. */
	image = lab_load(d, "bad");
	t_check(revoff_image_is_connected(image));
	t_check(revoff_image_find(image, "f") == 0);
	lab_ok(revoff_image_unload(image));
	/* Often enough to use up what a refused image would keep. */
	for (turn = 0; turn < 70; ++turn)
		for (i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
			lab_refused(lab_try_load(d, refused[i].image, NULL,
						 &image),
				    refused[i].code, refused[i].word);
			t_check(!image);
		}
	image = lab_load(d, "odd-function");
	t_check(revoff_image_function_count(image) == 0);
	t_check(!revoff_image_is_connected(image));
	lab_ok(revoff_image_unload(image));
	image = lab_load(d, "typed");
	t_check(revoff_image_is_connected(image));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
