// Of cuBLAS, c10d's headers name a handle and a status. Found only where NVIDIA's header is not,
// which comes in a wheel of 400 MB.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
