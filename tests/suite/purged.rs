//! A claim is deleted after its expiry plus the margin and not before, in bounded batches, by any number of purges at
//! once beside running consumers (G10, G9, C10).

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use idempotent_runtime::{ClaimStore, Error, PurgeEnd, PurgeOptions, commit};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::Db;
use crate::handlers;
use crate::harness::{World, connect, connect_with, drop_after};

const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;

fn store(world: &World) -> ClaimStore<Db> {
    ClaimStore::new(world.pool.clone())
}

/// Small batches one after another, to meet others more often.
fn hasty(size: u32) -> PurgeOptions {
    PurgeOptions::new().batch_size(size).pause(Duration::ZERO)
}

impl World {
    async fn claims_like(&self, pattern: &str) -> i64 {
        let key = if self.fresh.kind() == servers::Kind::Mariadb { "`key`" } else { "key" };
        self.number(&format!("SELECT count(*) FROM processed_messages WHERE {key} LIKE '{pattern}'")).await
    }
}

#[tokio::test]
async fn a_claim_that_is_not_yet_past_its_expiry_plus_margin_survives() {
    let world = World::new().await;
    world.add_claims("old", 30, -HOUR - MINUTE).await;
    world.add_claims("within-the-margin", 30, -HOUR + MINUTE).await;
    world.add_claims("live", 30, HOUR).await;
    let purged = store(&world).purge(PurgeOptions::default()).await.unwrap();
    assert_eq!((purged.deleted, purged.batches, purged.end), (30, 1, PurgeEnd::Finished));
    assert_eq!((world.claims_like("old%").await, world.claims().await), (0, 60));
    let age = SystemTime::now().duration_since(purged.oldest.unwrap()).unwrap();
    assert!((58..62).contains(&(age.as_secs() / 60)), "the oldest that is left has expired {age:?} ago");

    let purged = store(&world).purge(PurgeOptions::new().margin(Duration::from_secs(59 * 60 + 30))).await.unwrap();
    assert_eq!(purged.deleted, 0);
    let purged = store(&world).purge(PurgeOptions::new().margin(Duration::from_mins(58))).await.unwrap();
    assert_eq!((purged.deleted, world.claims_like("live%").await), (30, 30));
    let left = purged.oldest.unwrap().duration_since(SystemTime::now()).unwrap();
    assert!((58..61).contains(&(left.as_secs() / 60)), "the oldest that is left expires in {left:?}");
    world.run("DELETE FROM processed_messages").await;
    let purged = store(&world).purge(PurgeOptions::new()).await.unwrap();
    assert_eq!((purged.deleted, purged.oldest), (0, None));
}

#[tokio::test]
async fn a_purged_message_runs_again_and_one_within_the_margin_is_a_duplicate() {
    let world = World::new().await;
    world.add_claims("old", 1, -2 * HOUR).await;
    world.add_claims("within-the-margin", 1, -MINUTE).await;
    assert!(handlers::record(&world.pool, "old-1").await.unwrap().is_duplicate(), "it counts until it is deleted");
    assert_eq!(store(&world).purge(PurgeOptions::new()).await.unwrap().deleted, 1);
    assert!(handlers::record(&world.pool, "old-1").await.unwrap().is_processed());
    assert!(handlers::record(&world.pool, "within-the-margin-1").await.unwrap().is_duplicate());
}

#[tokio::test]
async fn the_sessions_time_zone_decides_nothing() {
    let world = World::new().await;
    for hours in crate::TIME_ZONES {
        let pool = connect_with(&world.fresh, 1, crate::time_zone(hours)).await;
        world.run("DELETE FROM processed_messages").await;
        world.add_claims("old", 3, -HOUR - MINUTE).await;
        world.add_claims("within-the-margin", 3, -HOUR + MINUTE).await;
        world.add_claims("live", 3, MINUTE).await;
        let purged = ClaimStore::new(pool).purge(PurgeOptions::new()).await.unwrap();
        assert_eq!((purged.deleted, world.claims_like("old%").await), (3, 0), "{hours} hours east");
        let age = SystemTime::now().duration_since(purged.oldest.unwrap()).unwrap();
        assert!((58..62).contains(&(age.as_secs() / 60)), "{hours} hours east: {age:?}");
    }
}

