#!/bin/sh
# ascend-runner, in one file with its own Python: unpacks that once, into a private directory, and starts the bundle.
# It follows this text as a tar file; scripts/bundle fills in its architecture, hash and size.
file=$0 arch=@ARCH@ name=python-@HASH@ lines=@LINES@ size=@SIZE@
user=$(id -u)

fail() {
    printf '[ascend-runner] ERROR %s\n' "$1" >&2
    exit 125
}

# Whether a directory belongs to this user, and no other user can write to it.
is_private() {
    [ ! -L "$1" ] && ls -ldn "$1" | {
        read -r mode _ owner _
        case $mode:$owner in d????-??-*:"$user") ;; *) false ;; esac
    }
}

# Unpack the Python below a directory, all or nothing: another runner may do so at the same time.
unpack() (
    umask 077
    mkdir -p "$1" || exit
    is_private "$1" || { echo "$1 is not a private directory of this user" && exit 1; }
    new=$(mktemp -d "$1/$name.XXXXXX") || exit
    trap 'rm -rf "$new"' EXIT
    printf '#!/bin/sh\n' >"$new/probe" && chmod 700 "$new/probe" || exit
    "$new/probe" || { echo "$1 is on a disk that is mounted with noexec: set XDG_CACHE_HOME" && exit 1; }
    tail -n "+$lines" "$file" | head -c "$size" | tar -xzof - -C "$new" || exit
    [ -d "$1/$name" ] || mv "$new/python" "$1/$name"
    rm -rf "$1/$name/python" # where mv(1) has put it if another runner was first
    [ -x "$1/$name/bin/python3" ]
)

[ "$(uname -m)" = "$arch" ] || fail "this file is for $arch, and this machine is $(uname -m)"
for cache in "${XDG_CACHE_HOME-}" "${HOME:+$HOME/.cache}" "${TMPDIR:-/tmp}" new; do
    case $cache in
        '') continue ;;
        new) folder=$(mktemp -d "${TMPDIR:-/tmp}/ascend-runner-XXXXXX" 2>/dev/null) || break ;;
        *) folder=$cache/ascend-runner-$user ;;
    esac
    [ "$cache" != "${HOME-}/.cache" ] || [ -d "$HOME" ] || continue # a HOME that is missing stays so
    python=$folder/$name/bin/python3
    if { is_private "$folder" 2>/dev/null && [ -x "$python" ]; } || why=$(unpack "$folder" 2>&1); then
        exec "$python" -E "$file" "$@" # -E: PYTHONHOME and PYTHONPATH are for the Python of the training command
    fi
    [ "$cache" != new ] || rm -rf "$folder"
done
fail "cannot unpack the Python of $file: $why"
