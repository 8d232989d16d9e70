//! `each`: batches, repeats within and before them, and two of them at once.

use std::time::{Duration, SystemTime};

use idempotent_runtime::{Batch, Claim, ClaimStore, Error, ItemOutcome, PurgeOptions, idempotent};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::Tx;
use crate::handlers::effect;
use crate::harness::{World, drop_after, rounds};
use ItemOutcome::{Duplicate, Expired, Processed, Stale};

#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    sender: String,
}

fn events(ids: &[&str]) -> Vec<Event> {
    ids.iter().map(|id| Event { id: (*id).to_owned(), sender: "s".to_owned() }).collect()
}

fn numbered(numbers: impl Iterator<Item = usize>) -> Vec<Event> {
    numbers.map(|number| Event { id: format!("event-{number}"), sender: "s".to_owned() }).collect()
}

/// One effect for each, in one statement, as a batch is meant.
async fn effects(tx: &mut Tx<'_>, events: &[Event]) -> sqlx::Result<()> {
    for chunk in events.chunks(500) {
        let rows: Vec<String> = chunk.iter().map(|event| format!("('{}')", event.id)).collect();
        tx.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES {}", rows.join(", ")))).await?;
    }
    Ok(())
}

#[idempotent(key = "{event.id}", each = "event in events", sender = "{event.sender}")]
async fn record_all(#[tx] tx: &mut Tx<'_>, mut events: Vec<Event>) -> Result<Vec<String>, Error> {
    effects(tx, &events).await?;
    Ok(events.drain(..).map(|event| event.id).collect())
}

#[idempotent(key = "{event.id}", each = "event in events", retry = 3)]
async fn record_or_fail(
    #[tx] tx: &mut Tx<'_>,
    events: Vec<Event>,
    claims: &[Claim],
    left: &std::sync::atomic::AtomicUsize,
) -> Result<usize, Error> {
    effects(tx, &events).await?;
    let keys: Vec<&str> = claims.iter().map(Claim::key).collect();
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(keys, ids);
    if left.load(std::sync::atomic::Ordering::Relaxed) > 0 {
        left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        return Err(sqlx::Error::PoolTimedOut.into());
    }
    Ok(events.len())
}

#[idempotent(key = "{id}", each = "id in ids", missing = "reject")]
async fn record_optional(#[tx] tx: &mut Tx<'_>, ids: Vec<Option<&str>>) -> Result<(), Error> {
    for id in ids.into_iter().flatten() {
        effect(tx, id).await?;
    }
    Ok(())
}

#[derive(Clone)]
struct Update {
    id: &'static str,
    order: &'static str,
    version: i64,
    age: u64,
}

#[idempotent(
    key = "{update.id}",
    each = "update in updates",
    sequence(entity = "{update.order}", number = "update.version"),
    retention = "1h",
    occurred_at = "update.at()",
    expired = "skip"
)]
async fn apply_all(#[tx] tx: &mut Tx<'_>, updates: Vec<Update>) -> Result<Vec<&'static str>, Error> {
    for update in &updates {
        effect(tx, update.id).await?;
    }
    Ok(updates.iter().map(|update| update.id).collect())
}

impl Update {
    fn at(&self) -> SystemTime {
        SystemTime::now() - Duration::from_secs(self.age)
    }
}

#[idempotent(
    key = "{update.id}",
    each = "update in updates",
    retention = "1h",
    occurred_at = "update.at()",
    consumer = "batched.refuse-old"
)]
async fn refuse_old(#[tx] tx: &mut Tx<'_>, updates: Vec<Update>) -> Result<(), Error> {
    for update in &updates {
        effect(tx, update.id).await?;
    }
    Ok(())
}

#[idempotent(sequence(entity = "{partition}", number = "record.0"), each = "record in records")]
async fn consume_all(#[tx] tx: &mut Tx<'_>, partition: u32, records: Vec<(i64, String)>) -> Result<usize, Error> {
    for (offset, _) in &records {
        effect(tx, &format!("{partition}-{offset}")).await?;
    }
    Ok(records.len())
}