#[tokio::test]
async fn a_batch_is_never_larger_than_asked_for() {
    let world = World::new().await;
    for (size, batches) in [(1, 21), (7, 3), (19, 2), (20, 2), (21, 1), (10_000, 1)] {
        world.add_claims("old", 20, -2 * HOUR).await;
        let purged = store(&world).purge(hasty(size)).await.unwrap();
        assert_eq!(purged.deleted, 20, "batches of {size}");
        // A batch that is full does not know whether there is more.
        assert!(purged.batches <= batches && purged.batches * u64::from(size) >= 20, "{size}: {purged:?}");
    }
}

#[tokio::test]
async fn claims_of_one_moment_are_all_purged() {
    let world = World::new().await;
    world.add_claims("old", 100, -2 * HOUR).await;
    world.run(&format!("UPDATE processed_messages SET expires_at = {}", crate::from_now(-2 * HOUR))).await;
    let purged = store(&world).purge(hasty(9)).await.unwrap();
    assert_eq!((purged.deleted, world.claims().await), (100, 0));
}

#[tokio::test]
async fn a_purge_ends_when_its_time_is_over() {
    let world = World::new().await;
    world.add_claims("old", 1_000, -2 * HOUR).await;
    let limited = |time| hasty(10).pause(Duration::from_millis(50)).max_run_time(time);
    let start = Instant::now();
    let purged = store(&world).purge(limited(Duration::from_millis(500))).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(purged.end, PurgeEnd::OutOfTime);
    assert!(purged.deleted >= 10 && purged.deleted < 1_000, "{purged:?}");
    assert_eq!(world.claims().await, 1_000 - i64::try_from(purged.deleted).unwrap());
    // A pause that is longer than all the time is not begun.
    let purged = store(&world).purge(hasty(10).pause(Duration::MAX)).await.unwrap();
    assert_eq!((purged.deleted, purged.end), (10, PurgeEnd::OutOfTime));
}

