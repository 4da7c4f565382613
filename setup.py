"""The compiled kernels; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("hiddenarm.ring._kernels", ["src/hiddenarm/ring/_kernels.c"], extra_compile_args=["-O3", "-Wall"])
    ]
)
