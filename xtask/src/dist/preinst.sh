#!/bin/sh
# The names of e2fsprogs' programs are taken over. Where /sbin is a link to /usr/sbin, a package may
# own a file by either path.
set -e

if [ "$1" = install ] || [ "$1" = upgrade ]; then
    for short in @PATHS@; do
        for path in "$short" "/usr$short"; do
            dpkg-divert --package extant-e2fsprogs --add --rename \
                --divert "$path.e2fsprogs" "$path" > /dev/null
        done
    done
fi