#[tokio::test]
async fn impossible_options_are_refused_before_any_sql() {
    let world = World::not_migrated(1).await;
    for bad in [
        PurgeOptions::new().batch_size(0),
        PurgeOptions::new().batch_size(u32::MAX),
        PurgeOptions::new().margin(Duration::MAX),
        PurgeOptions::new().max_run_time(Duration::ZERO),
    ] {
        assert!(matches!(store(&world).purge(bad).await, Err(Error::Configuration(_))));
    }
    let error = store(&world).purge(PurgeOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
}

/// The longest margin that is possible: its cutoff is in the last century, and not beyond the range of dates.
#[tokio::test]
async fn the_longest_margin_deletes_nothing() {
    let world = World::new().await;
    world.add_claims("old", 3, -1_000 * 24 * HOUR).await;
    let longest = PurgeOptions::new().margin(Duration::from_hours(36_500 * 24));
    assert_eq!(store(&world).purge(longest).await.unwrap().deleted, 0);
    assert_eq!(store(&world).purge(PurgeOptions::new()).await.unwrap().deleted, 3);
}

#[tokio::test]
async fn what_another_transaction_has_locked_is_passed_over_and_not_waited_for() {
    let Some(lock) = crate::LOCK_A_ROW else { return };
    let world = World::new().await;
    world.add_claims("old", 50, -2 * HOUR).await;
    let key = if world.fresh.kind() == servers::Kind::Mariadb { "`key`" } else { "key" };
    world.run(&format!("UPDATE processed_messages SET {key} = 'locked' WHERE {key} = 'old-7'")).await;
    let mut tx = world.observer.begin().await.unwrap();
    tx.execute(lock).await.unwrap();
    let purge = tokio::time::timeout(Duration::from_secs(5), async { store(&world).purge(hasty(10)).await });
    let purged = purge.await.expect("it does not wait").unwrap();
    assert_eq!((purged.deleted, purged.end), (49, PurgeEnd::Finished));
    tx.rollback().await.unwrap();
    assert_eq!(world.claims_like("locked").await, 1);
    assert_eq!(store(&world).purge(hasty(10)).await.unwrap().deleted, 1);
}

/// Seven in eight of the messages that the consumers deliver meanwhile are redeliveries.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_purges_at_once_beside_consumers_delete_each_old_claim_once_and_no_live_one() {
    const OLD: u32 = 2_000;
    const LIVE: u32 = 300;
    let world = World::with_connections(8).await;
    world.add_claims("old", OLD, -2 * HOUR).await;
    world.add_claims("live", LIVE, 2_000).await;
    world.add_claims("within-the-margin", LIVE, -HOUR + MINUTE).await;
    let mut consumers = JoinSet::new();
    for consumer in 0..4 {
        let pool = world.pool.clone();
        consumers.spawn(async move {
            for round in 0..LIVE / 4 {
                let number = 1 + round * 4 + consumer;
                assert!(handlers::record(&pool, &format!("new-{number}")).await.unwrap().is_processed());
                for id in ["new", "live", "within-the-margin", "new"] {
                    let outcome = handlers::record(&pool, &format!("{id}-{number}")).await.unwrap();
                    assert!(outcome.is_duplicate(), "{id}-{number}");
                }
                // It may be in the middle of being purged: a duplicate, or a message that runs again.
                handlers::record(&pool, &format!("old-{}", OLD - number)).await.unwrap();
            }
        });
    }
    let mut purgers = JoinSet::new();
    for purger in 0..8 {
        let pool = connect(&world.fresh, 1).await;
        purgers.spawn(async move { ClaimStore::new(pool).purge(hasty(3 + purger)).await });
    }
    let mut deleted = 0;
    for purged in purgers.join_all().await {
        let purged = purged.expect("no conflict surfaces");
        assert_eq!(purged.end, PurgeEnd::Finished);
        deleted += purged.deleted;
    }
    consumers.join_all().await;
    let rest = store(&world).purge(PurgeOptions::new()).await.unwrap();
    assert_eq!(deleted + rest.deleted, u64::from(OLD), "each is counted by the one that has deleted it");
    for kind in ["new", "live", "within-the-margin"] {
        assert_eq!(world.claims_like(&format!("{kind}-%")).await, i64::from(LIVE), "{kind}");
    }
    assert_eq!(world.number("SELECT count(*) FROM effects WHERE id LIKE 'new-%'").await, i64::from(LIVE));
    let ran_again = world.number("SELECT count(*) FROM effects WHERE id LIKE 'old-%'").await;
    assert_eq!(world.claims_like("old-%").await, ran_again, "of the old ones those that ran again are left");
}

/// The small one of the two that the bench `purge` runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_purge_twenty_thousand_claims_beside_a_consumer() {
    let world = World::new().await;
    world.add_claims("old", 20_000, -2 * HOUR).await;
    world.add_claims("live", 1_000, HOUR).await;
    let url = crate::url(&world.fresh);
    let purge = |size: &str| {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
        worker.args([url.as_str(), "purge", size]).stdout(Stdio::piped()).spawn().expect("a worker")
    };
    let workers = [purge("200"), purge("333")];
    for number in 1..=200 {
        assert!(handlers::record(&world.pool, &format!("new-{number}")).await.unwrap().is_processed());
        assert!(handlers::record(&world.pool, &format!("live-{number}")).await.unwrap().is_duplicate());
    }
    let mut deleted = Vec::new();
    for worker in workers {
        let output =
            tokio::task::spawn_blocking(|| worker.wait_with_output()).await.unwrap().expect("a worker's output");
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = output.trim().strip_prefix("deleted ").expect("a worker's count");
        deleted.push(count.parse::<u64>().unwrap());
    }
    assert_eq!(deleted.iter().sum::<u64>(), 20_000, "{deleted:?}");
    assert_eq!((world.claims().await, world.claims_like("live%").await), (1_200, 1_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purges_at_once_under_every_isolation_level_of_their_sessions() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        world.add_claims("old", 300, -2 * HOUR).await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut purgers = JoinSet::new();
        for purger in 0..4 {
            let store = ClaimStore::new(pool.clone());
            purgers.spawn(async move { store.purge(hasty(5 + purger)).await });
        }
        let counts = purgers.join_all().await.into_iter().map(|purged| purged.expect("no conflict surfaces").deleted);
        let deleted: u64 = counts.sum();
        assert_eq!((deleted, world.claims().await), (300, 0), "{level}");
    }
}

