#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with a GPU, with PYTHON's own packages (cffi, NumPy, pytest,
# pytest-timeout, setuptools; no network): build in place, run the tests on
# CUDA, run the benchmark, and say in one table what passed. Every step is
# bounded. Results go to $OUT, or build/gpu.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
out=${OUT:-build/gpu}
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
table=()
failed=0

# step NAME SECONDS COMMAND...
step() {
	local name=$1 seconds=$2 start=$SECONDS status verdict
	shift 2
	printf '== %s\n' "$name"
	timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$out/$name.log"
	status=${PIPESTATUS[0]}
	case $status in
	0) verdict=passed ;;
	124 | 137) verdict="TIMED OUT after $seconds s" ;;
	*) verdict="FAILED, status $status" ;;
	esac
	[ "$status" -eq 0 ] || failed=1
	table+=("$(printf '%-12s %5d s  %s' "$name" $((SECONDS - start)) "$verdict")")
	return "$status"
}

if step build 120 "$python" setup.py --quiet build_ext --inplace; then
	export PYREVOFF_DEVICE=cuda
	step info 60 "$python" -m pyrevoff info
	step demo 60 "$python" examples/hello.py
	# The rest needs no GPU, and some of it a network: "make test" has it.
	step tests-cuda "${GPU_TEST_SECONDS:-240}" "$python" -m pytest -q -k "cuda and not libcuda"
	step tests-gpu 120 "$python" -m pytest -q -m gpu
	if command -v compute-sanitizer >/dev/null; then
		step memcheck 120 compute-sanitizer --tool memcheck --report-api-errors no \
			--error-exitcode 9 "$python" examples/hello.py
	fi
	step bench "${GPU_BENCH_SECONDS:-150}" "$python" benchmarks/bench.py \
		--device cuda --out "$out/bench.json"
fi
printf '\n'
printf '%s\n' "${table[@]}"
exit "$failed"