/// One effect, whatever the batch.
#[idempotent(key = "{id}", each = "id in ids", consumer = "batched.count-all")]
pub(crate) async fn count_all(#[tx] tx: &mut Tx<'_>, ids: Vec<String>) -> Result<usize, Error> {
    effect(tx, "counted").await?;
    Ok(ids.len())
}

#[tokio::test]
async fn only_fresh_items_reach_the_body_once_each_and_each_is_named() {
    let world = World::new().await;
    record_all(&world.pool, events(&["old"])).await.unwrap();
    let batch = record_all(&world.pool, events(&["old", "new", "new", "other"])).await.unwrap();
    assert_eq!(
        batch,
        Batch {
            output: Some(vec!["new".to_owned(), "other".to_owned()]),
            outcomes: vec![Duplicate, Processed, Duplicate, Processed],
        }
    );
    assert_eq!((batch.count(Processed), batch.count(Duplicate)), (2, 2));
    let again = record_all(&world.pool, events(&["other", "old"])).await.unwrap();
    assert_eq!(again, Batch { output: None, outcomes: vec![Duplicate, Duplicate] });
    assert_eq!(record_all(&world.pool, Vec::new()).await.unwrap(), Batch { output: None, outcomes: Vec::new() });
    assert_eq!((world.effects().await, world.claims().await), (3, 3));
}

#[tokio::test]
async fn a_batch_and_single_deliveries_share_their_claims() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    record_all(&world.pool, events(&["1", "2"])).await.unwrap();
    assert!(store.find("tests.record_all", "s", "1").await.unwrap().is_some());
    assert!(store.forget("tests.record_all", "s", "1").await.unwrap());
    let batch = record_all(&world.pool, events(&["1", "2"])).await.unwrap();
    assert_eq!(batch.outcomes, [Processed, Duplicate]);
}

#[tokio::test]
async fn one_bad_key_fails_the_batch_before_any_sql_and_names_its_item() {
    let world = World::not_migrated(1).await; // SQL would be `NotMigrated`
    let error = record_optional(&world.pool, vec![Some("1"), None, Some(" ")]).await.unwrap_err();
    assert!(matches!(error, Error::MissingKey { index: Some(1), .. }), "{error:?}");
    assert!(error.to_string().contains("of item 1 of the batch"), "{error}");
}

#[tokio::test]
async fn a_batch_that_fails_leaves_nothing_and_one_that_may_run_again_does() {
    let world = World::new().await;
    let left = std::sync::atomic::AtomicUsize::new(9);
    assert!(record_or_fail(&world.pool, events(&["1", "2"]), &left).await.is_err());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    left.store(3, std::sync::atomic::Ordering::Relaxed);
    let batch = record_or_fail(&world.pool, events(&["2", "1", "2"]), &left).await.unwrap();
    assert_eq!((batch.output, batch.outcomes), (Some(2), vec![Processed, Processed, Duplicate]));
    assert_eq!((world.effects().await, world.claims().await), (2, 2));
}

#[tokio::test]
async fn order_is_judged_in_the_order_of_the_batch_and_what_does_not_run_has_no_claim() {
    let world = World::new().await;
    let update = |id, order, version| Update { id, order, version, age: 1 };
    let old = |id| Update { id, order: "old", version: 1, age: 3601 };
    let batch = apply_all(
        &world.pool,
        vec![
            update("a2", "a", 2),
            update("a1", "a", 1), // behind its predecessor
            update("a3", "a", 3),
            old("x"),
            update("b1", "b", 1),
            update("a2", "a", 9), // the same key
        ],
    );
    let batch = batch.await.unwrap();
    assert_eq!(batch.outcomes, [Processed, Stale, Processed, Expired, Processed, Duplicate]);
    assert_eq!(batch.output, Some(vec!["a2", "a3", "b1"]));
    assert_eq!(world.claims().await, 3);
    let batch = apply_all(&world.pool, vec![update("a1", "a", 1), update("a4", "a", 4), update("b1", "b", 1)]);
    assert_eq!(batch.await.unwrap().outcomes, [Stale, Processed, Duplicate]);
    let store = ClaimStore::new(world.pool.clone());
    for (entity, position) in [("a", Some(4)), ("b", Some(1)), ("old", None)] {
        assert_eq!(store.position("tests.apply_all", "", entity).await.unwrap(), position, "{entity}");
    }
    assert_eq!((world.effects().await, world.claims().await), (4, 4));
}

