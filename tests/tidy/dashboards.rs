//! Dashboards in the form that Grafana reads, alert rules with their tests and their runbook.
//!
//! Grafana itself is not at hand here: its schema is checked as far as an error would show an empty
//! panel or none. That the queries find something is shown with a real Prometheus
//! (`tests/dashboards`).

use std::collections::HashSet;

use serde_json::Value;
use walrelay::metrics::MetricSpec;

const DATA_SOURCE: &str = "${datasource}";
/// The schema version of Grafana 10 and later.
const SCHEMA_VERSION_MIN: u64 = 36;
const COLUMNS: u64 = 24;
const PANELS: &[&str] = &["heatmap", "row", "stat", "state-timeline", "timeseries"];
/// Ids of Grafana's units: <https://grafana.com/docs/grafana/latest/panels-visualizations/>.
const UNITS: &[&str] = &["bytes", "cps", "eps", "none", "percentunit", "s", "short"];
const EACH_SELECTOR: &str = "{job=\"$job\", instance=~\"$instance\"";
/// Functions over a window, which must fit the scrape interval of whoever looks.
const WINDOW: &str = "[$__rate_interval]";

/// The problems of a dashboard.
pub(crate) fn violations(path: &str, text: &str) -> Vec<String> {
    let board: Value = match serde_json::from_str(text) {
        Ok(board) => board,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut wrong = board_violations(&board);
    let panels = items(&board["panels"]);
    let ids: Vec<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    if ids.len() != panels.len() || ids.iter().collect::<HashSet<_>>().len() != ids.len() {
        wrong.push("ids of panels are missing or not unique".to_owned());
    }
    for (index, panel) in panels.iter().enumerate() {
        let place = format!("panel {} ({})", panel["id"], panel["title"]);
        wrong.extend(panel_violations(panel).into_iter().map(|what| format!("{place}: {what}")));
        if panels[..index].iter().any(|other| overlap(panel, other)) {
            wrong.push(format!("{place}: it covers another one"));
        }
    }
    wrong.into_iter().map(|what| format!("{path}: {what}")).collect()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_blank(value: &Value) -> bool {
    value.as_str().is_none_or(|text| text.trim().is_empty())
}

fn board_violations(board: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if board["uid"].as_str().is_none_or(|uid| !uid.starts_with("walrelay-") || uid.len() > 40) {
        wrong.push("no uid of ours: links to it would break at the next import".to_owned());
    }
    if is_blank(&board["title"]) || is_blank(&board["description"]) {
        wrong.push("it has no title or no description".to_owned());
    }
    if board["schemaVersion"].as_u64().is_none_or(|version| version < SCHEMA_VERSION_MIN) {
        wrong.push("its schemaVersion is too old".to_owned());
    }
    if !board["id"].is_null() {
        wrong.push("it has the id that some Grafana gave it".to_owned());
    }
    let variables = items(&board["templating"]["list"]);
    let names: Vec<&str> = variables.iter().filter_map(|one| one["name"].as_str()).collect();
    if names != ["datasource", "job", "instance"] {
        wrong.push(format!("its variables are {names:?}"));
    }
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        if variable["datasource"]["uid"] != DATA_SOURCE {
            wrong.push(format!("variable {} asks a fixed data source", variable["name"]));
        }
    }
    wrong
}

fn panel_violations(panel: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let kind = panel["type"].as_str().unwrap_or_default();
    if !PANELS.contains(&kind) || is_blank(&panel["title"]) || position(panel).is_none() {
        wrong.push("no type, title or place that Grafana knows".to_owned());
    }
    if kind == "row" {
        return wrong;
    }
    if is_blank(&panel["description"]) {
        wrong.push("it has no description".to_owned());
    }
    if panel["datasource"]["uid"] != DATA_SOURCE {
        wrong.push("it asks a fixed data source".to_owned());
    }
    let unit = match kind {
        "heatmap" => &panel["options"]["yAxis"]["unit"],
        _ => &panel["fieldConfig"]["defaults"]["unit"],
    };
    if unit.as_str().is_none_or(|unit| !UNITS.contains(&unit)) {
        wrong.push(format!("its unit is {unit}"));
    }
    let targets = items(&panel["targets"]);
    let refs: HashSet<&str> =
        targets.iter().filter_map(|target| target["refId"].as_str()).collect();
    if targets.is_empty() || refs.len() != targets.len() {
        wrong.push("it has no query, or two of one refId".to_owned());
    }
    for target in targets {
        if target["datasource"]["uid"] != DATA_SOURCE || is_blank(&target["legendFormat"]) {
            wrong.push("a query has a fixed data source, or no legend".to_owned());
        }
        wrong.extend(query_violations(target["expr"].as_str().unwrap_or_default()));
    }
    wrong
}

/// Every metric is narrowed to the chosen relays, every window to Grafana's choice.
fn query_violations(query: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let prefixes = ["consumer_", "outbox_", "process_"];
    let metrics: usize = prefixes.iter().map(|prefix| query.matches(prefix).count()).sum();
    if metrics == 0 || query.matches(EACH_SELECTOR).count() != metrics {
        wrong.push(format!("not every metric has job and instance: {query}"));
    }
    if query.replace(WINDOW, "").contains('[') {
        wrong.push(format!("a window is not {WINDOW}: {query}"));
    }
    wrong
}

/// Left, right, top and bottom in Grafana's grid.
fn position(panel: &Value) -> Option<[u64; 4]> {
    let at = |name: &str| panel["gridPos"][name].as_u64();
    let (x, y, width, height) = (at("x")?, at("y")?, at("w")?, at("h")?);
    let fits = width > 0 && height > 0 && x + width <= COLUMNS;
    fits.then_some([x, x + width, y, y + height])
}

fn overlap(one: &Value, other: &Value) -> bool {
    let (Some(a), Some(b)) = (position(one), position(other)) else { return false };
    a[0] < b[1] && b[0] < a[1] && a[2] < b[3] && b[2] < a[3]
}

/// Metrics that no dashboard shows.
pub(crate) fn metrics_not_shown(boards: &[String], specs: &[MetricSpec]) -> Vec<String> {
    let is_shown = |name: &str| boards.iter().any(|board| board.contains(name));
    let hidden = specs.iter().filter(|spec| !is_shown(spec.name));
    hidden.map(|spec| format!("config/grafana: no panel shows `{}`", spec.name)).collect()
}

/// Metrics of consumers that walrelay-inbox declares in `source` and nothing shows, and names that it
/// does not declare.
pub(crate) fn consumer_metric_violations(source: &str, users: &[String]) -> Vec<String> {
    let names = |text: &str| -> HashSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours = words.filter(|word| word.starts_with("consumer_"));
        ours.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
    };
    let declared = names(source);
    let used: HashSet<String> = users.iter().flat_map(|text| names(text)).collect();
    let hidden = declared.difference(&used).map(|name| format!("config: nothing shows `{name}`"));
    let unknown = used.difference(&declared).map(|name| format!("config: no metric `{name}`"));
    hidden.chain(unknown).collect()
}

