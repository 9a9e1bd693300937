#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with a GPU, with PYTHON's own packages (cffi, NumPy, pytest,
# pytest-timeout, setuptools; no network): build in place, run the tests on
# CUDA, run the benchmark, and say in one table what passed. Every step is
# bounded, and the status is not 0 if one failed. Results go to $OUT, or
# build/gpu; "python benchmarks/plot.py bench.json" draws them, elsewhere if
# there is no matplotlib here.
#
#   GPU_TESTS    arguments of pytest instead of all tests on CUDA; "none": no
#                tests, demo and memory check
#   BENCH_ONLY   sections of the benchmark, with commas; "none": no benchmark
#   GPU_TEST_SECONDS, GPU_BENCH_SECONDS   limits of these steps
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

# The sanitizer changes what is timed: it has no part in the benchmark.
run_tests() {
	step demo 60 "$python" examples/hello.py
	# The rest needs no GPU, and some of it a network: "make test" has it.
	step tests-cuda "${GPU_TEST_SECONDS:-240}" "$python" -m pytest -q -k "cuda and not libcuda"
	step tests-gpu 120 "$python" -m pytest -q -m gpu
	if command -v compute-sanitizer >/dev/null; then
		step memcheck 120 compute-sanitizer --tool memcheck --report-api-errors no \
			--error-exitcode 9 "$python" examples/hello.py
	fi
}

run_bench() {
	local seconds=${GPU_BENCH_SECONDS:-240}
	step bench "$seconds" "$python" benchmarks/bench.py --device cuda \
		--limit $((seconds - 5)) --out "$out/bench.json"
}

if step build 120 "$python" setup.py --quiet build_ext --inplace; then
	export PYREVOFF_DEVICE=cuda
	step info 60 "$python" -m pyrevoff info
	case ${GPU_TESTS-} in
	none) ;;
	'') run_tests ;;
	*)
		# Words of a command line.
		# shellcheck disable=SC2086
		step tests "${GPU_TEST_SECONDS:-240}" "$python" -m pytest -q $GPU_TESTS
		;;
	esac
	[ "${BENCH_ONLY-}" = none ] || run_bench
fi
if [ -f "$out/bench.log" ]; then
	printf '\n'
	grep -E '(met|MISSED)$|CHECK FAILED|checks, [0-9]+ failed' "$out/bench.log"
fi
printf '\n'
printf '%s\n' "${table[@]}"
exit "$failed"
