use super::*;
use args::{ConfigAction, DlqAction, OutputFormat, SlotAction};
use clap::{CommandFactory, Parser as _};

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
        "walrelay --config a.toml --set x.y=1 --set x.z=2 run --slot s",
        "walrelay run -c a.toml --set x.y=1 --set x.z=2 --slot s",
    ] {
        let request = parse(line).request();
        assert_eq!(request.file, Some("a.toml".into()));
        assert_eq!(request.settings, ["x.y=1", "x.z=2"]);
        assert_eq!(request.slot.as_deref(), Some("s"));
    }
}

#[test]
fn what_is_set_on_both_sides_of_a_command_is_refused_and_not_left_out() {
    let of = |line: &str| Args::of(line.split(' ').map(Into::into).collect());
    let both = of("walrelay --set x.y=1 slot drop --set x.z=2").err().unwrap();
    assert!(both.to_string().contains("every --set before the command"), "{both}");
    for line in ["walrelay --set x.y=1 --set=x.z=2 run", "walrelay run --set=x.y=1 --set x.z=2"] {
        assert_eq!(of(line).unwrap().request().settings, ["x.y=1", "x.z=2"]);
    }
}

#[test]
fn every_command_is_known() {
    let check = parse("walrelay check --json").command;
    assert!(
        matches!(check, Command::Check { output, .. } if output.format() == OutputFormat::Json)
    );
    assert!(matches!(parse("walrelay init --sql").command, Command::Init(args) if args.sql));
    let slot = parse("walrelay slot drop").command;
    assert!(matches!(slot, Command::Slot { action: SlotAction::Drop { .. } }));
    let config = parse("walrelay config schema").command;
    assert!(matches!(config, Command::Config { action: ConfigAction::Schema }));
}

#[test]
fn an_option_stands_only_where_it_acts() {
    for line in [
        "walrelay completions bash --listen 127.0.0.1:1",
        "walrelay dlq list --slot s",
        "walrelay init --listen 127.0.0.1:1",
        "walrelay slot show --slot s",
        "walrelay check --json --output json",
        "walrelay init --sql --dry-run",
    ] {
        assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
    let status = parse("walrelay status --listen 127.0.0.1:1").request();
    assert_eq!(status.listen.as_deref(), Some("127.0.0.1:1"));
}

#[test]
fn a_list_is_not_limited_to_none() {
    for list in ["outbox", "dlq"] {
        let parsed = |limit: u32| {
            Args::try_parse_from(["walrelay", list, "list", "--limit", &limit.to_string()])
        };
        assert!(parsed(0).is_err() && parsed(1).is_ok() && parsed(u32::MAX).is_ok(), "{list}");
    }
}

#[test]
fn a_slot_is_named_as_an_argument() {
    for action in ["create", "drop", "show"] {
        let request = parse(&format!("walrelay slot {action} other")).request();
        assert_eq!(request.slot.as_deref(), Some("other"), "{action}");
        assert_eq!(parse(&format!("walrelay slot {action}")).request().slot, None);
    }
}

#[test]
fn several_ids_are_named_as_arguments() {
    for line in [
        "walrelay dlq list a b",
        "walrelay dlq show a b",
        "walrelay dlq replay a b -n",
        "walrelay dlq discard a b -y",
        "walrelay find a b -o jsonl",
        "walrelay outbox list a b",
        "walrelay outbox retry a b -n",
    ] {
        assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
    }
    let Command::Dlq { action: DlqAction::Replay(args), .. } =
        parse("walrelay dlq replay a b --id c").command
    else {
        panic!("no replay");
    };
    assert_eq!(args.work.filter.ids(), ["a", "b", "c"].into());
}

#[test]
fn short_options_of_the_log_stand_over_its_level() {
    let level = |line: &str| parse(line).log.level().map(str::to_owned);
    assert_eq!(
        level("walrelay run --log info,walrelay=trace").as_deref(),
        Some("info,walrelay=trace")
    );
    assert_eq!(level("walrelay run -v --log error").as_deref(), Some("debug"));
    assert_eq!(level("walrelay -q run").as_deref(), Some("warn"));
    assert!(Args::try_parse_from(["walrelay", "-q", "-v", "run"]).is_err());
}

#[test]
fn json_keeps_the_form_that_a_command_had() {
    let Command::Dlq { action: DlqAction::List(list), .. } =
        parse("walrelay dlq list --json").command
    else {
        panic!("no list");
    };
    assert_eq!(list.output.format(), OutputFormat::Jsonl);
    let Command::Dlq { action: DlqAction::Discard(discard), .. } =
        parse("walrelay dlq discard --all --json").command
    else {
        panic!("no discard");
    };
    let output = discard.work.output;
    assert_eq!((output.format(), output.list_format()), (OutputFormat::Json, OutputFormat::Jsonl));
}

#[test]
fn the_log_has_the_format_that_is_asked_for() {
    assert_eq!(logging::style(false, Some(LogFormat::Json)), Style::Json);
    assert!(matches!(logging::style(true, Some(LogFormat::Text)), Style::Text { .. }));
    let log = parse("walrelay run --log-format json").log;
    assert_eq!(log.format(), Some(LogFormat::Json));
    // A variable that is set to an empty text arrives as one.
    let empty = Args::try_parse_from(["walrelay", "run", "--log-format", ""]).unwrap();
    assert_eq!(empty.log.format(), None);
    assert!(Args::try_parse_from(["walrelay", "run", "--log-format", "xml"]).is_err());
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
    let exit = execute(words, |_, _| Style::Text { coloured: false }, &mut errors);
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
        let style = |is_service, _: Option<LogFormat>| {
            seen = Some(is_service);
            Style::Text { coloured: false }
        };
        execute(words.split(' ').map(OsString::from), style, &mut Vec::new());
        assert_eq!(seen, Some(wanted), "{command}");
    }
}

#[test]
fn the_version_says_what_was_built_of_what() {
    let version = Args::command().render_long_version();
    for part in ["librdkafka 2.", "commit ", "features ", "TLS by "] {
        assert!(version.contains(part), "{part}: {version}");
    }
}

/// The texts in backticks, and the lines of fences, up to a comment; `a && b` is two commands.
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

#[test]
fn an_example_of_the_configuration_is_the_file_that_is_shipped() {
    for (sink, kind) in [
        ("", "kafka"),
        ("--sink kafka", "kafka"),
        ("--sink rabbitmq", "rabbitmq"),
        ("--sink file", "file"),
    ] {
        let line = format!("walrelay config example {sink}");
        let Command::Config { action: ConfigAction::Example { sink } } = parse(&line).command
        else {
            panic!("{line}");
        };
        let (_, text) = crate::sink::examples().find(|(name, _)| *name == sink).unwrap();
        assert!(text.contains(&format!("kind = \"{kind}\"")), "{line}");
    }
}
