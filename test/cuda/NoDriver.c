// SPDX-License-Identifier: Apache-2.0
/* A libcuda.so.1 for machines without a driver, so that cuDNN's parts can be loaded and asked for engines: it takes
 * code and never runs any. */
#define MPT_EXPORT __attribute__((visibility("default")))
#define MPT_NOTHING(name)                                                                                              \
  MPT_EXPORT int name(void) { return 0; }
#define MPT_HANDLE(name)                                                                                               \
  MPT_EXPORT int name(void **handle) {                                                                                 \
    static int thing;                                                                                                  \
    *handle = &thing;                                                                                                  \
    return 0;                                                                                                          \
  }
/* clang-format off */
MPT_NOTHING(cuCtxGetCurrent)
MPT_NOTHING(cuCtxGetLimit)
MPT_NOTHING(cuCtxPopCurrent)
MPT_NOTHING(cuCtxPushCurrent)
MPT_NOTHING(cuDeviceGet)
MPT_NOTHING(cuDeviceGetCount)
MPT_NOTHING(cuGetErrorName)
MPT_NOTHING(cuGetErrorString)
MPT_NOTHING(cuKernelSetAttribute)
MPT_NOTHING(cuLaunchCooperativeKernel)
MPT_NOTHING(cuLaunchKernel)
MPT_NOTHING(cuLaunchKernelEx)
MPT_NOTHING(cuLibraryUnload)
MPT_NOTHING(cuLinkAddData)
MPT_NOTHING(cuLinkComplete)
MPT_NOTHING(cuLinkCreate)
MPT_NOTHING(cuLinkDestroy)
MPT_NOTHING(cuModuleUnload)
MPT_NOTHING(cuOccupancyMaxPotentialClusterSize)
MPT_NOTHING(cuStreamGetCtx)
MPT_NOTHING(cuTensorMapEncodeIm2col)
MPT_NOTHING(cuTensorMapEncodeTiled)
MPT_HANDLE(cuKernelGetFunction)
MPT_HANDLE(cuLibraryGetKernel)
MPT_HANDLE(cuLibraryLoadFromFile)
MPT_HANDLE(cuModuleGetFunction)
/* clang-format on */
/* Sees the code that a library has compiled. */
MPT_EXPORT void (*mpt_see_code)(const void *image);
#define MPT_CODE(name)                                                                                                 \
  MPT_EXPORT int name(void **handle, const void *image) {                                                              \
    static int thing;                                                                                                  \
    *handle = &thing;                                                                                                  \
    if (mpt_see_code)                                                                                                  \
      mpt_see_code(image);                                                                                             \
    return 0;                                                                                                          \
  }
MPT_CODE(cuLibraryLoadData)
MPT_CODE(cuModuleLoadData)
MPT_EXPORT int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}
MPT_EXPORT int cuKernelGetAttribute(int *value) {
  *value = 0;
  return 0;
}