/// The item that is skipped must not leave its own expiry to the one that is processed, which a purge would forget.
#[tokio::test]
async fn the_claim_of_a_repeated_key_lives_as_long_as_the_item_that_was_processed() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    let item = |age| Update { id: "x", order: "x", version: 1, age };
    let batch = vec![item(4 * 3600), item(1)];
    assert_eq!(apply_all(&store, batch.clone()).await.unwrap().outcomes, [Expired, Processed]);
    assert_eq!(store.purge(PurgeOptions::new()).await.unwrap().deleted, 0);
    assert_eq!(apply_all(&store, batch).await.unwrap().outcomes, [Duplicate, Duplicate]);
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn an_old_item_fails_the_batch_unless_it_is_to_be_skipped() {
    let world = World::new().await;
    let update = |id, age| Update { id, order: "", version: 1, age };
    let error = refuse_old(&world.pool, vec![update("1", 1), update("2", 3601)]).await.unwrap_err();
    let Error::Expired(expired) = &error else { panic!("{error:?}") };
    assert_eq!(expired.key(), "2");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert_eq!(refuse_old(&world.pool, vec![update("1", 1)]).await.unwrap().outcomes, [Processed]);
}

#[tokio::test]
async fn a_stream_is_consumed_in_batches_from_its_position() {
    let world = World::new().await;
    let records = |offsets: std::ops::Range<i64>| offsets.map(|offset| (offset, String::new())).collect::<Vec<_>>();
    assert_eq!(consume_all(&world.pool, 0, records(0..10)).await.unwrap().output, Some(10));
    assert_eq!(consume_all(&world.pool, 0, records(5..15)).await.unwrap().output, Some(5));
    assert_eq!(consume_all(&world.pool, 0, records(0..15)).await.unwrap().output, None);
    assert_eq!(consume_all(&world.pool, 1, records(0..1)).await.unwrap().output, Some(1));
    let store = ClaimStore::new(world.pool.clone());
    assert_eq!(store.position("tests.consume_all", "", "0").await.unwrap(), Some(14));
    assert_eq!((world.effects().await, world.claims().await), (16, 0));
}

#[tokio::test]
async fn a_batch_joins_its_callers_transaction() {
    let world = World::new().await;
    let left = std::sync::atomic::AtomicUsize::new(1);
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    effect(&mut tx, "callers").await.unwrap();
    assert_eq!(record_all(&mut tx, events(&["1", "1"])).await.unwrap().outcomes, [Processed, Duplicate]);
    assert_eq!(record_all(&mut tx, events(&["1", "2"])).await.unwrap().outcomes, [Duplicate, Processed]);
    assert!(record_or_fail(&mut tx, events(&["1"]), &left).await.is_err());
    idempotent_runtime::commit(tx).await.unwrap();
    let mut connection = world.pool.acquire().await.unwrap();
    assert_eq!(record_all(&mut connection, events(&["2", "3"])).await.unwrap().outcomes, [Duplicate, Processed]);
    assert_eq!((world.effects().await, world.claims().await), (4, 3));
}

/// Hostile keys, in one batch: each is itself.
#[tokio::test]
async fn keys_of_any_bytes_are_claimed_together_and_never_collide() {
    let world = World::new().await;
    let long = "x".repeat(5000);
    let keys = [
        "a", "A", "a ", "\"", "\\", "\\\"", "'", "ä", "\u{0}", "{table}", "?", "%", &long, "],[", "null", "é",
        "e\u{301}",
    ];
    let all = || keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(count_all(&world.pool, all()).await.unwrap().output, Some(keys.len()));
    assert_eq!(count_all(&world.pool, all()).await.unwrap().output, None);
    assert_eq!(world.claims().await, i64::try_from(keys.len()).unwrap());
}

