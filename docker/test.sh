#!/usr/bin/env bash
# Build the images and run the commands of docs/containers.md: start, one job, two agents, a wrong password, backup and
# restore. Then print the sizes of the layers that one changed line of worker/ makes. Run it with `make docker-test`.
#
# Its containers, volumes and images belong to a Compose project of its own, and are removed at the end. It exits with 3 and
# one line if no daemon answers. Variables of .env and the mirrors of docs/containers.md come from the environment; the .env
# of the clone is not read.
set -euo pipefail
cd "$(dirname "$0")/.."

docker info >/dev/null 2>&1 || { echo "docker-test: NOT RUN: no Docker daemon answers here" >&2; exit 3; }
docker compose version >/dev/null 2>&1 || { echo "docker-test: NOT RUN: docker has no compose plugin here" >&2; exit 3; }

project=lockstep-test-$$
folder=$(mktemp -d)
(umask 077 && echo POSTGRES_PASSWORD="$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" > "$folder/env")
export COMPOSE_PROFILES=cpu DOCKER_BUILDKIT=1
# The port of the host may be in use: the test talks to the api in its container.
sed 's/ports: \["127.0.0.1:8470:8470"\]/ports: []/' docker-compose.yml > "$folder/docker-compose.yml"
compose() { docker compose -p "$project" --project-directory . -f "$folder/docker-compose.yml" --env-file "$folder/env" "$@"; }
line=worker/service.py
cp -p "$line" "$folder/line"
end() {
  code=$?
  cp -p "$folder/line" "$line"
  [ "$code" = 0 ] || compose logs --no-color --tail 30 || true
  compose down --volumes --rmi local --timeout 60 >/dev/null 2>&1 || true
  rm -rf "$folder"
  exit "$code"
}
trap end EXIT
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
lockstep() { compose exec -T api lockstep "$@"; }
# Wait for a condition, up to five minutes.
until_ok() { for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 2; done; echo "not within 300 s: $*" >&2; return 1; }
nodes_ready() { [ "$(lockstep nodes -o json | grep -c '"state": "ready"')" -ge "$1" ]; }
job() { lockstep submit - -y -q --set "name=$1" --set train.epochs=1 < examples/digits.yaml; }
runs() { lockstep show "$1" -o json | grep '"state": "running"' >/dev/null; }
# A command that must fail; its output is in $folder/said.
refused() { if "$@" > "$folder/said" 2>&1; then cat "$folder/said"; echo "not refused: $*" >&2; return 1; fi; }
digests() { docker image inspect --format '{{join .RootFS.Layers "\n"}}' "$1"; }

say "build and start, as documented"
compose up -d --build --wait
compose exec -T api cat /var/lib/lockstep/token/token >/dev/null
compose exec -T api test -f /opt/lockstep/packages/lockstep/api/pages/index.html || [ "${LOCKSTEP_PAGES:-}" = skip ]
for image in api scheduler agent-cpu; do docker image inspect --format '{{.RepoTags}} {{.Size}} bytes' "$project-$image"; done

say "a job, by the command in the container of the api"
until_ok nodes_ready 1
first=$(job first)
lockstep wait "$first"
lockstep ps -a

say "stop and start of the agent under a job"
second=$(lockstep submit - -y -q -d --set name=second --set train.epochs=60 < examples/digits.yaml)
until_ok runs "$second"
compose stop agent-cpu
compose start agent-cpu
until_ok nodes_ready 1
lockstep show "$second" | head -20
lockstep cancel "$second"

say "two agents share the volume"
compose up -d --scale agent-cpu=2
until_ok nodes_ready 2
lockstep nodes
compose up -d --scale agent-cpu=1 --force-recreate agent-cpu

say "backup and restore"
compose exec -T postgres pg_dump -U postgres -Fc lockstep > "$folder/lockstep.dump"
compose exec -T api tar -c -C /var/lib/lockstep store token > "$folder/files.tar"
third=$(job third)
compose exec -T postgres createdb -U postgres -O lockstep lockstep_new
compose exec -T postgres pg_restore -U postgres --no-owner --role lockstep --exit-on-error -d lockstep_new < "$folder/lockstep.dump"
compose exec -T postgres psql -U postgres -c 'DROP DATABASE lockstep WITH (FORCE)' -c 'ALTER DATABASE lockstep_new RENAME TO lockstep'
compose exec -T api tar -x -C /var/lib/lockstep < "$folder/files.tar"
until_ok lockstep ps -a
lockstep show "$first" >/dev/null
refused lockstep show "$third"
compose run --rm -T migrate
compose exec -T postgres psql -U postgres -d lockstep -c 'SET ROLE lockstep' -c 'CREATE TABLE more (id integer)' -c 'DROP TABLE more'
job fourth
lockstep nodes

say "a wrong password is named"
refused compose run --rm -T -e LOCKSTEP_DATABASE_URL=postgresql+psycopg://lockstep:wrong@postgres/lockstep migrate
grep "password authentication failed" "$folder/said"

say "down and up keep everything"
compose down --timeout 60
compose up -d --wait
until_ok lockstep ps -a
lockstep ps -a

say "one changed line of worker/"
for image in api agent-cpu; do digests "$project-$image" > "$folder/$image"; done
echo "# changed by docker/test.sh" >> "$line"
compose build --quiet api agent-cpu
for image in api agent-cpu; do
  echo "$image: $(digests "$project-$image" | grep -cvxFf "$folder/$image") new layer of $(digests "$project-$image" | wc -l)"
  docker history --format '{{.Size}} {{.CreatedBy}}' --no-trunc "$project-$image" | grep lockstep_jobs | cut -d' ' -f1
done
say "all passed"
