#!/bin/sh
# Makes programs.txz: what an archive of PostgreSQL's programs looks like, with scripts for programs.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for name in postgres initdb pg_ctl; do
	printf '#!/bin/sh\n[ "$1" = -V ] || exit 1\necho "postgres (PostgreSQL) 18.3"\n' >"$work/bin/$name"
	chmod 755 "$work/bin/$name"
done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cJf programs.txz bin
