//! Batches, `retry`, `wait`, `isolation` and the seen cache where they meet each other and what else can happen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_runtime::{Claim, ClaimStore, Error, ItemOutcome, Outcome, idempotent};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::Tx;
use crate::handlers::{effect, record};
use crate::harness::{World, drop_after, rounds, unless_it_panics};
use ItemOutcome::{Duplicate, Processed, Stale};

/// What a body does on its first run.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Works,
    Conflicts,
    Panics,
    RollsBack,
}

/// Does it, after the effect.
async fn first_run(tx: &mut Tx<'_>, first: First, runs: &AtomicUsize) -> Result<(), Error> {
    if runs.fetch_add(1, Ordering::Relaxed) > 0 {
        return Ok(());
    }
    match first {
        First::Works => Ok(()),
        First::Conflicts => Err(sqlx::Error::PoolTimedOut.into()),
        First::Panics => panic!("on purpose"),
        First::RollsBack => {
            tx.execute(AssertSqlSafe("ROLLBACK")).await?;
            Ok(())
        }
    }
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "pressed.inner")]
async fn inner(#[tx] tx: &mut Tx<'_>, ids: Vec<String>, fails: bool) -> Result<usize, Error> {
    for id in &ids {
        effect(tx, &format!("inner-{id}")).await?;
    }
    if fails { Err(sqlx::Error::RowNotFound.into()) } else { Ok(ids.len()) }
}

#[idempotent(key = "{id}", each = "id in ids", retry = 2, consumer = "pressed.outer")]
async fn outer(
    #[tx] tx: &mut Tx<'_>,
    ids: Vec<String>,
    fails: bool,
    first: First,
    runs: &AtomicUsize,
) -> Result<Vec<ItemOutcome>, Error> {
    let inner = inner(&mut *tx, ids.iter().chain(&ids).cloned().collect(), fails).await;
    for id in ids {
        effect(tx, &format!("outer-{id}")).await?;
    }
    first_run(tx, first, runs).await?;
    Ok(inner.map(|batch| batch.outcomes).unwrap_or_default())
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn a_batch_inside_a_batch_shares_its_transaction_and_fails_alone() {
    let world = World::with_connections(1).await;
    let runs = AtomicUsize::new(0);
    let batch = outer(&world.pool, ids(3), true, First::Works, &runs).await.unwrap();
    assert_eq!(batch.output, Some(vec![]), "the inner one has failed and was undone");
    assert_eq!((world.effects().await, world.claims().await), (3, 3));
    let batch = outer(&world.pool, ids(5), false, First::Works, &runs).await.unwrap();
    assert_eq!(batch.output, Some(vec![Processed, Processed, Duplicate, Duplicate]));
    assert_eq!((world.effects().await, world.claims().await), (7, 7));
}

/// The inner batch is undone with each run of the outer one, and so are its claims.
#[tokio::test]
async fn a_batch_that_runs_again_runs_what_it_has_called_again() {
    for first in [First::Conflicts, First::RollsBack] {
        if first == First::RollsBack && crate::ONE_WRITER {
            continue; // SQLite refuses to run it
        }
        let world = World::with_connections(1).await;
        let runs = AtomicUsize::new(0);
        let batch = outer(&world.pool, ids(2), false, first, &runs).await.unwrap();
        assert_eq!(batch.output, Some(vec![Processed, Processed, Duplicate, Duplicate]));
        assert_eq!(runs.into_inner(), 2);
        assert_eq!((world.effects_of("outer-1").await, world.effects_of("inner-1").await), (1, 1));
        assert_eq!(world.claims().await, 4);
    }
}

#[tokio::test]
async fn a_panic_in_a_batch_leaves_nothing_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    let runs = AtomicUsize::new(0);
    assert!(unless_it_panics(outer(&world.pool, ids(3), false, First::Panics, &runs)).await.is_none());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(outer(&world.pool, ids(3), false, First::Works, &runs).await.unwrap().output.is_some());
    assert_eq!((world.effects().await, world.claims().await), (6, 6));
}

#[idempotent(key = "{id}", retry = 3, consumer = "pressed.twice", isolation = "serializable")]
async fn twice(#[tx] tx: &mut Tx<'_>, id: &str, first: First, runs: &AtomicUsize) -> Result<(), Error> {
    effect(tx, id).await?;
    first_run(tx, first, runs).await
}

