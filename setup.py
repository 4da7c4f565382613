"""The compiled kernels; everything else is in pyproject.toml."""

from setuptools import Extension, setup

_RING = "src/hiddenarm/ring/"

setup(
    ext_modules=[
        Extension(
            "hiddenarm.ring._kernels",
            [_RING + name for name in ("_kernels.c", "contraction.c", "instructions.c")],
            depends=[_RING + name for name in ("contraction.h", "instructions.h")],
            extra_compile_args=["-O3", "-Wall"],
        )
    ]
)
