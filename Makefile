# A thin front on the CMake presets. Everything lands in build/<preset> and dist/.
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 20
JOBS ?= $(shell nproc)
export DESTDIR FUZZ_SECONDS JOBS

help:
	@echo 'make demo      set up this machine, build, feed generated digits to two devices, and train on them'
	@echo 'make check     set up this machine, build, and run the tests, but for the slow ones'
	@echo 'make check-slow  the slow tests'
	@echo 'make core      the core build: the library for arrays and callbacks, with musl and glibc, and its tests'
	@echo 'make asan      the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan      the tests under ThreadSanitizer, but for the slow ones'
	@echo 'make lint      format, clang-tidy, cppcheck, shellcheck, man pages, ABI'
	@echo 'make fuzz      each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds'
	@echo 'make bench     ours, memcpy and PyTorch (by PYTHON=python3) in turn; one table'
	@echo 'make install   to DESTDIR=, PREFIX=$(PREFIX)'
	@echo 'make wheel     the Python package: one wheel in dist/'
	@echo 'make python    its tests, with each Python 3.10 to 3.13 found'
	@echo 'make dist      relocatable folder and tarball in dist/'
	@echo 'make release   all that a release hands out: dist/release-VERSION/ (a clean tree, committed)'
	@echo 'make reproduce builds twice in different circumstances and compares the bits (four builds)'
	@echo 'make clean     remove build/ and dist/'

demo: setup-build
	@scripts/demo.sh

check: setup-test
	@scripts/test.sh dev fast

check-slow: setup-test
	@scripts/test.sh dev slow

core: setup-test
	@scripts/core.sh

asan: setup-test
	@scripts/test.sh asan

tsan: setup-test
	@scripts/test.sh tsan fast

lint: setup-lint
	@scripts/lint.sh

fuzz: setup-lint
	@scripts/fuzz.sh

bench: setup-test
	@bench/run.sh

dist: setup-build
	@scripts/build.sh release
	@scripts/dist.sh build/release dist

release: setup-test
	@scripts/release.sh

reproduce: setup-test
	@scripts/reproduce.sh

wheel: setup-test
	@scripts/wheel.sh

python: setup-test
	@scripts/python.sh test

install: setup-build
	@scripts/build.sh release
	@cmake --install build/release --prefix '$(PREFIX)'

clean:
	rm -rf build dist

setup-build:
	@scripts/setup.sh build
setup-test:
	@scripts/setup.sh build test
setup-lint:
	@scripts/setup.sh build test lint

.PHONY: help demo check check-slow core asan tsan lint fuzz bench dist release reproduce wheel python install clean setup-build setup-test setup-lint