/// Wherever it is dropped: claim and effect are both there or both not there, no run follows a commit, and neither the
/// only connection nor its settings are lost.
#[tokio::test]
async fn dropped_at_any_await_between_two_runs_it_leaves_all_or_nothing_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    let own = crate::isolation(&mut world.pool.acquire().await.unwrap()).await;
    let mut finished = false;
    for polls in 0..rounds(60, 200) {
        let (runs, id) = (AtomicUsize::new(0), format!("dropped-{polls}"));
        let outcome = drop_after(polls, twice(&world.pool, &id, First::Conflicts, &runs)).await;
        let asked = Instant::now();
        let mut connection = world.pool.acquire().await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "after {polls} polls the connection was away");
        assert_eq!(crate::isolation(&mut connection).await, own, "after {polls} polls");
        drop(connection);
        let effects = world.effects_of(&id).await;
        let claims =
            world.number(&format!("SELECT count(*) FROM processed_messages WHERE {} = '{id}'", crate::KEY)).await;
        assert_eq!(effects, claims, "after {polls} polls");
        assert!(effects <= 1 && runs.load(Ordering::Relaxed) <= 2);
        if let Some(outcome) = outcome {
            assert!(outcome.unwrap().is_processed());
            assert_eq!(effects, 1);
            finished = true;
        }
        let again = twice(&world.pool, &id, First::Works, &runs).await.unwrap();
        assert_eq!(again.is_duplicate(), effects == 1, "after {polls} polls");
        assert_eq!(world.effects_of(&id).await, 1);
    }
    println!("finished: {finished}");
}

#[idempotent(key = "{id}", wait = "0s", retry = 3, consumer = "pressed.at-once")]
async fn at_once(#[tx] tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    Ok(effect(tx, id).await?)
}

/// `wait` is about the claim. The pool has a time of its own, which `retry` does not multiply.
#[tokio::test]
async fn an_exhausted_pool_is_a_transient_error_after_the_pools_own_time() {
    let world = World::new().await;
    let options = PoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(300));
    let pool = options.connect(&crate::url(&world.fresh)).await.unwrap();
    let taken = pool.acquire().await.unwrap();
    let started = Instant::now();
    let error = at_once(&pool, "1").await.unwrap_err();
    assert!(matches!(error, Error::Database(sqlx::Error::PoolTimedOut)) && error.is_transient(), "{error:?}");
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    drop(taken);
    assert!(at_once(&pool, "1").await.unwrap().is_processed());
}

#[idempotent(key = "{id}", retry = 3, replay, consumer = "pressed.answer")]
async fn answer(#[tx] tx: &mut Tx<'_>, id: String, claim: &Claim, runs: &AtomicUsize) -> Result<String, Error> {
    effect(tx, &id).await?;
    first_run(tx, First::Conflicts, runs).await?;
    Ok(claim.idempotency_key(&id))
}

#[tokio::test]
async fn the_answer_of_the_run_that_was_committed_is_replayed_and_each_run_has_the_claim() {
    let world = World::with_connections(1).await;
    let runs = AtomicUsize::new(0);
    let Outcome::Processed(value) = answer(&world.pool, "1".into(), &runs).await.unwrap() else { panic!("not new") };
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(answer(&world.pool, "1".into(), &runs).await.unwrap(), Outcome::Replayed(value));
    assert_eq!((runs.into_inner(), world.effects().await, world.claims().await), (2, 1, 1));
}

struct Item {
    sender: String,
    key: String,
}

#[idempotent(key = "{item.key}", sender = "{item.sender}", each = "item in items", consumer = "pressed.many")]
async fn many(#[tx] tx: &mut Tx<'_>, items: Vec<Item>, claims: &[Claim]) -> Result<usize, Error> {
    assert!(claims.len() == items.len() && claims.iter().all(|claim| claim.sender().len() <= 128));
    effect(tx, "many").await?;
    Ok(items.len())
}

/// Near the limit of a stored key and beyond it, from senders with every quote there is.
#[tokio::test]
async fn a_large_batch_of_long_keys_from_hostile_senders_is_claimed_whole() {
    let world = World::new().await;
    let senders = ["", "'", "\"", "\\", "a\u{0}b", "`", "],[", "{}", "ä ß", "$1", "?", "a", "A"];
    let items = || -> Vec<Item> {
        let long = |number: usize| format!("{number}-{}", "k".repeat(200 + number % 100));
        let item =
            |number: usize| Item { sender: format!("s{}", senders[number % senders.len()]), key: long(number / 2) };
        (0..rounds(10_000, 100_000)).map(item).collect()
    };
    let count = items().len();
    let started = Instant::now();
    let batch = many(&world.pool, items()).await.unwrap();
    let took = started.elapsed();
    assert_eq!((batch.count(Processed), batch.output), (count, Some(count)));
    assert_eq!(world.claims().await, i64::try_from(count).unwrap());
    let started = Instant::now();
    let batch = many(&world.pool, items()).await.unwrap();
    assert_eq!((batch.count(Duplicate), batch.output), (count, None));
    println!("{count} items in {took:?}, and as duplicates in {:?}", started.elapsed());
}

#[derive(Clone)]
struct Change {
    id: u32,
    entity: &'static str,
    version: i64,
}

#[idempotent(
    key = "{change.id}",
    sender = "{sender}",
    each = "change in changes",
    sequence(entity = "{change.entity}", number = "change.version"),
    consumer = "pressed.changes"
)]
async fn apply(#[tx] tx: &mut Tx<'_>, sender: &str, changes: Vec<Change>) -> Result<Vec<u32>, Error> {
    effect(tx, "changes").await?;
    Ok(changes.iter().map(|change| change.id).collect())
}