/// With one connection, which the next user needs in good order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_purge_leaves_nothing_open_in_the_pool() {
    let world = World::with_connections(1).await;
    let mut finished = 0;
    for polls in 1..=100 {
        world.add_claims(&format!("old-{polls}"), 5, -2 * HOUR).await;
        let purge = store(&world);
        finished += usize::from(drop_after(polls, purge.purge(hasty(2))).await.is_some());
        let statement = format!("statement-{polls}");
        let insert = format!("INSERT INTO effects (id) VALUES ('{statement}')");
        world.pool.execute(AssertSqlSafe(insert)).await.expect("no error");
        assert_eq!(world.effects_of(&statement).await, 1, "after {polls} polls: a statement of its own commits");
        let mut tx = world.pool.begin().await.expect("no error");
        let transaction = format!("transaction-{polls}");
        handlers::effect(&mut tx, &transaction).await.expect("no error");
        assert_eq!(world.effects_of(&transaction).await, 0, "after {polls} polls: not before the commit");
        commit(tx).await.expect("no error");
        assert_eq!(world.effects_of(&transaction).await, 1, "after {polls} polls");
        assert!(handlers::record(&world.pool, &format!("next-{polls}")).await.unwrap().is_processed());
    }
    assert!(finished > 0, "100 polls are enough to finish, or this test has not seen the end");
    store(&world).purge(PurgeOptions::new()).await.unwrap();
    assert_eq!(world.claims().await, 100);
}

#[tokio::test]
async fn a_purge_that_fails_leaves_nothing_open_in_the_pool() {
    let world = World::with_connections(1).await;
    world.add_claims("old", 5, -2 * HOUR).await;
    world.run(crate::FAILING_DELETIONS).await;
    for round in 0..3 {
        let error = store(&world).purge(hasty(2)).await.unwrap_err();
        assert!(matches!(error, Error::Database(_)), "{error:?}");
        let statement = format!("statement-{round}");
        world.pool.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES ('{statement}')"))).await.unwrap();
        assert_eq!(world.effects_of(&statement).await, 1, "a statement of its own commits");
        assert!(handlers::record(&world.pool, &statement).await.unwrap().is_processed());
    }
    assert_eq!(world.claims_like("old%").await, 5);
}

/// Of any retention, also one that ends before that of every claim that is there. On SQLite nobody else can write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_claim_does_not_wait_for_a_batch_that_is_running() {
    let world = World::new().await;
    if world.fresh.kind() == servers::Kind::Sqlite {
        return;
    }
    world.add_claims("old", 200, -2 * HOUR).await;
    world.add_claims("live", 100, HOUR).await;
    world.run(crate::SLOW_DELETIONS).await;
    let purging = store(&world);
    let purge = tokio::spawn(async move { purging.purge(hasty(1_000)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    for number in 0..10 {
        let id = format!("new-{number}");
        assert!(handlers::record_for_three_seconds(&world.pool, &id).await.unwrap().is_processed());
        assert!(handlers::record(&world.pool, &id).await.unwrap().is_processed());
        assert!(handlers::record(&world.pool, "live-7").await.unwrap().is_duplicate());
    }
    assert!(!purge.is_finished(), "it takes four seconds, and the claims have taken {:?}", start.elapsed());
    assert_eq!(world.claims_like("old%").await, 200, "it has not committed");
    assert_eq!(purge.await.unwrap().unwrap().deleted, 200);
}

#[tokio::test]
async fn a_store_with_a_table_of_another_name_purges_that_one() {
    let world = World::new().await;
    world.add_claims("old", 3, -2 * HOUR).await;
    let other = ClaimStore::builder(world.pool.clone()).table("order").build().unwrap();
    other.migrate().await.unwrap();
    let table = if world.fresh.kind() == servers::Kind::Mariadb { "`order`" } else { "\"order\"" };
    world.run(&format!("INSERT INTO {table} SELECT * FROM processed_messages")).await;
    let purged = other.purge(PurgeOptions::new()).await.unwrap();
    assert_eq!((purged.deleted, purged.oldest), (3, None));
    assert_eq!(world.claims().await, 3, "not this one");
}
