//! A duplicate is logged at info and counted per consumer and sender (G8), and nothing that a message holds breaks a log
//! line or multiplies a metric's labels.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Janitor, PurgeOptions, describe_metrics, idempotent, migrate};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sqlx::{SqlitePool, SqliteTransaction};
use tracing_subscriber::fmt::format::FmtSpan;

#[idempotent(key = "{id}", sender = "{sender}", consumer = "observed.nothing")]
async fn do_nothing(_tx: &mut SqliteTransaction<'_>, sender: &str, id: &str) -> sqlx::Result<()> {
    Ok(())
}

/// One test at a time: whether an event is wanted is kept for the whole process, and a test without a subscriber that
/// reaches the event at the same moment decides for both.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn pool() -> SqlitePool {
    let pool = sqlx::pool::PoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("SQLite");
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
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("the log").clone()).expect("text")
    }
}

/// What this thread logs until the guard is dropped.
fn caught(level: tracing::Level) -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(level).with_writer(move || writer.clone());
    (log, tracing::subscriber::set_default(subscriber.finish()))
}

/// On the test's own thread, so that it is caught.
#[tokio::test]
async fn the_janitor_logs_what_it_has_purged_at_info_and_what_fails_at_warn() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = sqlx::pool::PoolOptions::<sqlx::Sqlite>::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await
        .expect("SQLite");
    let (log, guard) = caught(tracing::Level::INFO);
    let janitor = Janitor::new(ClaimStore::new(pool.clone())).every(Duration::from_millis(50)).spawn();
    while !log.text().contains("WARN") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    migrate(&pool).await.expect("the claim table");
    let old = "INSERT INTO processed_messages (consumer, sender, key, expires_at) VALUES ('c', '', 'k', 0)";
    sqlx::query(old).execute(&pool).await.expect("a claim");
    while !log.text().contains("purged") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    janitor.shutdown().await;
    Janitor::new(ClaimStore::new(pool)).enabled(false).spawn().shutdown().await;
    drop(guard);
    let log = log.text();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} in {log}"));
    let failed = line("WARN");
    assert!(failed.contains("is missing") && failed.contains("table=processed_messages"), "{failed}");
    let purged = line("purged");
    assert!(purged.contains("INFO") && purged.contains("deleted=1"), "{purged}");
    assert!(line("switched off").contains("INFO"));
}

#[tokio::test]
async fn a_duplicate_is_logged_at_info_on_one_line_whatever_its_key() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let (log, guard) = caught(tracing::Level::INFO);
    let forged = "1\n2026-01-01T00:00:00Z ERROR forged: \u{1b}[31m\"key\"=\"2\"";
    for _ in 0..2 {
        do_nothing(&pool, "st\nripe", forged).await.expect("no error");
    }
    drop(guard);
    let log = log.text();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("idempotent_runtime")).collect();
    assert_eq!(lines.len(), 1, "one line for the duplicate, none for what was processed:\n{log}");
    for part in ["INFO", "duplicate", "observed.nothing", "st%0Aripe", "1%0A2026-01-01T00:00:00Z%20ERROR%20forged"] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    assert!(!log.contains('\u{1b}'));
}

