#!/usr/bin/env bash
# The main job, end to end: start the service on its embedded defaults, submit examples/gpt.yaml over HTTP, watch it
# train on two ranks, and stop. Run it with `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
say "1. Start Lockstep: broker, api, scheduler and one node agent"
lockstep up --detach --cpu-slots 2 "$@"
# From here on, and not before: where a service runs already, `up` refuses, and that one is not ours to stop.
trap 'lockstep down >/dev/null 2>&1 || true' EXIT

say "2. What the promised batch becomes on two ranks"
lockstep plan examples/gpt.yaml

say "3. Submit over HTTP and follow"
echo "Its page shows the loss falling, live: run .venv/bin/lockstep open last in another terminal, or open the address below."
lockstep submit examples/gpt.yaml -y

say "4. The same, read back from the job database"
lockstep ps -a
lockstep metrics last --names train/loss,throughput/samples_per_second

page=$(lockstep open last --print 2>/dev/null)
say "Done."
cat <<TEXT
The job's page:  $page
                 Start the service again with \`make up\`: the job is still there, and \`lockstep open last\` signs you in.
Run your own:    .venv/bin/lockstep submit examples/own_task/job.yaml --code examples/own_task
More examples:   examples/README.md
TEXT
