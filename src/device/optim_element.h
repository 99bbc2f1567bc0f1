/*
 * One element of each optimizer's step; included by kernels_optim.h once a dtype, with REAL, NAME, ROOT and SIZE defined. No
 * include guard.
 *
 * c: struct mr_optim_scalars.c in REAL. g: the gradient, scaled, clipped, decayed. p: the parameter. x, y, z: its state; an
 * optimizer that has fewer does not look at the others.
 */

/* NaN on either side stays, as in torch.maximum. */
MR_ELEMENT REAL NAME(greater)(REAL a, REAL b)
{
    return a > b || a != a ? a : b;
}

MR_ELEMENT void NAME(sgd)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)x, (void)y, (void)z;
    *p = *p + c[0] * g;
}

MR_ELEMENT void NAME(momentum)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)y, (void)z;
    *x = c[1] * *x + c[2] * g;
    *p = *p + c[0] * *x;
}

MR_ELEMENT void NAME(nesterov)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)y, (void)z;
    *x = c[1] * *x + c[2] * g;
    *p = *p + c[0] * (g + c[3] * *x);
}

MR_ELEMENT void NAME(adagrad)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)y, (void)z;
    *x = *x + g * g;
    *p = *p + c[0] * g / (ROOT(*x) + c[1]);
}

MR_ELEMENT void NAME(adadelta)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = c[1] * *x + c[2] * g * g;
    REAL delta = ROOT(*y + c[3]) / ROOT(*x + c[3]) * g;
    *y = c[1] * *y + c[2] * delta * delta;
    *p = *p + c[0] * delta;
}

MR_ELEMENT void NAME(rmsprop)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)y, (void)z;
    *x = c[1] * *x + c[2] * g * g;
    *p = *p + c[0] * g / (ROOT(*x) + c[3]);
}

MR_ELEMENT void NAME(rmsprop_momentum)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = c[1] * *x + c[2] * g * g;
    *y = c[4] * *y + g / (ROOT(*x) + c[3]);
    *p = *p + c[0] * *y;
}

MR_ELEMENT void NAME(rmsprop_centered)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = c[1] * *x + c[2] * g * g;
    *y = *y + c[2] * (g - *y);
    *p = *p + c[0] * g / (ROOT(*x - *y * *y) + c[3]);
}

MR_ELEMENT void NAME(rmsprop_centered_momentum)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    *x = c[1] * *x + c[2] * g * g;
    *y = *y + c[2] * (g - *y);
    *z = c[4] * *z + g / (ROOT(*x - *y * *y) + c[3]);
    *p = *p + c[0] * *z;
}

MR_ELEMENT void NAME(adam)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *p = *p + c[0] * *x / (ROOT(*y) * c[4] + c[5]);
}

MR_ELEMENT void NAME(amsgrad)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *z = NAME(greater)(*z, *y);
    *p = *p + c[0] * *x / (ROOT(*z) * c[4] + c[5]);
}

MR_ELEMENT void NAME(adamax)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = *x + c[1] * (g - *x);
    *y = NAME(greater)(c[2] * *y, SIZE(g) + c[5]);
    *p = *p + c[0] * *x / *y;
}

MR_ELEMENT void NAME(nadam)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    REAL down = ROOT(*y) * c[4] + c[5];
    *p = *p + c[6] * g / down;
    *p = *p + c[0] * *x / down;
}

MR_ELEMENT void NAME(radam)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)z;
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *p = *p + c[0] * *x / (c[6] != 0 ? ROOT(*y) + c[5] : 1);
}

/* The sign of NaN is NaN. */
MR_ELEMENT void NAME(lion)(const REAL *c, REAL g, REAL *p, REAL *x, REAL *y, REAL *z)
{
    (void)y, (void)z;
    REAL way = c[1] * *x + c[2] * g;
    *p = *p + c[0] * (way > 0 ? 1 : way < 0 ? -1 : way);
    *x = c[3] * *x + c[4] * g;
}
