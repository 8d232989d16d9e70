//! A service that shows Prometheus its metrics, and the alerts that watch them.
//!
//! `cargo run -p examples --example metrics_service`
//!
//! It takes deliveries over HTTP, on an SQLite file in a temporary folder, and prints what to try with curl. Observe
//!
//! - `/metrics`: messages by consumer, sender and outcome, how long claims and bodies take, what the janitor has purged,
//!   each with a line of help;
//! - what a second delivery of one id adds to `outcome="duplicate"`;
//! - in `alerts.yml`, rules: more duplicates of a sender, or more failures of a consumer, than it used to have, no purge for a
//!   day, claims that stay past their expiry. `promtool check rules examples/alerts.yml` reads them, and `tests/alerts.rs` evaluates them on what this
//!   program shows;
//! - in `main`, that the recorder is installed before anything is counted.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use idempotent_runtime::{ClaimStore, Error, Janitor, describe_metrics, idempotent};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Executor as _, Sqlite, SqlitePool, SqliteTransaction};
use tokio::net::TcpListener;

/// An hour stands for the days of a real sender.
#[idempotent(key = "{id}", sender = "{sender}", consumer = "metrics.count", retention = "1h")]
async fn count(tx: &mut SqliteTransaction<'_>, sender: &str, id: &str) -> Result<(), Error> {
    let _ = id;
    let count = "INSERT INTO deliveries VALUES (?, 1) ON CONFLICT (sender) DO UPDATE SET messages = messages + 1";
    sqlx::query(count).bind(sender).execute(&mut **tx).await?;
    Ok(())
}

/// From a millisecond to ten seconds. Without buckets the exporter makes summaries, which nobody can add up.
const SECONDS: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

async fn run() -> Result<()> {
    let (port, purge_every) = arguments()?;
    let metrics = PrometheusBuilder::new().set_buckets(&SECONDS)?.install_recorder()?;
    describe_metrics();

    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("deliveries.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal);
    let store = ClaimStore::<Sqlite>::new(SqlitePool::connect_with(options).await?);
    store.migrate().await?;
    store.pool().execute("CREATE TABLE deliveries (sender TEXT PRIMARY KEY, messages INTEGER)").await?;
    let janitor = Janitor::new(store.clone()).every(purge_every).try_spawn()?;

    let routes = Router::new()
        .route("/deliveries/{sender}/{id}", post(deliver))
        .with_state(store)
        .merge(Router::new().route("/metrics", get(scrape)).with_state(metrics));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("Serving on http://{address}. Deliver, deliver again, and look:\n");
    println!("  curl -X POST http://{address}/deliveries/stripe/evt_1");
    println!("  curl http://{address}/metrics");
    axum::serve(listener, routes).with_graceful_shutdown(interrupted()).await?;
    janitor.shutdown().await;
    Ok(())
}

async fn deliver(
    State(store): State<ClaimStore<Sqlite>>,
    Path((sender, id)): Path<(String, String)>,
) -> (StatusCode, String) {
    match count(&store, &sender, &id).await {
        Ok(outcome) => (StatusCode::OK, format!("{}\n", outcome.as_str())),
        Err(error) => {
            let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, format!("{error}\n"))
        }
    }
}

async fn scrape(State(metrics): State<PrometheusHandle>) -> String {
    // Moves what was recorded into the buckets; the exporter's own listener does it by itself.
    metrics.run_upkeep();
    metrics.render()
}

async fn interrupted() {
    // Without signals it serves until it is killed.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// `--port`, 3000 unless given, and `--purge-every`, in seconds.
fn arguments() -> Result<(u16, Duration)> {
    let (mut port, mut purge_every) = (3000, 60);
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a number"))?;
        match name.as_str() {
            "--port" => port = value.parse().context("--port")?,
            "--purge-every" => purge_every = value.parse().context("--purge-every")?,
            _ => bail!("metrics_service [--port 3000] [--purge-every 60]"),
        }
    }
    Ok((port, Duration::from_secs(purge_every)))
}
