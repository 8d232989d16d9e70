//! Counters, durations and gauges.

use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Janitor, PurgeOptions, describe_metrics, idempotent};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sqlx::SqliteTransaction;

use super::{ONE_AT_A_TIME, do_nothing, pool, unmigrated};

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

#[idempotent(key = "{id}", consumer = "observed.fails", retry = 1)]
async fn fail(tx: &mut SqliteTransaction<'_>, id: &str, how: u8) -> sqlx::Result<()> {
    match how {
        0 => Err(sqlx::Error::RowNotFound),
        1 => Err(sqlx::Error::PoolTimedOut), // transient
        _ => sqlx::query("ROLLBACK").execute(&mut **tx).await.map(drop),
    }
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "observed.fails_of_all")]
async fn fail_of_all(_tx: &mut SqliteTransaction<'_>, ids: Vec<&str>) -> sqlx::Result<()> {
    Err(sqlx::Error::RowNotFound)
}

#[tokio::test]
async fn what_fails_is_counted_by_consumer_and_kind() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let migrated = pool().await;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let guard = metrics::set_default_local_recorder(&recorder);
    for how in 0..3 {
        fail(&migrated, "1", how).await.expect_err("its own");
    }
    fail(&migrated, " ", 0).await.expect_err("no key");
    fail_of_all(&migrated, vec!["1", "2"]).await.expect_err("its own");
    fail_of_all(&migrated, vec!["1", ""]).await.expect_err("no key");
    let unmigrated = unmigrated().await;
    fail(&unmigrated, "1", 0).await.expect_err("no table");
    let janitor = Janitor::new(ClaimStore::new(unmigrated)).every(Duration::from_millis(50)).spawn();
    tokio::time::sleep(Duration::from_millis(200)).await;
    janitor.shutdown().await;
    drop(guard);
    let mut failures = Vec::new();
    let mut purges = 0;
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
        match (key.key().name(), value) {
            ("idempotent_failures_total", DebugValue::Counter(count)) => failures.push((labels.join(" "), count)),
            ("idempotent_purge_failures_total", DebugValue::Counter(count)) => {
                assert_eq!(labels, ["processed_messages"]);
                purges += count;
            }
            ("idempotent_messages_total", _) => panic!("nothing came to an outcome: {labels:?}"),
            _ => {}
        }
    }
    failures.sort();
    let expected = [
        ("observed.fails handler", 3), // one of them twice
        ("observed.fails missing_key", 1),
        ("observed.fails not_migrated", 1),
        ("observed.fails transaction_lost", 2),
        ("observed.fails_of_all handler", 1),
        ("observed.fails_of_all missing_key", 1),
    ];
    assert_eq!(failures, expected.map(|(labels, count)| (labels.to_owned(), count)));
    assert!(purges > 0);
}
