//! `occurred_at` and `expired`: no ancient redelivery is taken for new, with bounded storage.

use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Disposition, Error, Outcome, Timestamp, UnixMillis, UnixSeconds, idempotent};
use tokio::task::JoinSet;

use crate::Tx;
use crate::handlers::effect;
use crate::harness::{World, rounds};

struct Dated<T> {
    id: String,
    at: T,
}

#[idempotent(key = "{message.id}", retention = "1h", occurred_at = "message.at")]
async fn refuse_old<T: Timestamp + Sync>(#[tx] tx: &mut Tx<'_>, message: &Dated<T>) -> Result<(), Error> {
    Ok(effect(tx, &message.id).await?)
}

#[idempotent(key = "{id}", retention = "1h", occurred_at = "at", expired = "skip")]
async fn skip_old(#[tx] tx: &mut Tx<'_>, id: &str, at: SystemTime) -> sqlx::Result<()> {
    effect(tx, id).await
}

#[idempotent(key = "{id}", retention = "1s", occurred_at = "at", expired = "skip")]
async fn skip_after_a_second(#[tx] tx: &mut Tx<'_>, id: &str, at: SystemTime) -> sqlx::Result<()> {
    effect(tx, id).await
}

#[idempotent(key = "{id}", retention = "1h", occurred_at = "at", missing = "process")]
async fn refuse_old_anyway(#[tx] tx: &mut Tx<'_>, id: Option<&str>, at: SystemTime) -> Result<(), Error> {
    Ok(effect(tx, id.unwrap_or("none")).await?)
}

fn ago(seconds: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(seconds)
}

fn ahead(seconds: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_message_older_than_the_retention_is_not_run() {
    let world = World::new().await;
    let error = refuse_old(&world.pool, &Dated { id: "1".into(), at: ago(3601) }).await.unwrap_err();
    let Error::Expired(expired) = &error else { panic!("{error:?}") };
    assert_eq!((expired.consumer(), expired.key()), ("tests.refuse_old", "1"));
    assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 422));
    let skipped = skip_old(&world.pool, "2", ago(3601)).await.unwrap();
    assert!(matches!(&skipped, Outcome::Expired(expired) if expired.key() == "2"), "{skipped:?}");
    assert_eq!((skipped.as_str(), skipped.value()), ("expired", None));
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(skip_old(&world.pool, "2", ago(3500)).await.unwrap().is_processed());
}

#[tokio::test]
async fn a_claim_lives_until_its_message_is_as_old_as_the_retention() {
    let world = World::new().await;
    let at = ago(600);
    assert!(skip_old(&world.pool, "1", at).await.unwrap().is_processed());
    let store = ClaimStore::new(world.pool.clone());
    let expires = store.find("tests.skip_old", "", "1").await.unwrap().unwrap();
    let lifetime = expires.duration_since(at).unwrap();
    assert!(lifetime.abs_diff(Duration::from_hours(1)) < Duration::from_millis(2), "{lifetime:?}");
}

#[tokio::test]
async fn a_message_with_a_claim_is_a_duplicate_past_its_expiry_and_expired_once_it_is_purged() {
    let world = World::new().await;
    let at = SystemTime::now();
    assert!(skip_after_a_second(&world.pool, "1", at).await.unwrap().is_processed());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(skip_after_a_second(&world.pool, "1", at).await.unwrap().is_duplicate());
    world.run("DELETE FROM processed_messages").await; // everything may be purged
    assert_eq!(skip_after_a_second(&world.pool, "1", at).await.unwrap().as_str(), "expired");
    assert_eq!((world.effects().await, world.claims().await), (1, 0));
}

