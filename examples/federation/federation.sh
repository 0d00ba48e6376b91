#!/bin/sh
# One part of a federation, set up by environment variables: federation.sh keys|superlink|node|run|metrics
# The image, the compose file and the systemd units all start this file.
set -eu
: "${KEYS:=/keys}"               # certificates and keys
: "${RUNS:=/runs}"               # run folders and the SuperLink's database, on the server
: "${RUN:=first}"                # name of this run; the same name continues it
: "${HOST:=superlink}"           # name or address under which nodes reach the SuperLink
: "${PORT:=8000}"                # its port
: "${LISTEN:=0.0.0.0}"           # address that the SuperLink and the metrics listen on
: "${NODES:=3}"                  # how many nodes there are
: "${NODE:=0}"                   # number of this node
: "${NODE_PORT:=9094}"           # a port on 127.0.0.1 for the node's own processes
: "${METRICS_PORT:=9464}"
: "${EXPERIMENT:=}"              # keys of the experiment, such as timeline.period=60 timeline.horizon=6000
: "${SETTINGS:=}"                # settings of the deployment, such as deadline=0.9
: "${DATA:=}"                    # folder of the data set on this host, if it is not fedtide's cache
export FLWR_HOME="${FLWR_HOME:-$RUNS/flower-${1:-}}"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p "$FLWR_HOME"

case "${1:-}" in
keys) # once: an authority, the SuperLink's certificate, a key pair for every node
    [ -e "$KEYS/authority.pem" ] ||
        fedtide deploy keys "$KEYS" --nodes "$NODES" --host "$HOST" --host localhost --host 127.0.0.1
    ;;
superlink) # the coordinator runs in here, too: the SuperLink starts it when `run` sends the app
    exec flower-superlink --host "$LISTEN" --port "$PORT" --database "$RUNS/superlink.db" --enable-supernode-auth \
        --disable-runtime-dependency-installation --ssl-ca-certfile "$KEYS/authority.pem" \
        --ssl-certfile "$KEYS/superlink.pem" --ssl-keyfile "$KEYS/superlink.key"
    ;;
node)
    exec flower-supernode --superlink "$HOST:$PORT" --host 127.0.0.1 --port "$NODE_PORT" \
        --root-certificates "$KEYS/authority.pem" --auth-supernode-private-key "$KEYS/node-$NODE.key" \
        --node-config "partition-id=$NODE${DATA:+ data-folder=\"$DATA\"}"
    ;;
run) # registers the nodes' keys and sends the app; again: continues after the last period
    printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "%s:%s"\nroot-certificates = "%s"\n' \
        "$HOST" "$PORT" "$KEYS/authority.pem" > "$FLWR_HOME/config.toml"
    set --
    for setting in "min_nodes=$NODES" $SETTINGS; do set -- "$@" --set "$setting"; done
    # shellcheck disable=SC2086  # one word each
    fedtide deploy app "$FLWR_HOME/app" "fleet.num_devices=$NODES" $EXPERIMENT "$@" --run "$RUNS/$RUN"
    until flwr supernode list here > /dev/null 2>&1; do sleep 1; done
    for key in "$KEYS"/node-*.pub; do
        flwr supernode register "$key" here || echo "$key is registered already"
    done
    flwr run "$FLWR_HOME/app" here
    ;;
metrics)
    exec fedtide deploy metrics "$RUNS/$RUN" --host "$LISTEN" --port "$METRICS_PORT"
    ;;
*)
    echo "federation.sh keys|superlink|node|run|metrics" >&2
    exit 2
    ;;
esac
