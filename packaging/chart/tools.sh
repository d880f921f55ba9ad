# shellcheck shell=bash
# What the build and the test of the chart have in common. Sourced after packaging/lib.sh.
: "${root:?}" "${STAGE:?}"

here=$root/packaging/chart
# The program whose configuration the chart writes.
walrelay=${WALRELAY:-$STAGE/bin/walrelay}
[[ -x $walrelay ]] || die "$walrelay is missing: run packaging/binary/build, or set WALRELAY to a walrelay"

helm_home=$(fetch_tool helm)
work=$(mktemp -d "${TMPDIR:-/tmp}/walrelay-chart.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

# Nothing of the user's own Helm: no plugins, no repositories, no cluster.
helm() {
    HELM_CONFIG_HOME=$work/helm HELM_CACHE_HOME=$work/helm HELM_DATA_HOME=$work/helm KUBECONFIG=/dev/null "$helm_home/bin/helm" "$@"
}

checks() { PYTHONPATH=$(fetch_tool kubernetes-validate) python3 "$here/checks.py" "$@"; }

# $1 = chart, $2 = name of a value file in values/. The release is called walrelay, its namespace outbox.
rendered() { helm template walrelay "$1" --namespace outbox --values "$here/values/$2.yaml"; }

# $1 = chart, then arguments of `helm template`. Without what only Helm needs.
plain() {
    printf '# Rendered from packaging/chart/walrelay by packaging/chart/build; docs/kubernetes.md says how to use it.\n'
    helm template walrelay "$@" --values "$here/plain-manifests.yaml" | sed -e '/^# Source: /d' -e '/helm\.sh\/chart: /d' -e '/app\.kubernetes\.io\/managed-by: /d' | cat -s
}

# $1 = chart, $2 = folder. Writes all that the repository holds of what the chart renders.
render_all() {
    local chart=$1 to=$2 file
    mkdir -p "$to/golden" "$to/kubernetes"
    for file in "$here"/values/*.yaml; do
        file=$(basename "$file" .yaml)
        rendered "$chart" "$file" >"$to/golden/$file.yaml"
    done
    plain "$chart" --show-only templates/serviceaccount.yaml --show-only templates/configmap.yaml --show-only templates/service.yaml \
        --show-only templates/poddisruptionbudget.yaml --show-only templates/statefulset.yaml >"$to/kubernetes/walrelay.yaml"
    # It is applied first, so it has the account too.
    plain "$chart" --show-only templates/serviceaccount.yaml --show-only templates/init.yaml >"$to/kubernetes/init.yaml"
    plain "$chart" --show-only templates/networkpolicy.yaml >"$to/kubernetes/network-policy.yaml"
    plain "$chart" --show-only templates/servicemonitor.yaml \
        --show-only templates/prometheusrule.yaml >"$to/kubernetes/monitoring.yaml"
}
