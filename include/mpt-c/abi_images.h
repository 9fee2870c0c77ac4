// SPDX-License-Identifier: Apache-2.0
/* Further kinds of mpt_image_desc, beside mpt_image_kind: code with instructions that no other architecture has, such
 * as sm_90a's. It runs on devices of `arch` alone, and is taken there before code that runs on others too. */
#ifndef MPT_C_ABI_IMAGES_H
#define MPT_C_ABI_IMAGES_H

enum {
  MPT_IMAGE_EXACT_PTX = 3,  /* text, ends in a zero byte that counts */
  MPT_IMAGE_EXACT_CUBIN = 4 /* machine code */
};

#endif /* MPT_C_ABI_IMAGES_H */
