//! PostgreSQL: how a private server is set up, and what creates and drops a database.

use std::fs;
use std::path::PathBuf;

use crate::database::Kind;
use crate::process::{Plan, find_program};
use crate::server::{Engine, Keeps};

pub(crate) static ENGINE: Engine = Engine {
    kind: Kind::Postgres,
    variable: "IDEMPOTENT_TEST_POSTGRES",
    log_variable: "IDEMPOTENT_TEST_POSTGRES_LOG",
    install: "apt-get install -y postgresql",
    plan,
    address: "postgres://postgres@127.0.0.1/postgres?sslmode=disable",
    version: "SELECT 'PostgreSQL ' || current_setting('server_version')",
    create,
    close: None,
    drop: |name| format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
    log_of,
};

/// A password over loopback costs nothing; SCRAM costs an unoptimised client tens of milliseconds a connection. Tests
/// that set `lc_messages` need German, which a small system lacks: then it is compiled for this server alone.
const PREPARE: &str = r#"
printf '%s\n' "$password" >password
"$bin/initdb" --pgdata=data --username=postgres --auth=password --pwfile=password --encoding=UTF8 --locale=C --no-sync ||
    return
locale -a | grep -qi '^de_DE\.utf-\{0,1\}8$' ||
    { mkdir locale && localedef -i de_DE -f UTF-8 "$folder/locale/de_DE.UTF-8"; } ||
    rm -rf locale
"#;

/// Nothing survives a crash, so nothing is synced. Vacuum is off, so that a test can count dead rows; deadlocks are
/// looked for early. Messages are in English and name their database, so that a test finds those of its own.
const SERVE: &str = r#"
if [ -d locale ]; then export LOCPATH="$folder/locale"; fi
exec "$bin/postgres" -D data -p "$port" -k "$folder" -c listen_addresses=127.0.0.1 -c max_connections=300 \
    -c shared_buffers=32MB -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c autovacuum=off \
    -c deadlock_timeout=100ms -c log_min_messages=warning -c log_line_prefix='%m [%p] %d ' -c lc_messages=C $keeps
"#;

/// For a server that is killed and started again: what it has acknowledged is in the operating system's hands, and pages
/// are never half old.
const DURABLE: &str = "-c synchronous_commit=on -c full_page_writes=on";

/// What a server of a few gigabytes has, beside the defaults.
const PRODUCTION: &str = "-c fsync=on -c synchronous_commit=on -c full_page_writes=on -c autovacuum=on \
    -c shared_buffers=1GB -c max_wal_size=8GB";

fn plan(port: u16, password: &str, keeps: Keeps) -> Option<Plan> {
    // Its other programs are beside it, where a link in PATH leads to.
    let server = find_program(&["postgres"], &debian_folders())?.canonicalize().ok()?;
    let bin = server.parent()?.to_owned();
    Some(Plan {
        name: "postgres",
        account: "postgres",
        environment: vec![
            ("bin", bin.into()),
            ("port", port.to_string().into()),
            ("password", password.to_owned().into()),
            ("keeps", keeps.choose(DURABLE, PRODUCTION).into()),
        ],
        prepare: PREPARE,
        serve: SERVE,
        // Immediate shutdown: a harder signal would leave shared memory behind.
        stop_signal: "QUIT",
        restarts: keeps == Keeps::WhenKilled,
    })
}

/// Debian keeps each version's programs in a folder of its own, outside PATH. The newest comes first.
fn debian_folders() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| format!("/usr/lib/postgresql/{version}/bin").into()).collect()
}

/// From `template0`, which nobody is ever connected to: several at once do not get into each other's way.
fn create(name: &str, collation: Option<&str>) -> String {
    let collation = collation.map_or_else(String::new, |collation| format!(" LOCALE '{collation}'"));
    format!("CREATE DATABASE {name} TEMPLATE template0{collation}")
}

/// The entries whose prefix names the database, with the lines that continue them.
fn log_of(log: &str, database: &str) -> String {
    let mut ours = false;
    let lines = log.split_inclusive('\n').filter(|line| {
        if !line.starts_with('\t') {
            ours = line.contains(database);
        }
        ours
    });
    lines.collect()
}
