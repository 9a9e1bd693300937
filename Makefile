# SPDX-License-Identifier: Apache-2.0
#
#   make demo     install into .venv, let a kernel call Python
#   make test     install what the tests need, run all that can run here
#   make ptx      generate ptx/pyrevoff.ptx from csrc/device (nvcc 13.0)
#   make bench    measure this machine into build/bench.json, and draw it
#   make model    check the protocol's models with spin, a line for each search
#   make gpu      on a machine with a GPU: build in place with PYTHON, then the
#                 tests on CUDA and the benchmark; needs no network
#   make format   lay the sources out; lines of docs/memory-order.md
#   make clean    remove what was built; .venv stays
#
# PYTHON picks the interpreter, VENV another folder than .venv.

PYTHON ?= python3
VENV ?= .venv
# Tests that run at the same time: they mostly wait for compilers.
JOBS ?= 2
RUN := $(VENV)/bin/python
export PYTHON VENV

C_FILES := $(shell find csrc tests benchmarks \
	-name '*.[ch]' -o -name '*.cu' -o -name '*.cc' | sort)

.PHONY: demo test check model bench ptx gpu format clean

demo:
	@tools/prepare.sh demo
	@$(RUN) examples/hello.py

# pytest's closing line is the last one, and its status is make's.
test:
	@tools/prepare.sh test
	@$(MAKE) --no-print-directory -s check
	@$(RUN) -m pytest -n $(JOBS) --dist loadfile

check:
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/ruff format -q --check .
	$(VENV)/bin/mypy --no-error-summary
	$(VENV)/bin/clang-format --dry-run --Werror $(C_FILES)

model:
	@$(PYTHON) tools/model.py

bench:
	@tools/prepare.sh bench
	@mkdir -p build
	@$(RUN) benchmarks/bench.py --out build/bench.json
	@$(RUN) benchmarks/plot.py build/bench.json --to build

ptx:
	$(PYTHON) tools/make_ptx.py

gpu:
	@tools/gpu.sh

format:
	@tools/prepare.sh test
	$(VENV)/bin/ruff check -q --fix .
	$(VENV)/bin/ruff format -q .
	$(VENV)/bin/clang-format -i $(C_FILES)
	$(RUN) tools/memory_order.py

clean:
	rm -rf build dist *.egg-info pyrevoff/_revoff*.so
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
