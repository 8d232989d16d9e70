//! Rivals: one key twice at the same moment, one row that everybody wants, and a storm of one duplicate.
//!
//! `cargo run -p examples --example contention`
//! `cargo run -p examples --example contention -- postgres://user:password@localhost/database`
//! `cargo run -p examples --example contention -- mysql://user:password@localhost/database`
//!
//! Observe
//!
//! - `wait`: the second worker gives up after half a second (on MariaDB a whole one, which is its unit), while the first is
//!   still at work. On PostgreSQL and MariaDB that is `InProgress`; SQLite has one writer, whatever its key, and says busy.
//!   Either way the message is to be delivered again, and is a duplicate then;
//! - `retry` and `isolation`: under `serializable`, workers that read and write one row are in conflict on PostgreSQL and
//!   MariaDB. Their bodies run again in a new transaction, and no caller hears of it. On SQLite they wait at BEGIN;
//! - the seen cache: ten thousand deliveries of a processed message, while there is no connection left to ask with.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use idempotent_runtime::{ClaimStore, Disposition, Error, idempotent};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{MySqlTransaction, PgTransaction, SqliteTransaction};
use tokio::task::JoinSet;

const WORKERS: u32 = 8;
const MESSAGES: u32 = 25;
const STORM: u32 = 10_000;
/// All tables of this example, none of which an application has.
const CLAIMS: &str = "idempotent_example_claims";
const DROP: [&str; 5] = ["row", "claims", "claims_migrations", "claims_positions", "claims_janitor"];

/// The same handlers and the same rivals on each database; the transaction's type is the only difference.
macro_rules! on {
    ($run:ident, $transaction:ident, $pool:ident, $slow:ident = $slow_name:literal, $add:ident = $add_name:literal) => {
        /// Waits half a second for another delivery of the same message.
        #[idempotent(key = "{id}", wait = "500ms", consumer = $slow_name)]
        async fn $slow(tx: &mut $transaction<'_>, id: &str, takes: Duration) -> Result<(), Error> {
            let _ = tx;
            tokio::time::sleep(takes).await;
            Ok(())
        }

        /// Runs up to a hundred times more if others were faster.
        #[idempotent(key = "{id}", isolation = "serializable", retry = 100, consumer = $add_name)]
        async fn $add(tx: &mut $transaction<'_>, id: u32, runs: &AtomicUsize) -> Result<i64, Error> {
            runs.fetch_add(1, Ordering::Relaxed);
            let read = "SELECT count FROM idempotent_example_row";
            let count: i64 = sqlx::query_scalar(read).fetch_one(&mut **tx).await?;
            sqlx::query("UPDATE idempotent_example_row SET count = count + 1").execute(&mut **tx).await?;
            Ok(count + 1)
        }

        async fn $run(pool: sqlx::$pool) -> Result<()> {
            for table in DROP {
                let drop = format!("DROP TABLE IF EXISTS idempotent_example_{table}");
                sqlx::query(sqlx::AssertSqlSafe(drop)).execute(&pool).await?;
            }
            sqlx::query("CREATE TABLE idempotent_example_row (count BIGINT NOT NULL)").execute(&pool).await?;
            sqlx::query("INSERT INTO idempotent_example_row VALUES (0)").execute(&pool).await?;
            let store = ClaimStore::builder(pool.clone()).table(CLAIMS).seen_cache(1_000).build()?;
            store.migrate().await?;

            println!("wait: two deliveries of one message, of which the first takes two seconds");
            let first = tokio::spawn({
                let store = store.clone();
                async move { $slow(&store, "evt_1", Duration::from_secs(2)).await }
            });
            tokio::time::sleep(Duration::from_millis(200)).await; // so that it is the first
            let started = Instant::now();
            let second = $slow(&store, "evt_1", Duration::ZERO).await;
            let error = second.err().context("the second delivery did not notice the first")?;
            let waited = started.elapsed();
            println!("  after {:.1} s: {error}", waited.as_secs_f32());
            ensure!(error.disposition() == Disposition::Retry, "it is not to be delivered again");
            ensure!(waited < Duration::from_millis(1500), "it has waited for too long");
            println!("  the first is {}", first.await??.as_str());
            println!("  the second, delivered again, is a {}", $slow(&store, "evt_1", Duration::ZERO).await?.as_str());

            println!("\nretry: {WORKERS} workers with {MESSAGES} messages each, under serializable, on one row");
            let runs = Arc::new(AtomicUsize::new(0));
            let mut workers = JoinSet::new();
            for worker in 0..WORKERS {
                let (store, runs) = (store.clone(), Arc::clone(&runs));
                workers.spawn(async move {
                    for message in 0..MESSAGES {
                        $add(&store, worker * MESSAGES + message, &runs).await?;
                    }
                    Ok::<(), Error>(())
                });
            }
            while let Some(worker) = workers.join_next().await {
                worker??;
            }
            let read = "SELECT count FROM idempotent_example_row";
            let count: i64 = sqlx::query_scalar(read).fetch_one(&pool).await?;
            let (messages, runs) = (WORKERS * MESSAGES, runs.load(Ordering::Relaxed));
            println!("  {messages} messages, {runs} runs of the body, the row counts {count}, no error came back");
            ensure!(count == i64::from(messages), "a message is lost or was applied twice");

            println!("\nseen cache: a processed message {STORM} times, while every connection is taken");
            let mut taken = Vec::new();
            for _ in 0..WORKERS {
                taken.push(pool.acquire().await?);
            }
            let started = Instant::now();
            for _ in 0..STORM {
                ensure!($slow(&store, "evt_1", Duration::ZERO).await?.is_duplicate(), "no duplicate");
            }
            println!("  {STORM} duplicates in {} ms, with no request to the database", started.elapsed().as_millis());
            Ok(())
        }
    };
}

on!(on_sqlite, SqliteTransaction, SqlitePool, slow_sqlite = "sqlite.slow", add_sqlite = "sqlite.add");
on!(on_postgres, PgTransaction, PgPool, slow_postgres = "postgres.slow", add_postgres = "postgres.add");
on!(on_mysql, MySqlTransaction, MySqlPool, slow_mysql = "mysql.slow", add_mysql = "mysql.add");

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let Some(url) = env::args().nth(1) else {
        let folder = tempfile::tempdir()?;
        let file = SqliteConnectOptions::new().filename(folder.path().join("contention.db")).create_if_missing(true);
        let file = file.journal_mode(SqliteJournalMode::Wal);
        return on_sqlite(SqlitePoolOptions::new().max_connections(WORKERS).connect_with(file).await?).await;
    };
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => {
            on_postgres(PgPoolOptions::new().max_connections(WORKERS).connect(&url).await?).await
        }
        Some("mysql" | "mariadb") => {
            on_mysql(MySqlPoolOptions::new().max_connections(WORKERS).connect(&url).await?).await
        }
        _ => bail!("`{url}` is no address of PostgreSQL or MariaDB: write `postgres://…`, `mysql://…`, or nothing"),
    }
}
