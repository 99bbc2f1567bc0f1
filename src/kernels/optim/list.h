/*
 * The optimizers, a file each, in the order in which --help and the manual show them.
 *
 * To add an optimizer, copy lion.h and change it, and add its line below. That is all: kernels for
 * the host and for GPUs, their tables, the parser and the help are made of this list. (A
 * hyperparameter that no optimizer has yet also needs a member in struct mr_optim_opts of
 * millrace/optim.h, and its name in MR_OPTIM_HYPER of optim.h.) An optimizer's file has
 *
 *   OPTIMIZER(name)         its name in texts such as "lion:lr=1e-4"
 *   UPDATE(name, n_state)   an update of a parameter that needs n_state arrays as long as the
 *                           parameters, 0 to MR_OPTIM_STATES. It becomes the kernels
 *                           optim_<name>_f32 and _f64. Some optimizers have several and choose
 *                           among them, some use another one's.
 *   SCALARS(name)           what an update computes once per step, in f64, into c[0..7], from
 *                           h, the hyperparameters; t, the step, from 1; and record, the group's
 *                           record, with its learning rate. c[0] is -lr before, the others 0.
 *                           s: the other scalars of the step
 *   SAME_SCALARS(name, of)  those of another update
 *   ELEMENT(name)           what it computes per parameter, in REAL, from c, the scalars, and g,
 *                           the gradient, scaled, clipped and decayed. *p is the parameter;
 *                           *x, *y, *z are its state. ROOT and SIZE are the square root and the
 *                           absolute value, NAME(greater)(a, b) is the maximum, NaN if one is.
 *   options                 a table of entries (the macros of src/optim/kinds.c), and a struct
 *                           mr_optim_ops, which src/optim/optim.h describes
 *
 * This file is included once for each thing that is made of the list, and has no include guard. The
 * includer defines what it wants: OPTIMIZER, UPDATE, MR_OPTIM_ARITHMETIC (with REAL, NAME, ROOT and
 * SIZE), MR_OPTIM_OPTIONS. The rest expands to nothing, and all of these are undefined at the end.
 */
#ifndef OPTIMIZER
#define OPTIMIZER(name)
#endif
#ifndef UPDATE
#define UPDATE(name, n_state)
#endif

/* clang-format off */
#include "kernels/optim/sgd.h"
#include "kernels/optim/momentum.h"
#include "kernels/optim/nesterov.h"
#include "kernels/optim/adagrad.h"
#include "kernels/optim/adadelta.h"
#include "kernels/optim/rmsprop.h"
#include "kernels/optim/adam.h"
#include "kernels/optim/adamw.h"
#include "kernels/optim/amsgrad.h"
#include "kernels/optim/adamax.h"
#include "kernels/optim/nadam.h"
#include "kernels/optim/radam.h"
#include "kernels/optim/lion.h"
/* clang-format on */

#undef OPTIMIZER
#undef UPDATE
#undef MR_OPTIM_ARITHMETIC
#undef MR_OPTIM_OPTIONS
