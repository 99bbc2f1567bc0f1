/* The host backend in f64. */
#include "kernels/nn/draw.h"
#include "nn/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define REAL     double
#define FN(name) name##_f64
#define GEMM     mr_nn_gemm_f64
#define EXP      exp
#define LOG      log
#define TANH     tanh
#define ERF      erf
#define TABLE    mr_nn_cpu_f64
#include "nn/cpu/pointwise.inc.h"
#include "nn/cpu/products.inc.h"
#include "nn/cpu/window.inc.h"
/* last: it names all of the above */
#include "nn/cpu/table.inc.h"
