#!/usr/bin/env bash
# Signs a release with the SSH key SIGN_KEY of the environment, by ssh-keygen, which everybody has who has SSH:
#   sign.sh check           whether that key can sign, before anything long is built; without SIGN_KEY nothing
#   sign.sh sign ARCHIVE    writes ARCHIVE.sig; without SIGN_KEY says in a line how to
# SIGN_KEY is a file with a private key, or with a public one whose private half an ssh-agent has.
set -euo pipefail
# What is signed as a release is good for nothing else, and nothing else that the key has signed for a release.
namespace=tradewind-release
key=${SIGN_KEY:-}
key=${key/#\~\//$HOME/}

die() { echo "release: $1" >&2; exit 1; }

check() {
  [ -n "$key" ] || return 0
  command -v ssh-keygen >/dev/null || die "SIGN_KEY is set, but there is no ssh-keygen here, which signs (OpenSSH 8.2 or newer)"
  [ -f "$key" ] || die "SIGN_KEY: there is no file $key"
  [ -r "$key" ] || die "SIGN_KEY: $key cannot be read"
  local told
  told=$(ssh-keygen -Y sign -f "$key" -n "$namespace" 2>&1 >/dev/null <<<"a try") \
    || die "SIGN_KEY: $key is no key that can sign: $(tail -n 1 <<<"$told")"
}

sign() { # ARCHIVE
  if [ -z "$key" ]; then
    echo "release: not signed; make release SIGN_KEY=~/.ssh/id_ed25519 signs with an SSH key"
    return
  fi
  check
  # ssh-keygen would ask whether it may be overwritten.
  rm -f "$1.sig"
  local told
  told=$(ssh-keygen -Y sign -f "$key" -n "$namespace" "$1" 2>&1) || die "$1 could not be signed: $(tail -n 1 <<<"$told")"
  echo "$1.sig: signed with $(ssh-keygen -l -f "$key" | cut -d ' ' -f 2)"
}

case ${1:-} in
  check) check ;;
  sign) sign "$2" ;;
  *) sed -n '2,5p' "$0"; exit 2 ;;
esac
