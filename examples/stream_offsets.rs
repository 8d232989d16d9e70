//! A stream whose offsets are committed with the data, and a consumer that is killed twenty times.
//!
//! `cargo run -p examples --example stream_offsets`
//!
//! Observe: each life of the consumer starts behind the offset that the database holds, wherever it was killed. What it
//! had reported by then does not matter: `applied` may be one ahead, committed and not yet told to anybody. In the end
//! the totals are those of the stream, and the whole stream once more changes nothing.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use idempotent_runtime::{ClaimStore, Outcome, idempotent};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Sqlite, SqlitePool, SqliteTransaction};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// A record of the stream.
struct Record {
    topic: &'static str,
    partition: i32,
    offset: i64,
    cents: i64,
}

/// Adds the record to the totals: an effect that a lost record would spoil as much as one that is applied twice.
#[idempotent(
    sequence(entity = "{record.topic}/{record.partition}", number = "record.offset"),
    consumer = "examples.totals"
)]
async fn apply(tx: &mut SqliteTransaction<'_>, record: &Record) -> sqlx::Result<()> {
    let add = "UPDATE total SET records = records + 1, cents = cents + ?";
    sqlx::query(add).bind(record.cents).execute(&mut **tx).await?;
    Ok(())
}

/// Where to go on: behind what was applied last. Another store of offsets is not needed.
async fn next_offset(store: &ClaimStore<Sqlite>) -> Result<i64> {
    let applied = store.position("examples.totals", "", "payments/0").await?;
    Ok(applied.map_or(0, |offset| offset + 1))
}

/// The broker: any offset may be read again.
fn read(offset: i64) -> Option<Record> {
    (offset < RECORDS).then_some(Record { topic: "payments", partition: 0, offset, cents: offset * 7 % 100 })
}

const RECORDS: i64 = 600;
const KILLS: usize = 20;
/// The argument that makes the program a consumer.
const CONSUMER: &str = "--consumer";

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    match env::args_os().skip(1).collect::<Vec<OsString>>().as_slice() {
        [] => operate().await,
        [role, database] if role == CONSUMER => consume(Path::new(database)).await,
        _ => bail!("usage: cargo run -p examples --example stream_offsets"),
    }
}

/// Applies the stream from where it has come to, and reports each offset.
async fn consume(database: &Path) -> Result<()> {
    let store = open(database).await?;
    let mut offset = next_offset(&store).await?;
    while let Some(record) = read(offset) {
        apply(&store, &record).await?;
        println!("{offset}");
        offset += 1;
    }
    Ok(())
}

/// Starts the consumer, kills it after a few reports, and starts it again.
async fn operate() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("stream.db");
    let store = open(&database).await?;
    store.migrate().await?;
    sqlx::raw_sql("CREATE TABLE total AS SELECT 0 AS records, 0 AS cents").execute(store.pool()).await?;

    println!("life  from  reported  applied");
    for life in 1..=KILLS + 1 {
        let from = next_offset(&store).await?;
        let reports = (life <= KILLS).then(|| fastrand::usize(1..=20));
        let reported = live(&database, reports).await?.unwrap_or_else(|| "none".into());
        let applied = next_offset(&store).await? - 1;
        let end = if reports.is_some() { "killed" } else { "end of the stream" };
        println!("{life:>4}  {from:>4}  {reported:>8}  {applied:>7}  {end}");
    }

    let mut stale = 0;
    for record in (0..).map_while(read) {
        stale += usize::from(matches!(apply(&store, &record).await?, Outcome::Stale(_)));
    }
    println!("\n{stale} of {RECORDS} records were stale when the whole stream came once more");
    let totals: (i64, i64) = sqlx::query_as("SELECT records, cents FROM total").fetch_one(store.pool()).await?;
    let expected = (RECORDS, (0..).map_while(read).map(|record| record.cents).sum());
    println!("{} records and {} cents in the database", totals.0, totals.1);
    ensure!(totals == expected, "expected {expected:?}");
    Ok(())
}

/// One life of the consumer: until it has reported so often, or to its end. What it reported last.
async fn live(database: &Path, reports: Option<usize>) -> Result<Option<String>> {
    let mut consumer = Command::new(env::current_exe()?)
        .arg(CONSUMER)
        .arg(database)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(consumer.stdout.take().context("the consumer has no output")?).lines();
    let mut last = None;
    let mut count = 0;
    while let Some(line) = lines.next_line().await? {
        last = Some(line);
        count += 1;
        if reports == Some(count) {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..10_000))).await;
            consumer.start_kill()?; // kill -9; what it had written by then is still read
        }
    }
    let status = consumer.wait().await?;
    ensure!(status.success() || reports.is_some(), "the consumer failed: {status}");
    Ok(last)
}

async fn open(database: &Path) -> Result<ClaimStore<Sqlite>> {
    let options = SqliteConnectOptions::new().filename(database).create_if_missing(true);
    Ok(ClaimStore::new(SqlitePool::connect_with(options).await?))
}