#[tokio::test]
async fn messages_are_counted_by_consumer_sender_and_outcome_with_bounded_labels() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let guard = metrics::set_default_local_recorder(&recorder);
    for _ in 0..3 {
        do_nothing(&pool, "stripe", "1").await.expect("no error");
    }
    for sender in 0..300 {
        do_nothing(&pool, &format!("sender-{sender}"), "1").await.expect("no error");
    }
    drop(guard);
    let mut senders = 0;
    let mut of_stripe = Vec::new();
    let mut sum = 0;
    let (mut claims, mut bodies) = (0, 0);
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<(&str, &str)> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels[0], ("consumer", "observed.nothing"));
        match (key.key().name(), value) {
            ("idempotent_messages_total", DebugValue::Counter(count)) => {
                senders += 1;
                sum += count;
                if labels[1] == ("sender", "stripe") {
                    of_stripe.push((labels[2].1.to_owned(), count));
                }
            }
            // In seconds, and by nothing that comes from a message.
            ("idempotent_claim_duration_seconds", DebugValue::Histogram(seconds)) => {
                assert!(labels.len() == 1 && seconds.iter().all(|seconds| (0.0..60.0).contains(&seconds.0)));
                claims += seconds.len();
            }
            ("idempotent_handler_duration_seconds", DebugValue::Histogram(seconds)) => {
                assert!(labels.len() == 1 && seconds.iter().all(|seconds| (0.0..60.0).contains(&seconds.0)));
                bodies += seconds.len();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((claims, bodies), (303, 301), "duplicates are claimed in vain, and do not run");
    of_stripe.sort();
    assert_eq!(of_stripe, [("duplicate".to_owned(), 2), ("processed".to_owned(), 1)]);
    assert_eq!(sum, 303, "every message is counted");
    assert!(senders <= 103, "{senders} time series for 301 senders");
}

#[idempotent(key = "{id}", sender = "stripe", consumer = "observed.talks")]
async fn talk(tx: &mut SqliteTransaction<'_>, id: &str, fails: bool) -> sqlx::Result<()> {
    tracing::info!("the body speaks");
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    tracing::info!("the body speaks again");
    if fails { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "observed.talks_of_all")]
async fn talk_of_all(tx: &mut SqliteTransaction<'_>, ids: Vec<u8>, fails: bool) -> sqlx::Result<()> {
    talk_about(tx, ids.len()).await?;
    if fails { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

async fn talk_about(tx: &mut SqliteTransaction<'_>, items: usize) -> sqlx::Result<()> {
    tracing::info!(items, "the body speaks");
    sqlx::query("SELECT 1").execute(&mut **tx).await.map(drop)
}

#[tokio::test]
async fn what_the_body_of_a_batch_logs_says_whose_it_is_and_how_it_ended() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    talk_of_all(&pool, vec![1, 2], false).await.expect("no error");
    talk_of_all(&pool, vec![1, 2], false).await.expect("no error");
    talk_of_all(&pool, vec![1, 3], true).await.expect_err("its own");
    drop(guard);
    let closed = |log: &str| log.lines().filter(|line| line.contains(" close ")).map(str::to_owned).collect::<Vec<_>>();
    for _ in 0..200 {
        if closed(&log.text()).len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = log.text();
    let span = "batch{consumer=\"observed.talks_of_all\" items=2";
    let spoken: Vec<&str> = log.lines().filter(|line| line.contains("the body speaks")).collect();
    assert!(spoken.len() == 2 && spoken.iter().all(|line| line.contains(span)), "{log}");
    let closed = closed(&log);
    assert_eq!(closed.len(), 2, "a batch of duplicates runs nothing:\n{log}");
    assert!(closed[0].contains(&format!("{span} outcome=\"processed\"}}")), "{log}");
    assert!(closed[1].contains(&format!("{span} outcome=\"failed\"}}")), "{log}");
}

#[tokio::test]
async fn what_a_body_logs_says_which_message_it_is_about_and_how_it_ended() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    talk(&pool, "1", false).await.expect("no error");
    talk(&pool, "1", false).await.expect("no error");
    talk(&pool, "2", true).await.expect_err("its own");
    tracing::info!("outside");
    drop(guard);
    // sqlx's thread holds the span of a statement until it has done it.
    for _ in 0..200 {
        if log.text().matches(" close ").count() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = log.text();
    let span = |key: &str| format!("message{{consumer=\"observed.talks\" sender=\"stripe\" key=\"{key}\"");
    let spoken: Vec<&str> = log.lines().filter(|line| line.contains("the body speaks")).collect();
    assert_eq!(spoken.len(), 4, "{log}");
    assert!(spoken[..2].iter().all(|line| line.contains(&span("1"))), "{log}");
    assert!(spoken[2..].iter().all(|line| line.contains(&span("2"))), "{log}");
    let closed: Vec<&str> = log.lines().filter(|line| line.contains("close")).collect();
    assert_eq!(closed.len(), 2, "a duplicate runs nothing:\n{log}");
    assert!(closed[0].contains(&format!("{} outcome=\"processed\"}}", span("1"))), "{log}");
    assert!(closed[1].contains(&format!("{} outcome=\"failed\"}}", span("2"))), "{log}");
    assert!(log.lines().any(|line| line.contains("outside") && !line.contains("message{")), "{log}");
}

/// What a scraper is to see of purges.
#[tokio::test]
async fn purges_are_counted_and_the_time_of_the_last_and_the_oldest_expiry_are_shown() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let guard = metrics::set_default_local_recorder(&recorder);
    describe_metrics();
    let old = "INSERT INTO processed_messages (consumer, sender, key, expires_at) VALUES ('c', '', 'k', 0), ('c', '', 'l', 9e12)";
    sqlx::query(old).execute(&pool).await.expect("claims");
    ClaimStore::new(pool).purge(PurgeOptions::new()).await.expect("no error");
    drop(guard);
    let mut shown = 0;
    for (key, unit, help, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<(&str, &str)> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels, [("table", "processed_messages")]);
        assert!(unit.is_some() && help.is_some(), "{key:?}");
        shown += 1;
        match (key.key().name(), value) {
            ("idempotent_purged_claims_total", DebugValue::Counter(count)) => assert_eq!(count, 1),
            ("idempotent_last_purge_timestamp_seconds", DebugValue::Gauge(at)) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
                assert!((now - 60.0..=now).contains(&at.0), "{at}");
            }
            ("idempotent_oldest_claim_expiry_timestamp_seconds", DebugValue::Gauge(at)) => {
                assert!((at.0 - 9e9).abs() < 1.0, "{at}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shown, 3);
}
