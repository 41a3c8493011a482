#!/bin/sh
# A worker with only curl and jq: claims, works, extends its lease and settles.
#   penstock serve & sh examples/worker.sh mail
# A server with --auth needs an API key with the role worker: PENSTOCK_KEY=psk_...
set -eu

server=${PENSTOCK_SERVER:-http://127.0.0.1:7070}
queue=${1:-default}
name=$(hostname)-$$

# The key is read from a file: the arguments of a process are visible to others.
headers=$(umask 077 && mktemp)
trap 'rm -f "$headers"' EXIT
trap 'exit 1' HUP INT TERM
echo "Authorization: Bearer ${PENSTOCK_KEY:-}" >"$headers"

# Sends stdin and prints the response. Repeats the call while the server is unavailable or busy.
# A conflict (409) means that the lease was lost, or that an earlier attempt succeeded.
call() {
    sent=$(cat)
    while :; do
        answer=$(printf '%s' "$sent" | curl --silent --max-time 60 -X POST "$server/v1/$1" \
            ${PENSTOCK_KEY:+--header "@$headers"} --data-binary @- --write-out '\n%{http_code}') ||
            answer='
000'
        status=${answer##*
}
        case $status in
        2*) printf '%s' "${answer%
*}" && return ;;
        000 | 429 | 503) sleep 1 ;;
        *) printf '%s: %s\n' "$1" "$answer" >&2 && return 1 ;;
        esac
    done
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
    # Only a claim that can never succeed, such as one with a wrong key, ends the worker.
    claimed=$(jq -nc --arg queue "$queue" --arg name "$name" \
        '{queues: [{queue: $queue}], wait: 20, lease: 30, consumer: $name}' | call claim) || exit 1
    token=$(printf '%s' "$claimed" | jq -r '.messages[0].token // empty')
    [ -n "$token" ] || continue
    keep_lease "$token" &
    heart=$!
    if result=$(printf '%s' "$claimed" | jq -c '.messages[0].body' | work); then
        jq -nc --arg token "$token" --argjson result "$result" '{$token, $result}' | call complete
    else
        jq -nc --arg token "$token" '{$token, error: "the command failed"}' | call nack
    fi || true
    kill "$heart" 2>/dev/null || true
    echo
done
