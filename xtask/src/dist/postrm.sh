#!/bin/sh
# The names are given back.
set -e

case "$1" in
remove | disappear | abort-install)
    for short in @PATHS@; do
        for path in "$short" "/usr$short"; do
            if [ "$(dpkg-divert --listpackage "$path")" = extant-e2fsprogs ]; then
                dpkg-divert --package extant-e2fsprogs --remove --rename \
                    --divert "$path.e2fsprogs" "$path" > /dev/null
            fi
        done
    done
    ;;
esac