#[tokio::test]
async fn a_batch_of_any_size_works() {
    let world = World::new().await;
    for size in [1, 2, 999, rounds(20_000, 100_000)] {
        let batch = record_all(&world.pool, numbered(0..size)).await.unwrap();
        let new = batch.count(Processed);
        assert_eq!(batch.outcomes.len(), size);
        assert_eq!(new, batch.output.map_or(0, |ids| ids.len()));
        let claims = i64::try_from(size).unwrap();
        assert_eq!((world.effects().await, world.claims().await), (claims, claims));
    }
}

#[tokio::test]
async fn a_dropped_batch_leaves_all_or_nothing_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    for polls in 1..60 {
        let batch = numbered(polls * 10..polls * 10 + 10);
        drop_after(polls, record_all(&world.pool, batch)).await;
    }
    let effects = world.effects().await;
    assert_eq!((effects % 10, effects), (0, world.claims().await));
    assert_eq!(record_all(&world.pool, events(&["last"])).await.unwrap().outcomes, [Processed]);
}

/// Two workers with the same keys in opposite order: what the library locks is sorted. In a transaction of the caller's a
/// conflict is not tried again, so a deadlock would surface.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_with_the_same_keys_in_opposite_order_never_deadlock() {
    let world = World::new().await;
    for round in 0..rounds(30, 500) {
        let mut workers = JoinSet::new();
        for worker in 0..4 {
            let pool = world.pool.clone();
            workers.spawn(async move {
                let mut batch = numbered(round * 100..round * 100 + 150);
                if worker % 2 == 1 {
                    batch.reverse();
                }
                let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
                let processed = record_all(&mut tx, batch).await?.count(Processed);
                idempotent_runtime::commit(tx).await?;
                Ok::<_, Error>(processed)
            });
        }
        let processed: usize = workers.join_all().await.into_iter().map(|batch| batch.expect("no deadlock")).sum();
        // The first fifty are the last fifty of the round before.
        assert_eq!(processed, if round == 0 { 150 } else { 100 }, "round {round}");
    }
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0);
}

/// Under the stricter levels a rival's commit is a conflict, which the handler's own begin tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_with_the_same_keys_have_one_effect_each_under_every_isolation_level() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        for round in 0..rounds(10, 200) {
            let mut workers = JoinSet::new();
            for worker in 0..4 {
                let pool = pool.clone();
                workers.spawn(async move {
                    let mut batch = numbered(round * 20..round * 20 + 30);
                    if worker % 2 == 1 {
                        batch.reverse();
                    }
                    record_all(&pool, batch).await
                });
            }
            let processed: usize =
                workers.join_all().await.into_iter().map(|batch| batch.expect("no error").count(Processed)).sum();
            // The first ten are the last ten of the round before.
            assert_eq!(processed, if round == 0 { 30 } else { 20 }, "{level}, round {round}");
        }
        assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0, "{level}");
    }
}

/// Positions too, old ones and new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_that_move_the_same_entities_in_opposite_order_apply_each_update_once() {
    #[idempotent(
        sequence(entity = "{record.0}", number = "record.1"),
        each = "record in records",
        consumer = "batched.orders"
    )]
    async fn move_all(#[tx] tx: &mut Tx<'_>, records: Vec<(usize, i64)>) -> Result<(), Error> {
        for (entity, number) in records {
            effect(tx, &format!("{entity}-{number}")).await?;
        }
        Ok(())
    }
    let world = World::new().await;
    let mut workers = JoinSet::new();
    for worker in 0..4_usize {
        let pool = world.pool.clone();
        workers.spawn(async move {
            for round in 0..20 {
                let mut batch: Vec<(usize, i64)> = (0..10).map(|entity| (entity, round)).collect();
                if worker % 2 == 1 {
                    batch.reverse();
                }
                while let Err(error) = move_all(&pool, batch.clone()).await {
                    assert!(error.is_transient(), "{error:?}");
                }
            }
        });
    }
    workers.join_all().await;
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0);
    let last = "SELECT count(*) FROM processed_messages_positions WHERE number = 19";
    assert_eq!(world.number(last).await, 10);
}
