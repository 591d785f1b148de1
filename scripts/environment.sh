#!/bin/sh
# Make .venv with all that the tests need. A copy stays in the user's cache, under a key of what it was made from, so that
# the next checkout links it instead of installing. It may be deleted at any time.
set -eu
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot-test-venv
here=$PWD/.venv
libvirt=$(virsh --version 2>/dev/null || echo none)
key=$({ cat pyproject.toml "$0" scripts/aliquot; "$python" -VV; uname -m; echo "$libvirt"; } | sha256sum | cut -c 1-16)
if [ -d "$cache/$key" ]; then
  rm -rf "$here"
  cp -al "$cache/$key" "$here"
  # The scripts and the editable installation name the checkout that they were made in. sed replaces the links by files.
  made=$(cat "$here/.made-in")
  moved=$(
    grep -rIl --include='*.pth' --include=direct_url.json --include=pyvenv.cfg --exclude-dir=__pycache__ -e "$made" "$here" || :
    grep -rIl -e "$made" "$here/bin" || :
  )
  printf '%s\n' "$moved" | xargs sed -i "s|$made|$PWD|g" && exit 0
  rm -rf "${cache:?}/$key"  # it does not name the checkout that it was made in: install again
fi
# An environment that was linked shares its files with the cache: an installation over it would change both.
[ ! -e "$here/.made-in" ] || rm -rf "$here"
"${MAKE:-make}" --no-print-directory .venv/.demo
install="$here/bin/python -m pip install --quiet --disable-pip-version-check"
$install --group dev
# The binding must be as old as the library that it is built against.
if [ "$libvirt" != none ] && ! $install "libvirt-python==$libvirt"; then
  echo "no libvirt binding: apt-get install libvirt-dev python3-dev pkg-config" >&2
  exit 0  # not kept: the next checkout tries again
fi
echo "$PWD" >"$here/.made-in"
mkdir -p "$cache"
ls -t "$cache" | tail -n +4 | while read -r old; do rm -rf "${cache:?}/$old"; done
cp -al "$here" "$cache/.new-$$" && mv -T "$cache/.new-$$" "$cache/$key" || rm -rf "$cache/.new-$$"  # another file system
