#!/bin/sh
# secrets.sh [FOLDER [HOST:PORT]] makes the secrets of an installation that are not yet in FOLDER, a file each. HOST:PORT is the address of
# PostgreSQL. Only the owner can open the folder. All users can read the files, because the users inside the containers must.
set -eu
folder=${1:-deploy/secrets}
host=${2:-postgres:5432}

umask 077
mkdir -p "$folder"
umask 022
cd "$folder"

# put NAME COMMAND… writes what the command prints to a file that does not exist yet.
put() {
	name=$1
	shift
	[ -s "$name" ] && return
	"$@" >"$name.new"
	mv "$name.new" "$name"
}

put postgres_password openssl rand -hex 24
put database_password openssl rand -hex 24
put api_database_password openssl rand -hex 24
put database_url echo "postgres://carillon:$(cat database_password)@$host/carillon"
put api_database_url echo "postgres://carillon_web:$(cat api_database_password)@$host/carillon"
put issuer_key openssl rand -base64 32
put keyset ${CARILLON:-docker run --rm carillon} keyset