/// Purge deletes a claim, and its redelivery comes at the same moment: whoever is first, there is one effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_purge_never_lets_a_redelivery_pass_for_new() {
    let world = World::new().await;
    let messages = rounds(200, 10_000);
    let purge = crate::PURGE_EXPIRED;
    let purger = tokio::spawn({
        let observer = world.observer.clone();
        async move {
            loop {
                let purged = sqlx::query(purge).execute(&observer).await;
                assert!(purged.is_ok() || crate::is_busy(&purged), "{purged:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let pool = world.pool.clone();
        workers.spawn(async move {
            let (mut processed, mut duplicates) = (0, 0);
            for message in (worker..messages).step_by(8) {
                let id = format!("message-{message}");
                let at = SystemTime::now() - Duration::from_millis(970);
                loop {
                    match skip_after_a_second(&pool, &id, at).await {
                        Ok(Outcome::Processed(())) => processed += 1,
                        Ok(Outcome::Duplicate(_)) => duplicates += 1,
                        Ok(Outcome::Expired(_)) => break,
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => assert!(Error::from(error).is_transient()),
                    }
                }
            }
            (processed, duplicates)
        });
    }
    let counts = workers.join_all().await;
    purger.abort();
    let (processed, duplicates) =
        counts.into_iter().fold((0, 0), |(p, d), (processed, duplicate)| (p + processed, d + duplicate));
    println!("{messages} messages, processed {processed}, duplicates {duplicates}, each until it was expired");
    assert_eq!(world.effects().await, processed);
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0, "an id has two effects");
    assert!(processed > 0 && duplicates > 0);
}

#[tokio::test]
async fn a_timestamp_more_than_a_day_ahead_is_refused_and_never_clamped() {
    let world = World::new().await;
    let day = 86_400;
    assert!(skip_old(&world.pool, "near", ahead(day - 60)).await.unwrap().is_processed());
    let error = refuse_old(&world.pool, &Dated { id: "far".into(), at: ahead(day + 60) }).await.unwrap_err();
    assert!(matches!(&error, Error::OccurredInFuture(_)), "{error:?}");
    assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 400));
    // Milliseconds in a field of seconds, and the other way round.
    let millis = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let far = refuse_old(&world.pool, &Dated { id: "far".into(), at: UnixSeconds(millis) }).await;
    assert!(matches!(far, Err(Error::OccurredInFuture(_))), "{far:?}");
    let old = refuse_old(&world.pool, &Dated { id: "old".into(), at: UnixMillis(millis / 1000) }).await;
    assert!(matches!(old, Err(Error::Expired(_))), "{old:?}");
    for (at, is_ahead) in [(i64::MAX, true), (i64::MIN, false)] {
        let extreme = refuse_old(&world.pool, &Dated { id: "extreme".into(), at: UnixSeconds(at) }).await;
        assert!(matches!(extreme, Err(Error::OccurredInFuture(_))) == is_ahead, "{at}: {extreme:?}");
        assert!(matches!(extreme, Err(Error::Expired(_))) != is_ahead, "{at}: {extreme:?}");
    }
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_message_without_a_key_is_judged_by_its_age_all_the_same() {
    let world = World::new().await;
    assert!(matches!(refuse_old_anyway(&world.pool, None, ago(3601)).await, Err(Error::Expired(_))));
    assert!(refuse_old_anyway(&world.pool, None, ago(1)).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 0));
}

#[tokio::test]
async fn an_old_message_leaves_the_callers_transaction_as_it_was() {
    let world = World::new().await;
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    effect(&mut tx, "callers").await.unwrap();
    assert_eq!(skip_old(&mut tx, "1", ago(3601)).await.unwrap().as_str(), "expired");
    assert!(skip_old(&mut tx, "2", ago(1)).await.unwrap().is_processed());
    assert!(skip_old(&mut tx, "2", ago(1)).await.unwrap().is_duplicate());
    idempotent_runtime::commit(tx).await.unwrap();
    assert_eq!((world.effects().await, world.claims().await), (2, 1));
}

#[tokio::test]
async fn ages_are_judged_alike_under_every_isolation_level_and_on_a_connection_of_the_callers() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut connection = pool.acquire().await.unwrap();
        for (id, at, expected) in [("1", ago(3601), "expired"), ("2", ago(1), "processed"), ("2", ago(1), "duplicate")]
        {
            let outcome = if expected == "duplicate" {
                skip_old(&pool, id, at).await
            } else {
                skip_old(&mut connection, id, at).await
            };
            assert_eq!(outcome.unwrap().as_str(), expected, "{level}");
        }
        assert_eq!((world.effects().await, world.claims().await), (1, 1), "{level}");
    }
}

#[tokio::test]
async fn a_message_that_is_too_old_or_too_new_leaves_a_sound_connection() {
    let world = World::with_connections(1).await;
    for round in 0..10 {
        assert!(!skip_old(&world.pool, "old", ago(3601)).await.unwrap().is_processed());
        let plain = format!("plain-{round}");
        sqlx::query(sqlx::AssertSqlSafe(format!("INSERT INTO effects (id) VALUES ('{plain}')")))
            .execute(&world.pool)
            .await
            .unwrap();
        assert_eq!(world.effects_of(&plain).await, 1, "a statement of the application's own commits, in round {round}");
        skip_old(&world.pool, "ahead", ahead(86_500)).await.unwrap_err();
        assert_eq!(world.claims().await, i64::from(round), "neither has a claim");
        assert!(skip_old(&world.pool, &plain, ago(1)).await.unwrap().is_processed());
        assert!(ClaimStore::new(world.pool.clone()).forget("tests.skip_old", "", &plain).await.unwrap());
        assert!(skip_old(&world.pool, &plain, ago(1)).await.unwrap().is_processed());
    }
}
