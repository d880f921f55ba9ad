//! A private RabbitMQ.
//!
//! Each node has its own `epmd`, Erlang's name server, on its own port: a shared one outlives every
//! server and would tie runs to each other. After a kill the node answers before its quorum queues
//! have a leader, and a quorum queue or a stream that was declared in the seconds before a kill can be
//! forgotten with its messages, unless [`RabbitMq::sync_declarations`] was called. Where dead letters
//! go by default is there from the start: a relay insists on it.

use std::io::Write as _;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::amqp::Client;
use crate::install::RabbitInstall;
use crate::kit::wait_for;
use crate::place::Place;
use crate::process::{self, Kind, Process, without_variables};
use crate::rabbit::Rabbit;
use crate::{HarnessError, Result, install, ports};

const START_LIMIT: Duration = Duration::from_secs(90);
const ANSWER_LIMIT: Duration = Duration::from_millis(1000);
const ALARM_LIMIT: Duration = Duration::from_secs(30);
/// As the node has them when nothing is set.
const MEMORY_LIMIT_FRACTION: f64 = 0.4;
const DISK_FREE_LIMIT_BYTES: u64 = 50_000_000;

/// The folder of the one application that a node without plugins looks for by its name, and a folder
/// with links to all modules. Otherwise each module is looked for in a hundred folders, which is
/// half of a start.
const APPLICATIONS: &str = "applications";
const MODULES: &str = "modules";

#[derive(Clone, Debug, Default)]
pub struct RabbitOptions {
    /// Plugins, such as `rabbitmq_management`.
    pub plugins: Vec<String>,
    /// More lines of `rabbitmq.conf`: a TLS listener, a limit. Take ports from
    /// [`free_port`](crate::free_port), and write files that it names where the node's user can
    /// read them.
    pub extra_conf: String,
}

/// A running RabbitMQ; user and password `guest`. Dropping it removes it.
pub struct RabbitMq {
    process: Process,
    origin: String,
    port: u16,
    dist_port: u16,
    epmd_port: u16,
}

impl RabbitMq {
    /// Starts a new node; returns when a client can work with it.
    pub fn start() -> Result<RabbitMq> {
        RabbitMq::start_with(&RabbitOptions::default())
    }

    pub fn start_with(options: &RabbitOptions) -> Result<RabbitMq> {
        ports::retry(|| RabbitMq::start_once(options))
    }

    fn start_once(options: &RabbitOptions) -> Result<RabbitMq> {
        let install = install::rabbitmq()?;
        let place = Place::of(install.root.as_deref(), &["rabbitmq", "nobody"])?;
        let (port, dist_port, epmd_port) = (ports::free()?, ports::free()?, ports::free()?);
        let kind = Kind { name: "RabbitMQ", short: "rmq", end: "KILL" };
        let stop_epmd = place.shell(&format!("epmd -port {epmd_port} -kill"));
        let process = Process::new(kind, place, &stop_epmd)?;
        process.write("rabbitmq.conf", &configuration(port, &options.extra_conf))?;
        // The file that `rabbitmq-plugins` would write.
        process.write("enabled_plugins", &format!("[{}].\n", options.plugins.join(",")))?;
        process.write("env", "")?;
        if options.plugins.is_empty() {
            link_modules(process.folder(), &install)?;
        }
        let mut rabbitmq =
            RabbitMq { process, origin: install.origin(), port, dist_port, epmd_port };
        rabbitmq.launch()?;
        let mut rabbit = Rabbit::open(&rabbitmq.amqp_url())?;
        rabbit.declare_dead_letters()?;
        rabbit.close();
        rabbitmq.sync_declarations()?;
        Ok(rabbitmq)
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(install::RABBITMQ_SERVER);
        self.environment(&mut command);
        // Makes the script become the server instead of its parent: one process, one pid.
        command.env("RUNNING_UNDER_SYSTEMD", "true").env_remove("NOTIFY_SOCKET");
        self.process.spawn(&command)?;
        let port = self.port;
        self.process.wait_ready(START_LIMIT, |process| {
            // The log line is what `rabbitmqctl await_startup` waits for, without its own second.
            process.recent_log().contains("Server startup complete") && answers(port)
        })
    }

