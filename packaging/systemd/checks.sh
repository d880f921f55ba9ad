# shellcheck shell=bash
# More checks for the tests of packages, beside those of packaging/lib.sh, which is sourced first.

# $1 = what is checked, $2 = expected, $3 = seen.
same() { if [[ $3 == "$2" ]]; then pass "$1: $3"; else fail "$1: $3"$'\n'"expected: $2"; fi; }

# $1 = what is checked, $2 = exit code, $3 = words that must be printed, then a command.
ends() {
    local what=$1 code=$2 words=$3 said status=0
    shift 3
    said=$("$@" 2>&1) || status=$?
    if ((status == code)) && grep -qF -- "$words" <<<"$said"; then
        pass "$what: exit $status, $(grep -F -m 1 -- "$words" <<<"$said" | cut -c -160)"
    else
        fail "$what: exit $status, expected $code and \"$words\":"$'\n'"$said"
    fi
}

# A command whose output matters only when it fails.
quietly() { "$@" >/tmp/said 2>&1 || die "$* failed: $(tail -n 20 /tmp/said)"; }

mode() { stat -c '%U:%G %a' "$1"; }

# How many relays run, and units are enabled.
started() { { grep -xl walrelay /proc/[0-9]*/comm || true; find /etc/systemd -name 'walrelay*'; } 2>/dev/null | wc -l; }
