#!/usr/bin/env bash
# Installs a release in a bare Debian, where no compiler and nothing of this tree is, as its README says, and trains there:
# test.sh ARCHIVE. TORCH_SITE is the site-packages that has torch, DATA the folder with the climate data. The Debian is
# made once, in ROOT. It needs root; without it says so and tries nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
archive=$(realpath "$1")
site=$(realpath "$TORCH_SITE") data=$(realpath "$DATA") root=${ROOT:-target/bare-debian}

skip() { echo "skipped: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "a bare Debian is made as root"
unshare --mount --pid --fork true 2>/dev/null || skip "this system gives no namespaces"
if ! command -v debootstrap >/dev/null; then
  command -v apt-get >/dev/null || skip "there is no debootstrap here, and no apt-get to fetch it"
  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null \
    || skip "debootstrap cannot be fetched"
fi
if [ ! -e "$root/made" ]; then
  # That of the machine.
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } | sed -n 's/^URIs: *\([^ ]*debian\)\/\?$/\1/p; s/^deb \(\[.*\] \)\?\([^ ]*\/debian\)\/\? .*/\2/p' | head -1)
  rm -rf "$root" && mkdir -p "$root"
  debootstrap --variant=minbase --include=python3-minimal bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 \
    || { tail -n 5 "$root.log"; rm -rf "$root"; skip "no bare Debian can be made here; all that was said is in $root.log"; }
  touch "$root/made"
fi
root=$(realpath "$root")
cp "$archive" "$archive.sha256" "$root/tmp/"

# All that is mounted goes with the namespace.
unshare --mount --pid --fork --kill-child bash -euo pipefail -s "$root" "$site" "$data" "$(basename "$archive")" <<'INSIDE'
root=$1 site=$2 data=$3 archive=$4
mkdir -p "$root/opt/site" "$root/opt/data"
mount --bind -o ro "$site" "$root/opt/site"
mount --bind -o ro "$data" "$root/opt/data"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/root"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" /bin/bash -euo pipefail -s "$archive" <<'DEBIAN'
archive=$1 name=${1%.tar.gz}
for compiler in cc gcc rustc cargo; do
  ! command -v "$compiler" >/dev/null || { echo "$compiler is here: this is no bare system"; exit 1; }
done
cd /tmp && sha256sum --check --quiet "$archive.sha256"
mkdir -p ~/opt && tar -xzf "$archive" -C ~/opt && cd ~/opt/"$name"
sha256sum --check --quiet SHA256SUMS
export PATH=$PWD/bin:$PATH
tradewind --version
tradewind-server --version
# Without a torch there is a word, and no worker.
if told=$(tradewind-use-torch 2>&1); then echo "there was no torch, and yet: $told"; exit 1; fi
grep -q 'python3 has no torch: python3 -m pip install torch==' <<<"$told" || { echo "$told"; exit 1; }
tradewind-use-torch /opt/site/torch
cd ~
# An error names a page that is there.
echo 'train.sampels = 1' >wrong.toml
if told=$(tradewind config wrong.toml 2>&1); then echo "wrong.toml is right: $told"; exit 1; fi
page=$(sed -n 's/^see \(.*\)#train$/\1/p' <<<"$told")
[ -f "$page" ] || { echo "no page in: $told"; exit 1; }
config=opt/$name/share/tradewind/configs/climate-forecast.toml
tradewind run "$config" --out runs/bare --set train.samples=160 --set 'data.files=["/opt/data/A1B_north_america.nc", "/opt/data/E1_north_america.nc"]' | tail -n 12
grep -q '"status": "completed"' runs/bare/summary.json
tradewind runs
DEBIAN
INSIDE
echo "installed in a bare Debian and trained"
