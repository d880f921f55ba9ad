# shellcheck shell=bash
# A place made like a pod of the chart, without a cluster. Sourced after packaging/chart/tools.sh.
: "${work:?}" "${walrelay:?}"

# $1 = rendered manifests, $2 = container, then a program that runs where that container's would: a root that cannot be
# written, the files that are mounted and no other, its variables, and its user without any capability. ARGS are the
# container's arguments, PROBES the addresses of its probes. Set by the caller, if it wants it:
#   POD_NETWORK    a network namespace (ip netns); else one of its own, in which nothing answers
#   POD_SECRETS    the folder that is mounted as the volume of Secrets; else samples
#   POD_STATE      the folder that is mounted as the volume of the state file; else an empty one
as_pod() {
    local file=$1 container=$2 pod network=(unshare --net)
    shift 2
    pod=$(mktemp -d "$work/pod.XXXXXX")
    checks pod "$file" "$container" "$pod" || return 1
    install -D -m 755 "$walrelay" "$pod/files/usr/local/bin/walrelay"
    if [[ -d $pod/files/run ]]; then
        chown -R 0:10001 "$pod/files/run"
        find "$pod/files/run" -type f -exec chmod 0440 {} +
    fi
    [[ -z ${POD_NETWORK-} ]] || network=(ip netns exec "$POD_NETWORK")
    # shellcheck disable=SC2016
    "${network[@]}" unshare --mount --pid --fork --kill-child /bin/bash -ec '
        pod=$1 secrets=$2 state=$3
        shift 3
        ip link set lo up
        view=$pod/view
        mkdir "$view"
        mount -t tmpfs -o mode=755 walrelay "$view"
        mkdir "$view/upper" "$view/work" "$view/root"
        cp -a "$pod/files/." "$view/upper"
        mkdir -p "$view/upper/etc"
        cp /etc/hosts "$view/upper/etc/hosts"
        mount -t overlay -o "lowerdir=/,upperdir=$view/upper,workdir=$view/work" walrelay "$view/root"
        mkdir -p "$view/root/var/lib/walrelay"
        mount -t proc proc "$view/root/proc"
        mount --rbind /dev "$view/root/dev"
        [ -z "$secrets" ] || mount --bind -o ro "$secrets" "$view/root/run/secrets/walrelay"
        writable=$(cat "$pod/writable")
        if [ -n "$writable" ] && [ -n "$state" ]; then
            # What the kubelet does with a volume and fsGroup, at its worst: every file, at each start.
            chgrp -R 10001 "$state" && chmod -R g+rwX "$state" && chmod g+s "$state"
            mount --bind "$state" "$view/root$writable"
        elif [ -n "$writable" ]; then
            mount -t tmpfs -o mode=2770,uid=0,gid=10001 state "$view/root$writable"
        fi
        mount -o remount,ro "$view/root"
        mapfile -d "" -t variables <"$pod/env"
        mapfile -d "" -t args <"$pod/args"
        exec chroot "$view/root" setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
            env -i "${variables[@]}" ARGS="${args[*]}" PROBES="$(tr "\n" " " <"$pod/probes")" "$@"
    ' as_pod "$pod" "${POD_SECRETS-}" "${POD_STATE-}" "$@"
}
