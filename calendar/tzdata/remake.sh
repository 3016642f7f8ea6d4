#!/bin/sh
# Remakes zoneinfo.tar.gz from a tzdata.zi of the IANA time zone database: ./remake.sh /usr/share/zoneinfo/tzdata.zi
# The archive holds TZif files in the slim form and a file +VERSION; the same tzdata.zi and zic give the same bytes.
set -eu
zi=$1
out=${2:-$(dirname "$0")/zoneinfo.tar.gz}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
zic -b slim -d "$dir" "$zi"
sed -n '1s/^# version //p' "$zi" >"$dir/+VERSION"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=ustar --mode=a=r -C "$dir" -cf - $(cd "$dir" && ls) | gzip -9n >"$out"
