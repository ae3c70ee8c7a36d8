#!/usr/bin/env bash
# Build the images and run the commands of docs/containers.md: start, one job, stops of the agent under a slow checkpoint,
# two agents, a wrong password, backup and both documented restores under a job. Then print the sizes of the layers that one
# changed line of worker/ makes. Run it with `make docker-test`.
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
job() { lockstep submit - -y -q "${@:2}" --set "name=$1" --set train.epochs=1 < examples/digits.yaml; }
# A job whose checkpoint takes $2 seconds, of $3 steps of about 0.25 s with a checkpoint every 100.
slow() {
  compose exec -T api lockstep submit - -y -q -d --code /tmp/slow --set "name=$1" --set "train.task_args.save_seconds=$2" \
    --set "train.steps=$3" <<'spec'
kind: train
resources: {gpus: 2}
train:
  task: task.py:Slow
  batch: {size: 16, micro_size: 4}
  checkpoint: {every_steps: 100}
spec
}
# The last step of an attempt that has a point, the newest checkpoint of a job, and the step of each resume.
last_step() { lockstep metrics "$1" --csv --attempts all --names train/loss | awk -F , -v n="$2" '$2 == n {s = $3} END {print s + 0}'; }
newest_save() { lockstep ckpt ls "$1" -o json | sed -n 's/^ *"step": \([0-9]*\),$/\1/p' | sort -n | tail -n 1; }
resumed_at() { lockstep events "$1" | sed -n 's/.* resumed .* step \([0-9]*\)\.$/\1/p'; }
reached() { [ "$(last_step "$1" "$2")" -ge "$3" ]; }
resumes() { [ "$(resumed_at "$1" | wc -l)" = "$2" ]; }
same() { [ "$2" = "$3" ] || { echo "$1: $2 instead of $3" >&2; return 1; }; }
# stop_without_loss JOB ATTEMPT COMMAND...: stop the agent under an attempt by a command of Compose, start it again, and compare
# the last step of the attempt with the step from which the next one resumes.
stop_without_loss() {
  local job=$1 attempt=$2 agent began last
  shift 2
  agent=$(compose ps -q agent-cpu)
  echo "$*: at step $(last_step "$job" "$attempt"), newest checkpoint $(newest_save "$job")," \
    "limit $(docker inspect --format '{{.Config.StopTimeout}}' "$agent") s"
  docker wait "$agent" > "$folder/code" &
  began=$SECONDS
  compose "$@"
  echo "$*: $((SECONDS - began)) s"
  wait $!
  same "exit code of the agent" "$(cat "$folder/code")" 0
  compose up -d --wait
  until_ok resumes "$job" "$attempt"
  last=$(last_step "$job" "$attempt")
  same "resumed step" "$(resumed_at "$job" | tail -n 1)" "$last"
  lockstep events "$job" | grep " $attempt  " | tee "$folder/said"
  grep -q "checkpoint of step $last\$" "$folder/said"
  grep -q "requeued .*(shutdown).* not counted as a retry" "$folder/said"
  echo "the last step of attempt $attempt was $last, and the next attempt resumed from it"
}
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
lockstep show "$second"
lockstep cancel "$second"

say "stops of the agent under a checkpoint of 20 s lose no step"
tar -c -C tests/e2e --transform s/slow_state.py/task.py/ slow_state.py \
  | compose exec -T api sh -c 'mkdir -p /tmp/slow && tar -x --no-same-owner -C /tmp/slow'
third=$(slow third 20 2000)
until_ok reached "$third" 1 110
stop_without_loss "$third" 1 stop agent-cpu
# The checkpoint of step 200 is under way.
until_ok reached "$third" 2 200
same "newest checkpoint" "$(newest_save "$third")" "$(resumed_at "$third")"
stop_without_loss "$third" 2 stop agent-cpu
lockstep cancel --now "$third"
lockstep wait "$third" || [ $? = 6 ]

say "two agents share the volume"
compose up -d --scale agent-cpu=2
until_ok nodes_ready 2
lockstep nodes
compose up -d --scale agent-cpu=1 --force-recreate agent-cpu

say "backup and restore under a job, into a database beside the old one"
during=$(slow during 1 800)
until_ok reached "$during" 1 110
compose exec -T postgres pg_dump -U postgres -Fc lockstep > "$folder/lockstep.dump"
compose exec -T api tar -c -C /var/lib/lockstep store token > "$folder/files.tar"
after=$(job after -d)
compose exec -T postgres createdb -U postgres -O lockstep lockstep_new
compose exec -T postgres pg_restore -U postgres --no-owner --role lockstep --exit-on-error -d lockstep_new < "$folder/lockstep.dump"
compose exec -T postgres psql -U postgres -c 'DROP DATABASE lockstep WITH (FORCE)' -c 'ALTER DATABASE lockstep_new RENAME TO lockstep'
compose exec -T api tar -x -C /var/lib/lockstep < "$folder/files.tar"
until_ok lockstep ps -a
lockstep show "$first" >/dev/null
refused lockstep show "$after"
compose run --rm -T migrate
compose exec -T postgres psql -U postgres -d lockstep -c 'SET ROLE lockstep' -c 'CREATE TABLE more (id integer)' -c 'DROP TABLE more'

say "restore under the same job, as in docs/backup.md; the database is empty for longer than a fence"
runs "$during"
compose exec -T postgres psql -U postgres -c 'DROP DATABASE IF EXISTS lockstep WITH (FORCE)'
compose exec -T postgres createdb -U postgres -O lockstep lockstep
sleep 60
compose ps
compose exec -T postgres pg_restore -U postgres --no-owner --role=lockstep --exit-on-error -d lockstep < "$folder/lockstep.dump"
until_ok runs "$during"
lockstep wait "$during"
lockstep events "$during" | tee "$folder/said"
if grep -E ' (requeued|resumed|points_missing) ' "$folder/said"; then echo "the restore disturbed the job" >&2; exit 1; fi
same "points of the job" "$(lockstep metrics "$during" --csv --attempts all --names train/loss | cut -d , -f 2,3 | grep -c '^1,')" 800
job fourth
lockstep nodes

say "a wrong password is named"
refused compose run --rm -T -e LOCKSTEP_DATABASE_URL=postgresql+psycopg://lockstep:wrong@postgres/lockstep migrate
grep "password authentication failed" "$folder/said"

say "down and up keep everything, and a job under a checkpoint of 20 s loses no step"
fifth=$(slow fifth 20 2000)
until_ok reached "$fifth" 1 110
stop_without_loss "$fifth" 1 down
lockstep cancel --now "$fifth"
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
