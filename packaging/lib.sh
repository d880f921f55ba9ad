# shellcheck shell=bash
# Shared by scripts/dist, scripts/dist-test and the builds and tests of each part. Sourced, not run.
#
#   root, DIST, STAGE, VERSION, SOURCE_DATE_EPOCH, CACHE    where things are, and what is packaged
#   say, die                                                messages
#   fetch_tool NAME, tool_home NAME                         prints the folder of a pinned tool; where it is, or will be
#   chroot_of SUITE                                         prints the folder of a Debian
#   in_chroot SUITE|FOLDER COMMAND...                       runs a command in it; nothing of the run stays
#   pass, fail, check, finish                               the lines of a test
#   equals, exits, links_lead                               what `check` is often given
#   quietly, mode, started                                  for the tests of installed packages
set -euo pipefail
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DIST=${DIST:-$root/dist}
mkdir -p "$DIST"
DIST=$(cd "$DIST" && pwd)
# The unpacked tree that packaging/binary/build makes, and other parts take files from.
STAGE=$DIST/stage
VERSION=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
# The time of every file in a package: that of the last commit, so that two builds of it are equal.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || true)}
if [[ -z $SOURCE_DATE_EPOCH ]]; then
    printf 'git does not say when %s was committed: files in packages are of 1970. Set SOURCE_DATE_EPOCH.\n' "$root" >&2
    SOURCE_DATE_EPOCH=0
fi
if ((EUID == 0)); then CACHE=/var/cache/walrelay-dev; else CACHE=${HOME:?}/.cache/walrelay-dev; fi
CACHE=${WALRELAY_DEV_CACHE:-$CACHE}
export DIST VERSION SOURCE_DATE_EPOCH CACHE STAGE
part=$(basename "$(cd "$(dirname "$0")" && pwd)")

