//! A message that is redelivered after its claim was purged, and the timestamp that keeps it from being taken for new.
//!
//! `cargo run -p examples --example late_redelivery`
//!
//! Observe: the same message comes three times to three handlers, at last when its claims are gone. The handler without
//! `occurred_at` credits it again. With it the message is too old to tell: `Error::Expired`, whose disposition is
//! to park it, or `Outcome::Expired` with `expired = "skip"`. A retention of two seconds stands for one of days.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use idempotent_runtime::{ClaimStore, Error, Outcome, PurgeOptions, UnixMillis, idempotent, migrate};
use sqlx::{SqlitePool, SqliteTransaction};

/// As Kafka's records have it, with its own time in milliseconds.
struct Credit {
    id: String,
    created: UnixMillis,
}

/// Forgets what it has done when the claim is gone.
#[idempotent(key = "{credit.id}", consumer = "examples.undated", retention = "2s")]
async fn undated(tx: &mut SqliteTransaction<'_>, credit: &Credit) -> Result<(), Error> {
    add_to(tx, "undated").await
}

/// Refuses what is older than its memory.
#[idempotent(key = "{credit.id}", consumer = "examples.dated", retention = "2s", occurred_at = "credit.created")]
async fn dated(tx: &mut SqliteTransaction<'_>, credit: &Credit) -> Result<(), Error> {
    add_to(tx, "dated").await
}

/// Acknowledges it instead: for messages of no worth when they are late.
#[idempotent(
    key = "{credit.id}",
    consumer = "examples.skipping",
    retention = "2s",
    occurred_at = "credit.created",
    expired = "skip"
)]
async fn skipping(tx: &mut SqliteTransaction<'_>, credit: &Credit) -> Result<(), Error> {
    add_to(tx, "skipping").await
}

async fn add_to(tx: &mut SqliteTransaction<'_>, account: &str) -> Result<(), Error> {
    let add = "UPDATE account SET credits = credits + 1 WHERE name = ?";
    sqlx::query(add).bind(account).execute(&mut **tx).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let pool = SqlitePool::connect("sqlite::memory:").await?;
    migrate(&pool).await?;
    let accounts = "CREATE TABLE account (name TEXT, credits INTEGER);
        INSERT INTO account VALUES ('undated', 0), ('dated', 0), ('skipping', 0)";
    sqlx::raw_sql(accounts).execute(&pool).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let credit = Credit { id: "evt_1".into(), created: UnixMillis(now.as_millis().try_into()?) };

    println!("{:<22}  {:<10}  {:<23}  skipping", "delivery", "undated", "dated");
    deliver(&pool, &credit, "the first").await;
    deliver(&pool, &credit, "again").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    // A margin of an hour, the default, would keep them.
    let purged = ClaimStore::new(pool.clone()).purge(PurgeOptions::new().margin(Duration::ZERO)).await?;
    deliver(&pool, &credit, &format!("with {} claims purged", purged.deleted)).await;

    println!();
    let credits: Vec<(String, i64)> = sqlx::query_as("SELECT name, credits FROM account").fetch_all(&pool).await?;
    for (name, credits) in &credits {
        println!("{credits} credits by `{name}`");
    }
    let credits: Vec<i64> = credits.into_iter().map(|(_, credits)| credits).collect();
    ensure!(credits == [2, 1, 1], "expected two credits without `occurred_at`, and one with it");
    Ok(())
}

async fn deliver(pool: &SqlitePool, credit: &Credit, which: &str) {
    let outcomes = [undated(pool, credit).await, dated(pool, credit).await, skipping(pool, credit).await];
    let [undated, dated, skipping] = outcomes.map(told);
    println!("{which:<22}  {undated:<10}  {dated:<23}  {skipping}");
}

fn told(outcome: Result<Outcome<()>, Error>) -> String {
    match outcome {
        Ok(outcome) => outcome.as_str().to_owned(),
        Err(error @ Error::Expired(_)) => format!("too old: {:?}", error.disposition()),
        Err(error) => error.to_string(),
    }
}
