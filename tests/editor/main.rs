//! Editors: in a handler whose body is half typed, rust-analyzer still completes the fields of the message and the methods
//! of the transaction. Nothing of this runs where rust-analyzer is not installed; `RUST_ANALYZER` names one that is not in
//! the path.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use serde_json::json;

mod client;

use client::Client;

/// Reading the dependencies takes the time that the machine needs for it.
const PATIENCE: Duration = Duration::from_mins(5);

/// Stands in the place of a file of this package, in the editor's memory alone. The expressions to be completed end where
/// a line does.
const HANDLER: &str = r#"
use deliveries::idempotent;
use sqlx::SqliteTransaction;

pub struct Event {
    pub number_of_the_order: String,
}

#[idempotent(key = "{event.number_of_the_order}")]
pub async fn handle(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    if event.
}

#[idempotent(key = "{event.number_of_the_order}")]
pub async fn settle(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<u64> {
    let number = 1;
    tx.
    Ok(number)
}
"#;

#[test]
fn a_half_typed_body_is_completed() {
    let program = env::var_os("RUST_ANALYZER").unwrap_or_else(|| "rust-analyzer".into());
    // What rustup puts into the path is there also where the component is not.
    let version = Command::new(&program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    if !version.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(io::stderr(), "SKIPPED: completion in editors, since rust-analyzer is not installed");
        return;
    }
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc").stdout;
    let sysroot = String::from_utf8(sysroot).expect("a path");
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/renamed");
    let mut client = Client::start(
        &program,
        package,
        &json!({
            "linkedProjects": [format!("{package}/Cargo.toml")],
            "cachePriming": { "enable": false },
            "checkOnSave": false,
            "cargo": {
                // Left to find it, rust-analyzer has rustup install the sources of the standard library.
                "sysroot": sysroot.trim(),
                "buildScripts": {
                    "overrideCommand": ["cargo", "check", "--quiet", "-p", "tests-renamed", "--message-format=json"],
                },
            },
        }),
    );
    let file = format!("file://{package}/lib.rs");
    client.open(&file, HANDLER);
    for (expression, offered) in [("event.", "number_of_the_order"), ("tx.", "rollback")] {
        let (line, text) =
            HANDLER.lines().enumerate().find(|(_, line)| line.ends_with(expression)).expect("it is there");
        let start = Instant::now();
        loop {
            let labels = client.complete(&file, line, text.len());
            if labels.iter().any(|label| label.starts_with(offered)) {
                break;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "`{expression}` is not completed with `{offered}`, but with {labels:?}"
            );
            thread::sleep(Duration::from_secs(1));
        }
    }
    // Not because the attribute was unknown, and the function left as it is.
    let line = HANDLER.lines().position(|line| line.starts_with("#[idempotent")).expect("it is there");
    let expansion = client.expand(&file, line, "#[idem".len());
    assert!(expansion.contains("deliveries::__private"), "no expansion: {expansion}");
}