#[tokio::test]
async fn entities_of_any_bytes_have_an_order_each_within_and_between_batches() {
    let world = World::new().await;
    let entities = ["a", "A", "a ", "ä", "'", "\"", "\\", "\u{0}", "],["];
    let change = |id, entity, version| Change { id, entity, version };
    for sender in ["one", "o'ne", "\u{0}\""] {
        let first: Vec<Change> =
            (0..).zip(entities).map(|(id, entity)| change(id, entity, i64::from(id) - 4)).collect();
        // Each again, each once more under another id, and each one newer.
        let again = first.iter().cloned();
        let equal = first.iter().map(|item| change(item.id + 100, item.entity, item.version));
        let newer = first.iter().map(|item| change(item.id + 200, item.entity, item.version + 1));
        let all: Vec<Change> = first.iter().cloned().chain(again).chain(equal).chain(newer).collect();
        let batch = apply(&world.pool, sender, all.clone()).await.unwrap();
        let expected = [Processed, Duplicate, Stale, Processed].map(|outcome| [outcome; 9]).concat();
        assert_eq!(batch.outcomes, expected);
        assert_eq!(batch.output.map(|ids| ids.len()), Some(18));
        // Now what was stale is so for good, and has no claim; the rest has one.
        let batch = apply(&world.pool, sender, all).await.unwrap();
        let expected = [Duplicate, Duplicate, Stale, Duplicate].map(|outcome| [outcome; 9]).concat();
        assert_eq!((batch.outcomes, batch.output), (expected, None));
    }
    assert_eq!(world.claims().await, 3 * 18);
}

#[idempotent(key = "{id}", isolation = "read committed", consumer = "pressed.isolated")]
async fn isolated(#[tx] tx: &mut Tx<'_>, id: &str, first: First, panicked: &AtomicUsize) -> Result<(), Error> {
    effect(tx, id).await?;
    first_run(tx, first, panicked).await
}

/// However the handler ended: the connection that the caller keeps, and the one in the pool, have the level they had.
#[tokio::test]
async fn a_connection_keeps_its_isolation_however_the_handler_ends() {
    let world = World::with_connections(1).await;
    for level in crate::ISOLATION_LEVELS {
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut connection = pool.acquire().await.unwrap();
        let own = crate::isolation(&mut connection).await;
        for first in [First::Works, First::Conflicts, First::Panics] {
            let id = format!("{level}-{}", first as u8);
            let runs = AtomicUsize::new(0);
            let handled = unless_it_panics(isolated(&mut connection, &id, first, &runs)).await;
            assert_eq!(matches!(handled, Some(Ok(_))), first == First::Works);
            if first == First::Panics {
                break; // the connection may be closed
            }
            assert_eq!(crate::isolation(&mut connection).await, own, "{level}");
            let runs = AtomicUsize::new(0);
            let _ = isolated(&pool, &format!("{id}-pool"), first, &runs).await;
            assert_eq!(crate::isolation(&mut pool.acquire().await.unwrap()).await, own, "{level}");
        }
        let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
        let refused = isolated(&mut *tx, "joined", First::Works, &AtomicUsize::new(0)).await.unwrap_err();
        assert!(matches!(refused, Error::Configuration(_)), "{refused:?}");
    }
}

/// Each store has a cache of its own, whatever its table.
#[tokio::test]
async fn two_stores_remember_each_its_own() {
    let world = World::with_connections(2).await;
    let builder = |table: &'static str| ClaimStore::builder(world.pool.clone()).table(table).seen_cache(100);
    let (one, same) = (builder("processed_messages").build().unwrap(), builder("processed_messages").build().unwrap());
    let other = builder("other_claims").build().unwrap();
    other.migrate().await.unwrap();
    assert!(record(&one, "1").await.unwrap().is_processed());
    assert!(record(&other, "1").await.unwrap().is_processed(), "another table is another store of claims");
    assert!(record(&same, "1").await.unwrap().is_duplicate());
    // Forgotten by one and its clones; the other one of the same table is right within its time to live.
    assert!(one.clone().forget("tests.record", "", "1").await.unwrap());
    assert!(record(&same, "1").await.unwrap().is_duplicate());
    assert!(record(&other, "1").await.unwrap().is_duplicate());
    assert!(record(&one, "1").await.unwrap().is_processed());
    assert_eq!(world.effects().await, 3);
    // A transaction joins with the table of the store that it is given, and fills no cache.
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    assert!(record(other.join(&mut tx), "2").await.unwrap().is_processed());
    drop(tx);
    assert!(record(&other, "2").await.unwrap().is_processed());
}

#[tokio::test]
async fn a_batch_in_the_callers_transaction_is_not_run_again() {
    let world = World::with_connections(1).await;
    let runs = AtomicUsize::new(0);
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    effect(&mut tx, "callers").await.unwrap();
    assert!(outer(&mut *tx, ids(2), false, First::Conflicts, &runs).await.is_err());
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let batch = outer(&mut *tx, ids(2), false, First::Works, &runs).await.unwrap();
    assert_eq!(batch.outcomes, [Processed, Processed]);
    idempotent_runtime::commit(tx).await.unwrap();
    assert_eq!((world.effects().await, world.claims().await), (5, 4));
}
