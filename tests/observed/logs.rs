//! Events.

use std::time::Duration;

use idempotent_runtime::{ClaimStore, Janitor, PurgeOptions, migrate};

use super::{ONE_AT_A_TIME, caught, do_nothing, pool, unmigrated};

/// On the test's own thread, so that it is caught.
#[tokio::test]
async fn the_janitor_logs_what_it_has_purged_at_info_and_what_fails_at_warn() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = unmigrated().await;
    let (log, guard) = caught(tracing::Level::INFO);
    let janitor = Janitor::new(ClaimStore::new(pool.clone())).every(Duration::from_millis(50)).spawn();
    log.until(|log| log.contains("WARN")).await;
    migrate(&pool).await.expect("the claim table");
    let old = "INSERT INTO processed_messages (consumer, sender, key, expires_at) VALUES ('c', '', 'k', 0)";
    sqlx::query(old).execute(&pool).await.expect("a claim");
    log.until(|log| log.contains("purged")).await;
    janitor.shutdown().await;
    Janitor::new(ClaimStore::new(pool)).enabled(false).spawn().shutdown().await;
    drop(guard);
    let log = log.text();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} in {log}"));
    let failed = line("WARN");
    assert!(
        failed.contains("`processed_messages_janitor` is missing") && failed.contains("table=processed_messages"),
        "{failed}"
    );
    let purged = line("purged");
    assert!(purged.contains("INFO") && purged.contains("deleted=1"), "{purged}");
    assert!(line("switched off").contains("INFO"));
}

/// A warning at each interval, and not a purge that finds nothing.
#[tokio::test]
async fn a_janitor_whose_options_cannot_be_meant_says_so_each_time() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let store = ClaimStore::new(pool().await);
    let (log, guard) = caught(tracing::Level::DEBUG);
    let janitor =
        Janitor::new(store).every(Duration::from_millis(50)).options(PurgeOptions::new().batch_size(0)).spawn();
    let log = log.until(|log| log.matches("batches of 0").count() == 2).await;
    janitor.shutdown().await;
    drop(guard);
    assert_eq!(log.matches("WARN").count(), 2, "{log}");
    assert!(!log.contains("nothing to purge"), "{log}");
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
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("idempotent_runtime") && !line.contains(" close ")).collect();
    assert_eq!(lines.len(), 1, "one line for the duplicate, none for what was processed:\n{log}");
    for part in [
        "INFO",
        " idempotent_runtime: duplicate",
        "observed.nothing",
        "st%0Aripe",
        "1%0A2026-01-01T00:00:00Z%20ERROR%20forged",
    ] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    assert!(!log.contains('\u{1b}'));
}
