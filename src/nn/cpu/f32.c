/* The host backend in f32. */
#include "kernels/nn/draw.h"
#include "nn/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define REAL     float
#define FN(name) name##_f32
#define GEMM     mr_nn_gemm_f32
#define EXP      expf
#define LOG      logf
#define TANH     tanhf
#define ERF      erff
#define TABLE    mr_nn_cpu_f32
#include "nn/cpu/pointwise.inc.h"
#include "nn/cpu/products.inc.h"
#include "nn/cpu/window.inc.h"
/* last: it names all of the above */
#include "nn/cpu/table.inc.h"
