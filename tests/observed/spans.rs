//! What a body logs says which message it is about.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

use super::{ONE_AT_A_TIME, caught, pool};

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

/// The lines in which spans end.
fn closed(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(" close ")).collect()
}

#[tokio::test]
async fn what_the_body_of_a_batch_logs_says_whose_it_is_and_how_it_ended() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let pool = pool().await;
    let (log, guard) = caught(tracing::Level::INFO);
    talk_of_all(&pool, vec![1, 2], false).await.expect("no error");
    talk_of_all(&pool, vec![1, 2], false).await.expect("no error");
    talk_of_all(&pool, vec![1, 3], true).await.expect_err("its own");
    drop(guard);
    let log = log.until(|log| closed(log).len() == 2).await;
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
    let (log, guard) = caught(tracing::Level::INFO);
    talk(&pool, "1", false).await.expect("no error");
    talk(&pool, "1", false).await.expect("no error");
    talk(&pool, "2", true).await.expect_err("its own");
    tracing::info!("outside");
    drop(guard);
    let log = log.until(|log| closed(log).len() == 2).await;
    let span = |key: &str| format!("message{{consumer=\"observed.talks\" sender=\"stripe\" key=\"{key}\"");
    let spoken: Vec<&str> = log.lines().filter(|line| line.contains("the body speaks")).collect();
    assert_eq!(spoken.len(), 4, "{log}");
    assert!(spoken[..2].iter().all(|line| line.contains(&span("1"))), "{log}");
    assert!(spoken[2..].iter().all(|line| line.contains(&span("2"))), "{log}");
    let closed = closed(&log);
    assert_eq!(closed.len(), 2, "a duplicate runs nothing:\n{log}");
    assert!(closed[0].contains(&format!("{} outcome=\"processed\"}}", span("1"))), "{log}");
    assert!(closed[1].contains(&format!("{} outcome=\"failed\"}}", span("2"))), "{log}");
    assert!(log.lines().any(|line| line.contains("outside") && !line.contains("message{")), "{log}");
}
