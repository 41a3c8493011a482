#!/bin/sh
# A worker with only curl and jq: claims, works, extends its lease and settles.
#   penstock serve & sh examples/worker.sh mail
set -eu

server=${PENSTOCK_SERVER:-http://127.0.0.1:7070}
queue=${1:-default}
name=$(hostname)-$$

call() {
    curl --silent --show-error --fail-with-body -X POST "$server/v1/$1" --data-binary @-
}

keep_lease() {
    while sleep 10; do
        printf '{"token": "%s", "lease": 30}' "$1" | call extend >/dev/null || return
    done
}

work() {
    # Replace this with your code. It reads the body from stdin and prints a JSON result.
    jq -c '{echo: .}'
}

while :; do
    claimed=$(jq -nc --arg queue "$queue" --arg name "$name" \
        '{queues: [{queue: $queue}], wait: 20, lease: 30, consumer: $name}' | call claim)
    token=$(printf '%s' "$claimed" | jq -r '.messages[0].token // empty')
    [ -n "$token" ] || continue
    keep_lease "$token" &
    heart=$!
    if result=$(printf '%s' "$claimed" | jq -c '.messages[0].body' | work); then
        jq -nc --arg token "$token" --argjson result "$result" '{$token, $result}' | call complete
    else
        jq -nc --arg token "$token" '{$token, error: "the command failed"}' | call nack
    fi
    kill "$heart" 2>/dev/null || true
    echo
done