    /// All places and ports are the node's own; nothing in /etc or /var is read or written.
    fn environment(&self, command: &mut Command) {
        without_variables(without_variables(command, "RABBITMQ_"), "ERL_");
        let folder = self.process.folder();
        let places = [
            ("HOME", ""),
            ("RABBITMQ_MNESIA_BASE", "data"),
            ("RABBITMQ_LOG_BASE", "logs"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_CONF_ENV_FILE", "env"),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced.config"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
            ("RABBITMQ_SCHEMA_DIR", "schema"),
            ("RABBITMQ_PID_FILE", "pid"),
        ];
        for (key, name) in places {
            command.env(key, folder.join(name));
        }
        command.env("RABBITMQ_NODENAME", self.node());
        command.env("RABBITMQ_NODE_PORT", self.port.to_string());
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_DIST_PORT", self.dist_port.to_string());
        command.env("RABBITMQ_LOGS", "-");
        let mut arguments = "-kernel inet_dist_use_interface {127,0,0,1}".to_owned();
        // After a crash, messages on their way from a queue to its dead-letter exchange wait so many
        // milliseconds for a confirmation that was lost; by default three minutes.
        arguments += " -rabbit dead_letter_worker_publisher_confirm_timeout 2000";
        let modules = folder.join(MODULES);
        if modules.is_dir() {
            command.env("RABBITMQ_PLUGINS_DIR", folder.join(APPLICATIONS));
            arguments += &format!(" -pa {}", modules.display());
        }
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        command.env("ERL_EPMD_PORT", self.epmd_port.to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        // Else epmd refuses to end as long as it believes the killed node alive.
        command.env("ERL_EPMD_RELAXED_COMMAND_CHECK", "1");
        // A crash dump of a killed node is large and of no use.
        command.env("ERL_CRASH_DUMP_SECONDS", "0");
    }

    fn node(&self) -> String {
        format!("walrelay{}@localhost", self.port)
    }

    pub fn amqp_url(&self) -> String {
        url(self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Which one it is: `RabbitMQ 3.10.8 of this machine`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Adds a user who may do everything in the virtual host `/`.
    pub fn add_user(&self, user: &str, password: &str) -> Result<()> {
        let (auth, all) = ("rabbit_auth_backend_internal", "<<\".*\">>, <<\".*\">>, <<\".*\">>");
        let calls = format!(
            "ok = {auth}:add_user(<<\"{user}\">>, <<\"{password}\">>, <<\"test\">>), \
             ok = {auth}:set_permissions(<<\"{user}\">>, <<\"/\">>, {all}, <<\"test\">>)"
        );
        self.eval(&calls).map(drop)
    }

    /// The value of Erlang expressions, evaluated in the node. `rabbitmqctl eval` does the same, and
    /// first starts a virtual machine of its own, which takes a second.
    pub fn eval(&self, expressions: &str) -> Result<String> {
        let mut command = self.process.command("/usr/bin/erl_call");
        self.environment(&mut command);
        // The node refuses a second client of the same name, and `-r` draws the same name for all
        // calls within one second.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let client = format!("walrelay-eval-{}-{number}", std::process::id());
        command.args(["-sname", &self.node(), "-h", &client, "-e", "-fetch_stdout"]);
        let failed = || HarnessError::io("writing to erl_call");
        let (input, mut script) = std::io::pipe().map_err(failed())?;
        writeln!(script, "io:format(\"~tp\", [begin {expressions} end]).").map_err(failed())?;
        drop(script);
        let said = process::run(command.stdin(input))?;
        // The value, and then whether it could be printed.
        let value = said.trim_end().strip_suffix("{ok, ok}").map(str::to_owned);
        value.ok_or(HarnessError::Tool { tool: "erl_call".into(), output: said })
    }

    /// Messages of all quorum queues, also those that are with a consumer.
    pub fn quorum_messages(&self) -> Result<u64> {
        // What the management shows is seconds old; this asks the queues.
        let count = "lists:sum([begin {ok, {_, Count}, _} = ra:local_query(amqqueue:get_pid(Queue), \
             fun rabbit_fifo:query_messages_total/1), Count end || Queue <- rabbit_amqqueue:list(), \
             amqqueue:get_type(Queue) =:= rabbit_quorum_queue])";
        let counted = self.eval(count)?;
        let not_understood = |_| HarnessError::Other(format!("RabbitMQ counts {counted}"));
        counted.trim().parse().map_err(not_understood)
    }

    /// Suspends the only member of a quorum queue: the queue confirms nothing, as one without a
    /// majority. It goes on when what is returned is dropped.
    pub fn suspend_queue(&self, name: &str) -> Result<SuspendedQueue<'_>> {
        let member = format!("'%2F_{name}'");
        self.eval(&format!("ok = sys:suspend({member})"))?;
        Ok(SuspendedQueue { node: self, member })
    }

    /// Writes to disk what was declared and bound. Quorum queues and streams are in tables that a
    /// node writes only now and then.
    pub fn sync_declarations(&self) -> Result<()> {
        // Khepri, which replaces Mnesia, writes before it answers.
        let tables = "case whereis(mnesia_sup) of undefined -> ok; _ -> ok = mnesia:sync_log(),
             [ok = dets:sync(Table) || Table <- dets:all()] end";
        self.eval(tables).map(drop)
    }

    /// Raises the memory alarm: connections that publish are blocked when this returns.
    pub fn raise_memory_alarm(&self) -> Result<()> {
        self.eval("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000000})")?;
        self.wait_alarms("[memory]")
    }

    /// Raises the disk alarm, which blocks them as well.
    pub fn raise_disk_alarm(&self) -> Result<()> {
        self.eval("rabbit_disk_monitor:set_disk_free_limit(1000000000000000)")?;
        self.wait_alarms("[disk]")
    }

    /// Ends both alarms. A restart ends them too.
    pub fn clear_alarms(&self) -> Result<()> {
        let limits = format!(
            "vm_memory_monitor:set_vm_memory_high_watermark({MEMORY_LIMIT_FRACTION}),
             rabbit_disk_monitor:set_disk_free_limit({DISK_FREE_LIMIT_BYTES})"
        );
        self.eval(&limits)?;
        self.wait_alarms("[]")
    }

    /// Waits until these alarms, and no others, were announced to all connections.
    fn wait_alarms(&self, expected: &str) -> Result<()> {
        let alarms =
            "[Resource || {{resource_limit, Resource, _}, _} <- rabbit_alarm:get_alarms()]";
        let what = format!("the alarms {expected}");
        wait_for(what, ALARM_LIMIT, Duration::from_millis(10), || {
            Ok((self.eval(alarms)? == expected).then_some(()))
        })
    }

    pub fn start_again(&mut self) -> Result<()> {
        self.launch()
    }

    pub fn answers(&self) -> bool {
        answers(self.port)
    }
}

/// A quorum queue that confirms nothing.
pub struct SuspendedQueue<'a> {
    node: &'a RabbitMq,
    member: String,
}

impl Drop for SuspendedQueue<'_> {
    fn drop(&mut self) {
        // A node that has gone needs none of it.
        drop(self.node.eval(&format!("ok = sys:resume({})", self.member)));
    }
}

impl Deref for RabbitMq {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for RabbitMq {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn link_modules(folder: &Path, install: &RabbitInstall) -> Result<()> {
    let failed = || HarnessError::io(format!("making links in {}", folder.display()));
    let (applications, modules) = (folder.join(APPLICATIONS), folder.join(MODULES));
    std::fs::create_dir(&applications).map_err(failed())?;
    std::fs::create_dir(&modules).map_err(failed())?;
    for application in install.applications()? {
        let name = application.file_name().unwrap_or_default();
        if name.to_string_lossy().starts_with("rabbit-") {
            symlink(install.inside(&application), applications.join(name)).map_err(failed())?;
        }
        for file in std::fs::read_dir(application.join("ebin")).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "beam") {
                let module = modules.join(file.file_name());
                symlink(install.inside(&file.path()), module).map_err(failed())?;
            }
        }
    }
    Ok(())
}

fn configuration(port: u16, extra: &str) -> String {
    format!(
        "listeners.tcp.1 = 127.0.0.1:{port}
log.file = false
log.console = true
log.console.level = info
{extra}
"
    )
}

/// Logs in and opens the virtual host, as a client does: an open port alone may belong to a node
/// that is still starting.
fn answers(port: u16) -> bool {
    Client::open_within(&url(port), ANSWER_LIMIT).map(Client::close).is_ok()
}

fn url(port: u16) -> String {
    format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
}
