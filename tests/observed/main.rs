//! A duplicate is logged at info and counted per consumer and sender (G8), and nothing that a message holds breaks a log
//! line or multiplies a metric's labels.

mod logs;
mod metrics;
mod spans;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_runtime::{idempotent, migrate};
use sqlx::{SqlitePool, SqliteTransaction};
use tracing_subscriber::fmt::format::FmtSpan;

#[idempotent(key = "{id}", sender = "{sender}", consumer = "observed.nothing")]
async fn do_nothing(_tx: &mut SqliteTransaction<'_>, sender: &str, id: &str) -> sqlx::Result<()> {
    Ok(())
}

/// One test at a time: whether an event is wanted is kept for the whole process, and a test without a subscriber that
/// reaches the event at the same moment decides for both.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn unmigrated() -> SqlitePool {
    sqlx::pool::PoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("SQLite")
}

async fn pool() -> SqlitePool {
    let pool = unmigrated().await;
    migrate(&pool).await.expect("the claim table");
    pool
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Waits until it says so: sqlx's thread holds the span of a statement until it has done it.
    async fn until(&self, says_so: impl Fn(&str) -> bool) -> String {
        for _ in 0..2000 {
            if says_so(&self.text()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.text()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("the log").clone()).expect("text")
    }
}

/// What this thread logs until the guard is dropped, the ends of spans too.
fn caught(level: tracing::Level) -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(level)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone());
    (log, tracing::subscriber::set_default(subscriber.finish()))
}
