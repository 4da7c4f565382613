"""The compiled kernel; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("hiddenarm.ring._contract", ["src/hiddenarm/ring/_contract.c"], extra_compile_args=["-O3", "-Wall"])
    ]
)
