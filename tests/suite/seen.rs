//! The seen cache: a storm of duplicates costs the database nothing, and nothing is in it too early.

use std::pin::pin;
use std::time::Duration;

use idempotent_runtime::{ClaimStore, Error, Outcome, idempotent};

use crate::Tx;
use crate::handlers::{Message, Step, effect, record, record_by_sender, scripted};
use crate::harness::{World, drop_after, rounds};

#[idempotent(key = "{id}", replay, consumer = "seen.replay")]
async fn answer(#[tx] tx: &mut Tx<'_>, id: &str) -> Result<u8, Error> {
    effect(tx, id).await?;
    Ok(7)
}

#[idempotent(key = "{id}", fingerprint = "{content}", consumer = "seen.fingerprint")]
async fn compare(#[tx] tx: &mut Tx<'_>, id: &str, content: &str) -> Result<(), Error> {
    Ok(effect(tx, id).await?)
}

fn cached(world: &World) -> ClaimStore<crate::Db> {
    ClaimStore::builder(world.pool.clone()).seen_cache(1000).build().unwrap()
}

/// With every connection taken, what is answered was answered without the database.
#[tokio::test]
async fn a_storm_of_one_duplicate_never_reaches_the_database() {
    let world = World::with_connections(1).await;
    let store = cached(&world);
    assert!(record(&store, "1").await.unwrap().is_processed());
    let connection = world.pool.acquire().await.unwrap();
    let duplicates = rounds(1_000, 10_000);
    for _ in 0..duplicates {
        let outcome = record(&store, "1").await.unwrap();
        let Outcome::Duplicate(duplicate) = outcome else { panic!("{outcome:?}") };
        assert_eq!((duplicate.consumer(), duplicate.key()), ("tests.record", "1"));
    }
    println!("{duplicates} duplicates with no connection left");
    drop(connection);
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn what_another_process_has_committed_is_remembered_once_it_was_seen() {
    let world = World::with_connections(1).await;
    let store = cached(&world);
    assert!(record(&world.pool, "1").await.unwrap().is_processed()); // without the cache
    assert!(record(&store, "1").await.unwrap().is_duplicate());
    let connection = world.pool.acquire().await.unwrap();
    assert!(record(&store, "1").await.unwrap().is_duplicate());
    drop(connection);
}

#[tokio::test]
async fn nothing_is_remembered_before_its_commit() {
    let world = World::new().await;
    let store = cached(&world);
    assert!(scripted(&store, "1", &[Step::Effect, Step::Fail]).await.is_err());
    assert!(scripted(&store, "1", &[Step::Effect]).await.unwrap().is_processed());
    let lost = scripted(&store, "2", &[Step::Effect, Step::Try("ROLLBACK")]).await;
    assert!(matches!(lost, Err(Error::TransactionLost(_))), "{lost:?}");
    assert!(scripted(&store, "2", &[Step::Effect]).await.unwrap().is_processed());
    assert_eq!(world.effects_of("1").await + world.effects_of("2").await, 2);
}

#[tokio::test]
async fn a_transaction_that_is_joined_neither_fills_it_nor_asks_it() {
    let world = World::new().await;
    let store = cached(&world);
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    assert!(record(store.join(&mut tx), "1").await.unwrap().is_processed());
    assert!(record(store.join(&mut tx), "1").await.unwrap().is_duplicate());
    drop(tx); // rolled back
    assert!(record(&store, "1").await.unwrap().is_processed());
    store.forget("tests.record", "", "1").await.unwrap();
    assert!(record(&store, "1").await.unwrap().is_processed());
    // What the cache says of it is not what this transaction is to go by.
    world.run("DELETE FROM processed_messages").await;
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    assert!(record(store.join(&mut tx), "1").await.unwrap().is_processed());
}

#[tokio::test]
async fn identities_are_whole_and_answers_and_contents_are_asked_for_each_time() {
    let world = World::new().await;
    let store = cached(&world);
    for sender in ["a", "b"] {
        assert!(record_by_sender(&store, &Message { sender, id: "1" }).await.unwrap().is_processed());
        assert!(record_by_sender(&store, &Message { sender, id: "1" }).await.unwrap().is_duplicate());
    }
    assert!(record(&store, "1").await.unwrap().is_processed());
    assert!(answer(&store, "1").await.unwrap().is_processed());
    assert_eq!(answer(&store, "1").await.unwrap(), Outcome::Replayed(7));
    assert!(compare(&store, "1", "x").await.unwrap().is_processed());
    assert!(matches!(compare(&store, "1", "y").await, Err(Error::FingerprintMismatch(_))));
}

#[tokio::test]
async fn another_process_that_forgets_is_heard_within_the_time_to_live() {
    let world = World::new().await;
    let builder = ClaimStore::builder(world.pool.clone()).seen_cache(10);
    let store = builder.seen_cache_ttl(Duration::from_millis(300)).build().unwrap();
    assert!(record(&store, "1").await.unwrap().is_processed());
    let other_process = ClaimStore::new(world.pool.clone());
    assert!(other_process.forget("tests.record", "", "1").await.unwrap());
    assert!(record(&store, "1").await.unwrap().is_duplicate(), "until the time is over");
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert!(record(&store, "1").await.unwrap().is_processed());
    let clone = store.clone();
    assert!(clone.forget("tests.record", "", "1").await.unwrap());
    assert!(record(&store, "1").await.unwrap().is_processed(), "a clone is the same store");
}

/// What `forget` says is so, at whatever point of its way a delivery stands meanwhile, the moment among them at which its
/// COMMIT has come through and its reply has not.
#[tokio::test]
async fn what_is_forgotten_while_a_handler_runs_is_remembered_by_nobody() {
    let world = World::new().await;
    let (mut forgotten, mut polls) = (0, 0);
    // A poll may take several steps at once, so that the moment is not met every time.
    for number in 0..300 {
        polls += 1;
        let store = cached(&world);
        let id = format!("running-{number}");
        let mut running = pin!(record(&store, &id));
        if drop_after(polls, running.as_mut()).await.is_some() {
            if forgotten > 0 {
                return;
            }
            polls = 0;
            continue;
        }
        // The database does what it was asked, and nobody looks at its reply.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let forgetting = store.forget("tests.record", "", &id);
        let forget = tokio::time::timeout(Duration::from_millis(150), forgetting).await.ok();
        assert!(running.await.unwrap().is_processed(), "after {polls} polls");
        let Some(forget) = forget else { continue }; // it waits for the handler, and may delete its claim yet
        let forget = forget.unwrap();
        forgotten += u32::from(forget);
        assert_eq!(record(&store, &id).await.unwrap().is_processed(), forget, "after {polls} polls");
    }
    panic!("nothing was forgotten between a commit and its reply");
}

#[tokio::test]
async fn a_cache_that_forgets_at_once_or_never_is_refused() {
    let world = World::with_connections(1).await;
    for time_to_live in [Duration::ZERO, Duration::from_secs(3601), Duration::MAX] {
        let builder = ClaimStore::builder(world.pool.clone()).seen_cache(10).seen_cache_ttl(time_to_live);
        assert!(matches!(builder.build(), Err(Error::Configuration(_))), "{time_to_live:?}");
    }
}