say() { printf '%s\n' "$*" >&2; }
die() {
    printf '%s: %s\n' "$part" "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# What a tool is fetched from, at a fixed version. pypi: programs (bin/) and modules in one folder, which
# PYTHONPATH names; cargo and go: compiled into bin/; module: sources of Go; apt: this machine's packages.
declare -A TOOLS=(
    [zig]="pypi ziglang==0.15.2 cargo-zigbuild==0.24.1"
    [cyclonedx]="pypi cyclonedx-python-lib[json-validation]==11.7.0"
    [debootstrap]="apt debootstrap debian-archive-keyring"
    [umoci]="apt umoci"
    [jq]="apt jq"
    [binutils]="apt binutils"
    [helm]="go helm.sh/helm/v4/cmd/helm@v4.3.1"
    [kubernetes-validate]="pypi kubernetes-validate==1.37.0"
    [prometheus-operator]="module github.com/prometheus-operator/prometheus-operator@v0.85.0"
)
# What the go.mod of this helm asks for, and Rust for Cargo.toml.
GO_MIN=1.26
RUST_MIN=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")

# $1 = name. Prints the folder that a tool is in once it has been fetched.
tool_home() {
    printf '%s/tool-%s-%s\n' "$CACHE" "$1" "$(printf '%s' "${TOOLS[$1]#* }" | sha256sum | cut -c1-12)"
}

# $1 = name. Prints the folder that holds the tool; nothing for packages.
fetch_tool() {
    local spec=${TOOLS[${1-}]-} kind home stage
    [[ -n $spec ]] || die "packaging/lib.sh knows no tool ${1-}; add it to TOOLS"
    kind=${spec%% *}
    read -ra spec <<<"${spec#* }"
    if [[ $kind == apt ]]; then
        fetch_packages "${spec[@]}"
        return
    fi
    home=$(tool_home "$1")
    if [[ ! -d $home ]]; then
        say "fetching $1: ${spec[*]} ($kind)"
        mkdir -p "$CACHE" || die "$CACHE cannot be made; set WALRELAY_DEV_CACHE to a folder of yours"
        stage=$home.partial
        rm -rf -- "$stage"
        "fetch_$kind" "$stage" "${spec[@]}" >"$home.log" 2>&1 ||
            die "$1 could not be fetched; run this again when the registry, or your mirror of it, answers. It said:
$(tail -n 20 "$home.log")"
        mv -T "$stage" "$home"
    fi
    printf '%s\n' "$home"
}
fetch_pypi() { python3 -m pip install --disable-pip-version-check --only-binary=:all: --target "$@"; }
fetch_cargo() { cargo install --quiet --locked --root "$@"; }
fetch_go() { GOBIN=$1/bin GOFLAGS=-modcacherw go install "${@:2}"; }
fetch_module() {
    local folder
    mkdir -p "$1.modules"
    folder=$(GOFLAGS=-modcacherw GOMODCACHE=$1.modules go mod download -json "$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mv -T "$folder" "$1"
    rm -rf -- "$1.modules"
}
# $1, $2 = versions. Whether the second is at least the first.
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; }
rust_is_new() { at_least "$RUST_MIN" "$(rustc --version 2>/dev/null | cut -d ' ' -f 2)" && have cargo; }
# From 1.21 on Go fetches the Go that a module asks for, unless GOTOOLCHAIN forbids it.
go_is_new() {
    local version
    version=$(cd / && go env GOVERSION 2>/dev/null) || return 1
    version=${version##*go}
    at_least "$GO_MIN" "$version" || { at_least 1.21 "$version" && [[ $(cd / && go env GOTOOLCHAIN) =~ (^|\+)auto$ ]]; }
}
fetch_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    { have apt-get && ((EUID == 0)); } || die "these packages are missing; install them and run this again: ${missing[*]}"
    say "installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1 ||
        die "apt-get could not install ${missing[*]}"
}

# $1 = suite. Prints the folder of a minimal Debian of it, made when it is not there (a minute, 300 MB).
chroot_of() {
    local home=$CACHE/dist-$1 mirror
    if [[ ! -d $home ]]; then
        ((EUID == 0)) || die "a folder with a Debian $1 of its own needs root"
        unshare --mount true 2>/dev/null || die "a folder with a Debian $1 of its own needs the right to mount; add CAP_SYS_ADMIN to this container"
        fetch_tool debootstrap
        mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
        say "making a Debian $1 in $home (a minute, 300 MB)"
        mkdir -p "$CACHE"
        # A second run at the same time makes its own and loses the race, which does no harm.
        unshare --mount debootstrap --variant=minbase "$1" "$home.$$" "$mirror" >"$home.log" 2>&1 </dev/null ||
            { rm -rf -- "$home.$$"; die "debootstrap of Debian $1 from $mirror failed; set DEBIAN_MIRROR to a mirror that answers. It said:
$(tail -n 20 "$home.log")"; }
        rm -rf -- "$home.$$"/var/cache/apt/archives/*.deb "$home.$$"/var/lib/apt/lists/*
        printf '127.0.0.1\tlocalhost\n' >"$home.$$/etc/hosts"
        trust_of_this_machine "$home.$$"
        mv -T "$home.$$" "$home" 2>/dev/null || rm -rf -- "$home.$$"
    fi
    printf '%s\n' "$home"
}

# A machine behind a proxy with an authority of its own has it here; a Debian in a folder trusts it too.
trust_of_this_machine() {
    local authority
    for authority in /usr/local/share/ca-certificates/*.crt; do
        [[ -e $authority ]] || continue
        install -D -m 644 "$authority" "$1/usr/local/share/ca-certificates/$(basename "$authority")"
    done
}

# $1 = suite or folder, then a command. It runs there as root, with the network of this machine, /dist ($DIST,
# read only), /src (this repository, read only) and /proc, /dev and /sys of its own view. What it writes goes into memory
# and is gone afterwards, except what it writes into $OUT, which is /out there if it is set. Its
# processes end with it.
in_chroot() {
    local home=$1
    shift
    [[ $home == /* ]] || home=$(chroot_of "$home")
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child /bin/bash -ec '
        home=$1 dist=$2 src=$3 out=$4
        shift 4
        view=$(mktemp -d /tmp/walrelay-dist.XXXXXX)
        trap "umount -l \"$view\" 2>/dev/null; rmdir \"$view\"" EXIT
        mount -t tmpfs -o mode=755 walrelay "$view"
        mkdir "$view/upper" "$view/work" "$view/root"
        mount -t overlay -o "lowerdir=$home,upperdir=$view/upper,workdir=$view/work" walrelay "$view/root"
        bind() { mkdir -p "$view/root$2" && mount --bind "$1" "$view/root$2"; }
        mount -t proc proc "$view/root/proc"
        mount --rbind /dev "$view/root/dev"
        mount --rbind /sys "$view/root/sys"
        bind "$dist" /dist && mount -o remount,ro,bind "$view/root/dist"
        bind "$src" /src && mount -o remount,ro,bind "$view/root/src"
        [ -z "$out" ] || bind "$out" /out
        cp -L /etc/resolv.conf "$view/root/etc/resolv.conf"
        mkdir -p "$view/root/usr/sbin"
        printf "#!/bin/sh\nexit 101\n" >"$view/root/usr/sbin/policy-rc.d"
        chmod 755 "$view/root/usr/sbin/policy-rc.d"
        status=0
        # Nothing of the environment of this machine.
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
            DEBIAN_FRONTEND=noninteractive /usr/sbin/chroot "$view/root" "$@" || status=$?
        exit "$status"
    ' in_chroot "$home" "$DIST" "$root" "${OUT-}" "$@"
}

failures=0
pass() { printf 'PASS  %s\n' "$*"; }
fail() {
    printf 'FAIL  %s\n' "$*"
    failures=$((failures + 1))
}
# $1 = what is checked, then a command. Its last line is shown as what was seen; all of it when it fails.
check() {
    local what=$1 said status
    shift
    # A function stops at its first failure only where nothing asks for its outcome.
    set +e
    said=$(
        set -e
        "$@" 2>&1
    )
    status=$?
    set -e
    if ((status == 0)); then
        pass "$what${said:+: ${said##*$'\n'}}"
    else
        fail "$what:"$'\n'"$said"
    fi
}
# $1 = expected, $2 = seen.
equals() {
    printf '%s\n' "$2"
    [[ $2 == "$1" ]] || { printf 'expected: %s\n' "$1" && false; }
}
# $1 = exit code, $2 = words that must be printed, then a command.
exits() {
    local code=$1 words=$2 said status=0
    shift 2
    said=$("$@" 2>&1) || status=$?
    if ((status == code)) && grep -qF -- "$words" <<<"$said"; then
        printf 'exit %s, %s\n' "$status" "$(grep -F -m 1 -- "$words" <<<"$said" | cut -c -160)"
    else
        printf 'exit %s, expected %s and "%s":\n%s\n' "$status" "$code" "$words" "$said"
        false
    fi
}
# $1 = folder. Every relative link of the Markdown in it leads to a file in it.
links_lead() {
    local home file link count=0 wrong=()
    home=$(realpath "$1")
    while IFS=: read -r file link; do
        count=$((count + 1))
        [[ $(realpath -e -- "${file%/*}/${link%%#*}" 2>/dev/null) == "$home"/* ]] || wrong+=("${file#"$home"/}: $link")
    done < <(grep -roP --include='*.md' '\]\(\K(?![a-z]+:|#)[^)\s]+' "$home")
    ((${#wrong[@]} == 0)) || printf 'leads nowhere: %s\n' "${wrong[@]}"
    echo "$count links"
    ((count && ${#wrong[@]} == 0))
}
# A command whose output matters only when it fails.
quietly() { "$@" >/tmp/said 2>&1 || die "$* failed: $(tail -n 20 /tmp/said)"; }
mode() { stat -c '%U:%G %a' "$1"; }
# How many relays run, and units are enabled.
started() { { grep -xl walrelay /proc/[0-9]*/comm || true; find /etc/systemd -name 'walrelay*'; } 2>/dev/null | wc -l; }
finish() {
    if ((failures)); then
        printf '%s: %s checks failed\n' "$part" "$failures" >&2
        exit 1
    fi
}

# Starts PostgreSQL and Kafka of the test harness on free ports, for the life of this shell, and sets
# $postgres_url, $kafka_brokers and $config, a configuration file for them in $1 that `walrelay init` has
# been run with ($2 = walrelay).
start_services() {
    local line service url
    (cd "$root" && cargo build --quiet --locked -p walrelay-harness --bin services) || die "the services of the tests do not compile"
    mkdir -p "$1/run"
    chmod 755 "$1" "$1/run"
    # They end when their standard input does, and so with this shell, whatever ends it.
    coproc SERVICES { WALRELAY_DEV_RUN=$1/run exec "${CARGO_TARGET_DIR:-$root/target}/debug/services" run postgres kafka 2>"$1/services.log"; }
    while read -r line <&"${SERVICES[0]}"; do
        read -r service _ _ _ _ url _ <<<"$line"
        case $service in
        postgres) postgres_url=$url ;;
        kafka) kafka_brokers=$url ;;
        running*) break ;;
        esac
    done
    [[ -n ${kafka_brokers-} ]] || die "the services did not start: $(cat "$1/services.log")"
    export config=$1/walrelay.toml
    cat >"$config" <<TOML
[source]
url = "$postgres_url"

[sink.kafka]
brokers = "$kafka_brokers"
topics = ["outbox.event.order"]
TOML
    "$2" init --config "$config" >"$1/init.log" 2>&1 || die "walrelay init failed: $(cat "$1/init.log")"
}

# They end when their standard input does.
stop_services() {
    [[ -n ${SERVICES_PID-} ]] || return 0
    local pid=$SERVICES_PID input=${SERVICES[1]}
    exec {input}>&-
    wait "$pid" || true
}