/// Alerts without a section of the runbook, a link to it, a test in which they fire, or one in which
/// they do not; sections without an alert; and commands of an alert that its section does not have,
/// or that are not marked as commands. That they are commands is tested in `src/cli`.
pub(crate) fn alert_violations(rules: &str, tests: &str, runbook: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    let name = |rule: &str| rule.lines().next().unwrap_or_default().trim().to_owned();
    let names: Vec<String> = alerts.iter().map(|rule| name(rule)).collect();
    for (rule, name) in alerts.iter().zip(&names) {
        let link = format!("runbook_url: docs/runbook.md#{}\n", name.to_lowercase());
        for (there, what) in [
            (rule.contains(&link), "no runbook_url that leads to its section"),
            (rule.contains("summary: ") && rule.contains("description: "), "no description"),
            (rule.contains("severity: page") || rule.contains("severity: ticket"), "no severity"),
            (tests.contains(&format!("alertname=\"{name}\"")), "no test in which it fires"),
            (tests.contains(&format!("alertname: {name} }}")), "no test in which it is silent"),
        ] {
            if !there {
                wrong.push(format!("alert {name}: {what}"));
            }
        }
        let section = section(runbook, name).unwrap_or_default();
        for part in ["**Means.**", "**Look.**", "**Fix.**"] {
            if !section.contains(part) {
                wrong.push(format!("alert {name}: docs/runbook.md has no {part}"));
            }
        }
        // Folded lines of YAML, and what Prometheus fills in.
        let flat = rule.replace("{{ $labels.consumer }}", "billing");
        let flat = flat.split_whitespace().collect::<Vec<_>>().join(" ");
        let commands = flat.split('`').skip(1).step_by(2).filter(|text| text.contains("walrelay "));
        let unknown = commands.filter(|command| !section.contains(command));
        wrong.extend(unknown.map(|it| format!("alert {name}: docs/runbook.md has no `{it}`")));
        let bare = flat.split('`').step_by(2).any(|text| text.contains("walrelay "));
        wrong.extend(bare.then(|| format!("alert {name}: a command is not in backticks")));
    }
    // The title of a section about a symptom has several words.
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let alerts = sections.filter(|title| !title.contains(' '));
    let stale = alerts.filter(|title| !names.iter().any(|name| name == title));
    wrong.extend(stale.map(|title| format!("docs/runbook.md: no alert {title}")));
    wrong
}

fn section<'a>(runbook: &'a str, title: &str) -> Option<&'a str> {
    let (_, rest) = runbook.split_once(&format!("\n## {title}\n"))?;
    Some(rest.split("\n## ").next().unwrap_or_default())
}

/// Images of the compose file that are not pinned, files that it mounts and that are not there, and a
/// relay without a place for its state file.
pub(crate) fn compose_violations(compose: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in compose.lines().map(str::trim) {
        let image = line.strip_prefix("image: ");
        if image.is_some_and(|image| !image.contains(':') || image.ends_with(":latest")) {
            wrong.push(format!("docker-compose.yml: not pinned: {line}"));
        }
        let mounts = line.split(['"', ' ']).filter_map(|word| word.strip_prefix("./"));
        let sources = mounts.filter_map(|mount| mount.split(':').next());
        let gone = sources.filter(|source| !exists(source));
        wrong.extend(gone.map(|source| format!("docker-compose.yml: {source} is not there")));
    }
    let has_place = !compose.contains("read_only: true") || compose.contains(":/var/lib/walrelay");
    let missing = "docker-compose.yml: no volume for the state file".to_owned();
    wrong.extend((!has_place).then_some(missing));
    wrong
}
