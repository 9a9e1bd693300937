#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make $VENV ready for "demo", "test" or "bench". Does nothing twice: Python
# packages are installed again only when pyproject.toml or setup.py changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=$1
python=${PYTHON:-python3}
venv=${VENV:-.venv}
stamp=$venv/pyrevoff-$what.stamp

say() { printf '%s\n' "$*" >&2; }

have_python_headers() {
	"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

# ensurepip is what Debian's python3 lacks when python3-venv is not installed.
have_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }

have_clang_sanitizers() {
	local folder status=0
	folder=$(mktemp -d)
	echo 'int main(void) { return 0; }' >"$folder/t.c"
	clang -fsanitize=thread -o "$folder/t" "$folder/t.c" 2>/dev/null || status=1
	rm -rf "$folder"
	return $status
}

# Debian keeps clang's run-time libraries in a package of their own.
clang_runtime() {
	echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# install_packages PACKAGE...: what stays missing is named, never guessed.
install_packages() {
	[ $# -gt 0 ] || return 0
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		say "installing $*"
		apt-get -qq update
		DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
			--no-install-recommends install "$@" >/dev/null
	else
		say "missing here: $* (names of Debian packages);"
		say "install them with the system's package manager"
		return 1
	fi
}

system_packages() {
	local missing=()
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v g++ >/dev/null || missing+=(g++)
	if command -v "$python" >/dev/null; then
		[ -x "$venv/bin/python" ] || have_venv || missing+=(python3-venv)
		have_python_headers || missing+=(python3-dev)
	else
		missing+=(python3 python3-venv python3-dev)
	fi
	install_packages ${missing[@]+"${missing[@]}"}
	# spin checks the models in model/; its tests need gcc as well.
	if [ "$what" = test ] && ! command -v spin >/dev/null; then
		install_packages spin || [ -z "${CI:-}" ]
	fi
	# clang serves a part of the tests only, and they say that they skip.
	[ "$what" = test ] || return 0
	command -v clang++ >/dev/null || install_packages clang || return 0
	have_clang_sanitizers || install_packages "$(clang_runtime)" || return 0
}

# Extra packages by need: a compiler for kernels only where a driver can run
# them, nvcc only where there is none of the release that ptx/ is made by.
requirements() {
	echo 'setuptools>=77'
	case $what in
	demo)
		if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
			echo '-e .[cuda]'
		else
			echo '-e .'
		fi
		;;
	bench) echo '-e .[bench,cuda]' ;;
	test)
		echo '-e .[test,cuda]'
		"$venv/bin/python" tools/make_ptx.py --have-compiler ||
			echo 'cuda-toolkit[nvcc]==13.0.*'
		;;
	esac
}

system_packages
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
wanted=$(cat pyproject.toml setup.py "$0" | sha256sum)
if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
	say "installing Python packages into $venv"
	requirements >"$venv/requirements-$what.txt"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		--requirement "$venv/requirements-$what.txt"
	printf '%s\n' "$wanted" >"$stamp"
fi
# The C sources may be newer than what was installed; a second is enough.
"$venv/bin/python" setup.py --quiet build_ext --inplace
