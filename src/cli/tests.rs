use super::*;
use args::{ConfigAction, SlotAction};
use clap::CommandFactory;

fn parse(line: &str) -> Args {
    Args::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_definition_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn global_flags_stand_before_or_after_the_command() {
    for line in [
        "walrelay --config a.toml --set x.y=1 --set x.z=2 --slot s run",
        "walrelay run --config a.toml --set x.y=1 --set x.z=2 --slot s",
    ] {
        let request = parse(line).configuration.request();
        assert_eq!(request.file, Some("a.toml".into()));
        assert_eq!(request.settings, ["x.y=1", "x.z=2"]);
        assert_eq!(request.slot.as_deref(), Some("s"));
    }
}

#[test]
fn every_command_is_known() {
    assert!(matches!(parse("walrelay check --json").command, Command::Check { json: true }));
    assert!(matches!(parse("walrelay init --sql").command, Command::Init { sql: true, .. }));
    let slot = parse("walrelay slot drop").command;
    assert!(matches!(slot, Command::Slot { action: SlotAction::Drop { .. } }));
    let config = parse("walrelay config schema").command;
    assert!(matches!(config, Command::Config { action: ConfigAction::Schema }));
}

#[test]
fn every_command_has_an_example() {
    fn visit(command: &clap::Command, path: &str) {
        let leaf = command.get_subcommands().next().is_none();
        if leaf && !command.is_hide_set() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("walrelay"), "{path}");
        }
        for child in command.get_subcommands() {
            visit(child, &format!("{path} {}", child.get_name()));
        }
    }
    visit(&Args::command(), "walrelay");
}

#[test]
fn a_problem_of_the_configuration_exits_2_and_is_told_whole() {
    // GIVEN a file that is not there
    let words = "walrelay --config /nonexistent/w.toml run".split(' ').map(OsString::from);
    let mut errors = Vec::new();
    // WHEN a command needs it
    let exit = execute(words, |_| Style::Text { coloured: false }, &mut errors);
    // THEN the fault is told in three lines and the exit code is that of bad usage
    assert_eq!(exit, Exit::Usage);
    assert_eq!(
        String::from_utf8(errors).unwrap(),
        "error[config.unreadable]: there is no such configuration file\n  \
         where: /nonexistent/w.toml\n  \
         help:  ls -l /nonexistent/w.toml; or: walrelay --config FILE\n"
    );
}

#[test]
fn only_the_relay_itself_is_a_service() {
    for (command, wanted) in [("run", true), ("check", false), ("dlq list", false)] {
        let words = format!("walrelay --config /nonexistent/w.toml {command}");
        let mut seen = None;
        let style = |is_service| {
            seen = Some(is_service);
            Style::Text { coloured: false }
        };
        execute(words.split(' ').map(OsString::from), style, &mut Vec::new());
        assert_eq!(seen, Some(wanted), "{command}");
    }
}

#[test]
fn the_version_names_the_client_library() {
    let version = Args::command().render_long_version();
    assert!(version.contains("librdkafka 2."), "{version}");
}

/// What stands in backticks, and the lines of fences, up to a comment; `a && b` is two commands.
fn commands(text: &str) -> Vec<String> {
    let fenced = text.split("```").skip(1).step_by(2).flat_map(str::lines).map(str::to_owned);
    let prose: String = text.split("```").step_by(2).collect::<Vec<_>>().join(" ");
    let inline = prose.split('`').skip(1).step_by(2).map(str::to_owned);
    let all = inline.chain(fenced).flat_map(|line| {
        let line = line.split(" #").next().unwrap_or_default().to_owned();
        line.split("&&").map(|it| it.trim().trim_start_matches("$ ").to_owned()).collect::<Vec<_>>()
    });
    all.filter(|line| line.starts_with("walrelay ")).collect()
}

#[test]
fn commands_of_alerts_and_of_what_they_lead_to_are_commands() {
    for (path, text) in [
        ("config/alerts.yml", include_str!("../../config/alerts.yml")),
        ("docs/runbook.md", include_str!("../../docs/runbook.md")),
        ("docs/operations.md", include_str!("../../docs/operations.md")),
    ] {
        let text = text.replace("{{ $labels.consumer }}", "billing");
        let found = commands(&text);
        assert!(found.len() > 5, "{path}: {found:?}");
        // A command that is named, and one whose arguments are left out, are not to be typed.
        for line in found.iter().filter(|line| !line.contains(['…', '|', '<', '[', '('])) {
            let words = line.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
            if let Err(error) = Args::try_parse_from(words) {
                use clap::error::ErrorKind::{
                    DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument,
                };
                let named = [DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument];
                assert!(named.contains(&error.kind()), "{path}: {line}: {error}");
            }
        }
    }
}
