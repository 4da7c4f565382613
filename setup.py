"""The compiled parts; everything else is in pyproject.toml."""

from setuptools import Extension, setup

_RING, _NET = "src/hiddenarm/ring/", "src/hiddenarm/net/"

setup(
    ext_modules=[
        Extension(
            "hiddenarm.ring._kernels",
            [_RING + name for name in ("_kernels.c", "contraction.c", "loops.c", "instructions.c")],
            depends=[_RING + name for name in ("contraction.h", "loops.h", "instructions.h")],
            extra_compile_args=["-O3", "-Wall"],
        ),
        Extension("hiddenarm.net._wire", [_NET + "_wire.c"], extra_compile_args=["-O2", "-Wall", "-Wextra"]),
    ]
)
