//! A queue, a consumer that crashes twice, and a handler whose effect still happens once per message.
//!
//! `cargo run -p examples --example quickstart [-- deliveries.jsonl]`
//!
//! The program is the queue: it delivers until it has an acknowledgement. The consumer is a child process of the same
//! program, on an SQLite file that both can open, and its two crashes are real: it calls `abort`.

use std::collections::{HashSet, VecDeque};
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use examples::{Delivery, Tally};
use idempotent_runtime::{idempotent, migrate};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{SqlitePool, SqliteTransaction};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Counts events by kind: an effect that a second run would spoil.
#[idempotent(key = "{delivery.id}", consumer = "quickstart.count-events")]
async fn count_event(tx: &mut SqliteTransaction<'_>, delivery: &Delivery, crash: Option<Crash>) -> sqlx::Result<()> {
    let count =
        "INSERT INTO event_count (event, count) VALUES (?, 1) ON CONFLICT (event) DO UPDATE SET count = count + 1";
    sqlx::query(count).bind(&delivery.event).execute(&mut **tx).await?;
    if crash == Some(Crash::InsideTheHandler) {
        std::process::abort();
    }
    Ok(())
}

/// Where the consumer is told to crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
enum Crash {
    /// The effect is written, and not yet committed.
    InsideTheHandler,
    /// The effect is committed, and the queue does not know.
    BeforeAcknowledging,
}

/// What the queue sends to the consumer, one JSON object a line. The answer is a line with the outcome.
#[derive(Debug, Deserialize, Serialize)]
struct Message<D> {
    delivery: D,
    crash: Option<Crash>,
}

/// The argument that makes the program a consumer.
const CONSUMER: &str = "--consumer";
const EFFECTS: &str = "SELECT CAST(total(count) AS INTEGER) FROM event_count";

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [] => queue(&Delivery::read(None)?).await,
        [role, database] if role == CONSUMER => consume(Path::new(database)).await,
        [file] if !file.as_encoded_bytes().starts_with(b"-") => queue(&Delivery::read(Some(Path::new(file)))?).await,
        _ => bail!("usage: cargo run -p examples --example quickstart [-- deliveries.jsonl]"),
    }
}

/// Handles messages until there are no more, or until it crashes.
async fn consume(database: &Path) -> Result<()> {
    let pool = connect(database).await?;
    let mut messages = BufReader::new(tokio::io::stdin()).lines();
    while let Some(message) = messages.next_line().await? {
        let Message::<Delivery> { delivery, crash } = serde_json::from_str(&message)?;
        let outcome = count_event(&pool, &delivery, crash).await?;
        if crash == Some(Crash::BeforeAcknowledging) {
            std::process::abort();
        }
        println!("{}", outcome.as_str());
    }
    Ok(())
}

/// Delivers each message until it is acknowledged, and checks the effects.
async fn queue(deliveries: &[Delivery]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("quickstart.db");
    let pool = connect(&database).await?;
    migrate(&pool).await?;
    sqlx::query("CREATE TABLE event_count (event TEXT PRIMARY KEY, count INTEGER NOT NULL)").execute(&pool).await?;

    let width = deliveries.iter().map(|delivery| delivery.event.chars().count()).max().unwrap_or_default();
    println!("{:>4}  {:<9}  {:<width$}  delivery", "#", "outcome", "event");
    let mut crashes = plan_crashes(deliveries);
    let mut tally = Tally::default();
    let mut consumer = Consumer::start(&database)?;
    for (index, delivery) in deliveries.iter().enumerate() {
        let mut failures = Vec::new();
        let reply = loop {
            let crash = crashes.pop_front_if(|(at, _)| *at == index).map(|(_, crash)| crash);
            match consumer.deliver(delivery, crash).await? {
                Answer::Acknowledged(reply) => break reply,
                Answer::Crashed(crash) => failures.push(crash),
            }
            consumer = Consumer::start(&database)?;
        };
        // A duplicate of nobody but the attempt whose acknowledgement was lost.
        let settled_before = reply == Reply::Duplicate && failures.contains(&Crash::BeforeAcknowledging);
        let outcome = if settled_before { Reply::Processed } else { reply };
        match outcome {
            Reply::Processed => tally.processed += 1,
            Reply::Duplicate => tally.duplicates += 1,
        }
        let outcome = outcome.as_str();
        let story = story(&failures, reply);
        println!("{:>4}  {outcome:<9}  {:<width$}  {}{story}", index + 1, delivery.event, delivery.id);
    }
    consumer.stop().await?;

    let effects: i64 = sqlx::query_scalar(EFFECTS).fetch_one(&pool).await?;
    tally.conclude(deliveries, usize::try_from(effects)?, EFFECTS)
}

/// The first deliveries of the second and of the fourth message, or of the last one.
fn plan_crashes(deliveries: &[Delivery]) -> VecDeque<(usize, Crash)> {
    let mut seen = HashSet::new();
    let firsts: Vec<usize> = deliveries
        .iter()
        .enumerate()
        .filter(|(_, delivery)| seen.insert(&delivery.id))
        .map(|(index, _)| index)
        .collect();
    let last = firsts.len().saturating_sub(1);
    [(1, Crash::InsideTheHandler), (3, Crash::BeforeAcknowledging)]
        .into_iter()
        .filter_map(|(message, crash)| firsts.get(last.min(message)).map(|&index| (index, crash)))
        .collect()
}

fn story(failures: &[Crash], reply: Reply) -> String {
    let mut story = String::new();
    for crash in failures {
        story.push_str(match crash {
            Crash::InsideTheHandler => "  crashed inside the handler, delivered again:",
            Crash::BeforeAcknowledging => "  crashed after the commit and before acknowledging, delivered again:",
        });
    }
    if !failures.is_empty() {
        story.push(' ');
        story.push_str(reply.as_str());
    }
    story
}

/// The consumer's answer to one message.
enum Answer {
    Acknowledged(Reply),
    /// It crashed where it was told to.
    Crashed(Crash),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Processed,
    Duplicate,
}

impl Reply {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
        }
    }
}

/// The consumer, as the queue sees it.
struct Consumer {
    process: Child,
    messages: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    fn start(database: &Path) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg(CONSUMER)
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the consumer")?;
        let messages = process.stdin.take().context("the consumer has no input")?;
        let answers = process.stdout.take().context("the consumer has no output")?;
        Ok(Self { process, messages, answers: BufReader::new(answers).lines() })
    }

    async fn deliver(&mut self, delivery: &Delivery, crash: Option<Crash>) -> Result<Answer> {
        let mut message = serde_json::to_vec(&Message { delivery, crash })?;
        message.push(b'\n');
        self.messages.write_all(&message).await?;
        match (self.answers.next_line().await?.as_deref(), crash) {
            (Some("processed"), _) => Ok(Answer::Acknowledged(Reply::Processed)),
            (Some("duplicate"), _) => Ok(Answer::Acknowledged(Reply::Duplicate)),
            (Some(other), _) => bail!("the consumer answered `{other}`"),
            (None, Some(crash)) => {
                self.process.wait().await?;
                Ok(Answer::Crashed(crash))
            }
            (None, None) => bail!("the consumer failed at delivery `{}`: {}", delivery.id, self.process.wait().await?),
        }
    }

    async fn stop(self) -> Result<()> {
        let Self { mut process, messages, answers } = self;
        drop((messages, answers));
        let status = process.wait().await?;
        if !status.success() {
            bail!("the consumer failed: {status}");
        }
        Ok(())
    }
}

async fn connect(database: &Path) -> sqlx::Result<SqlitePool> {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(database).create_if_missing(true)).await
}
