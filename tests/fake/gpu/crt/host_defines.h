/* In place of a header of the compiler nvcc, which the wheel of the CUDA runtime lacks: what marks
 * declarations for nvcc is nothing to a C compiler. */
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __cudart_builtin__
#define __device__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __host__
#define __specialization_static static
