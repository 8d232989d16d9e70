//! The janitor: nothing before its first interval, one active instance, an orderly end (C9, C10).

use std::process::Command;
use std::time::{Duration, Instant};

use idempotent_runtime::{ClaimStore, Error, Janitor, JanitorHandle, PurgeOptions};
use sqlx::Executor as _;

use crate::Db;
use crate::harness::{World, connect, connect_with};

const HOUR: i64 = 3_600_000;

fn janitor(world: &World) -> Janitor<Db> {
    Janitor::new(ClaimStore::new(world.pool.clone()))
}

impl World {
    /// Waits until a number is what it should be.
    async fn wait_for(&self, sql: &str, wanted: i64, most: Duration) {
        let start = Instant::now();
        loop {
            let found = self.number(sql).await;
            if found == wanted {
                return;
            }
            assert!(start.elapsed() < most, "{sql}: {found} instead of {wanted} after {most:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

const CLAIMS: &str = "SELECT count(*) FROM processed_messages";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_purged_before_the_first_interval_and_the_old_is_after_it() {
    let world = World::new().await;
    world.add_claims("old", 10, -2 * HOUR).await;
    world.add_claims("live", 10, HOUR).await;
    let interval = Duration::from_secs(2);
    let start = Instant::now();
    let janitor = janitor(&world).every(interval).spawn();
    while start.elapsed() < interval {
        let left = world.number(CLAIMS).await;
        // Read before the interval was over, so counted before it.
        assert!(left == 20 || start.elapsed() >= interval, "after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.wait_for(CLAIMS, 10, Duration::from_secs(10)).await;
    world.add_claims("more", 10, -2 * HOUR).await;
    world.wait_for(CLAIMS, 10, Duration::from_secs(10)).await;
    janitor.shutdown().await;
    assert_eq!(world.number(CLAIMS).await, 10, "the live ones");
}

#[tokio::test]
async fn impossible_settings_are_refused_when_it_is_spawned() {
    let world = World::not_migrated(1).await;
    for interval in [Duration::ZERO, Duration::MAX, Duration::from_hours(36_501 * 24)] {
        let refused = janitor(&world).every(interval).try_spawn();
        assert!(matches!(refused, Err(Error::Configuration(_))), "{interval:?}");
    }
    let refused = janitor(&world).options(PurgeOptions::new().batch_size(0)).try_spawn();
    assert!(matches!(refused, Err(Error::Configuration(_))));
    janitor(&world).every(Duration::from_hours(36_500 * 24)).spawn().shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_of_zero_counts_as_a_second_where_nothing_is_refused() {
    let world = World::new().await;
    world.add_claims("old", 10, -2 * HOUR).await;
    let working = janitor(&world).every(Duration::ZERO).spawn();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.number(CLAIMS).await, 10, "not before the first interval");
    world.wait_for(CLAIMS, 0, Duration::from_secs(10)).await;
    working.shutdown().await;
    janitor(&world).every(Duration::MAX).spawn().shutdown().await;
}

/// A lease for a pause that is never made would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_pause_is_possible_and_keeps_nobody_out() {
    let world = World::new().await;
    for pause in [Duration::MAX, Duration::new(u64::MAX, 0)] {
        world.add_claims("old", 20, -2 * HOUR).await;
        let options = PurgeOptions::new().batch_size(10).pause(pause).max_run_time(Duration::MAX);
        let working = janitor(&world).every(Duration::from_millis(50)).options(options).spawn();
        world.wait_for(CLAIMS, 10, Duration::from_secs(5)).await;
        working.shutdown().await;
        world.run("DELETE FROM processed_messages").await;
    }
    world.add_claims("old", 20, -2 * HOUR).await;
    let options = PurgeOptions::new().batch_size(10).pause(Duration::MAX);
    let working = janitor(&world).every(Duration::from_millis(50)).options(options).spawn();
    world.wait_for(CLAIMS, 0, Duration::from_secs(5)).await;
    working.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_off_switch_starts_nothing() {
    let world = World::new().await;
    world.add_claims("old", 10, -2 * HOUR).await;
    let off = janitor(&world).every(Duration::from_millis(50)).enabled(false).spawn();
    tokio::time::sleep(Duration::from_millis(500)).await;
    off.shutdown().await;
    assert_eq!(world.claims().await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_lets_the_running_batch_end_and_starts_no_other() {
    let world = World::new().await;
    world.add_claims("old", 200, -2 * HOUR).await;
    world.run(crate::SLOW_DELETIONS).await;
    let options = PurgeOptions::new().batch_size(20).pause(Duration::from_millis(1));
    let working = janitor(&world).every(Duration::from_millis(50)).options(options).spawn();
    while world.number(CLAIMS).await == 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    working.shutdown().await; // in the middle of a batch
    let left = world.number(CLAIMS).await;
    assert!(left > 0 && left % 20 == 0, "{left} left: whole batches, and not all of them");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.number(CLAIMS).await, left, "nothing happens after the end");
    // The lease has ended with it, so the next one need not wait.
    let next = janitor(&world).every(Duration::from_millis(50)).spawn();
    world.wait_for(CLAIMS, 0, Duration::from_secs(10)).await;
    next.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_does_not_wait_for_an_interval_or_a_pause() {
    let world = World::new().await;
    world.add_claims("old", 100, -2 * HOUR).await;
    let start = Instant::now();
    janitor(&world).spawn().shutdown().await;
    let options = PurgeOptions::new().batch_size(10).pause(Duration::from_mins(1));
    let pausing = janitor(&world).every(Duration::from_millis(50)).options(options).spawn();
    world.wait_for(CLAIMS, 90, Duration::from_secs(5)).await;
    tokio::time::timeout(Duration::from_secs(10), pausing.shutdown()).await.expect("it does not wait for the pause");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(world.number(CLAIMS).await, 90);
}

/// Each instance's sessions have a name, and a trigger notes which of them has deleted a claim.
async fn named_instance(world: &World, name: &str, interval: u64, pause: u64) -> JanitorHandle {
    let pool = connect_with(&world.fresh, 2, crate::name_session(name)).await;
    let options = PurgeOptions::new().batch_size(10).pause(Duration::from_millis(pause));
    let janitor = Janitor::new(ClaimStore::new(pool)).every(Duration::from_millis(interval)).options(options);
    janitor.spawn()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_instance_at_a_time_is_active() {
    let world = World::new().await;
    world.run(crate::NAME_DELETIONS).await;
    for round in 0..3 {
        world.add_claims("old", 200, -2 * HOUR).await;
        let mut instances = Vec::new();
        for instance in 0..4 {
            // Jitter alone would not keep them apart: a purge takes longer than an interval.
            instances.push(named_instance(&world, &format!("round {round} instance {instance}"), 300, 60).await);
        }
        world.wait_for(CLAIMS, 0, Duration::from_secs(30)).await;
        for instance in instances {
            instance.shutdown().await;
        }
        let names = format!("SELECT count(DISTINCT name) FROM deletions WHERE name LIKE 'round {round} %'");
        assert_eq!(world.number(&names).await, 1, "round {round}");
    }
    assert_eq!(world.number("SELECT count(*) FROM deletions").await, 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_takes_longer_than_the_lease_keeps_it() {
    let world = World::new().await;
    world.run(crate::NAME_DELETIONS).await;
    world.add_claims("old", 400, -2 * HOUR).await;
    let first = named_instance(&world, "first", 50, 500).await;
    while world.number(CLAIMS).await == 400 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let second = named_instance(&world, "second", 200, 500).await;
    world.wait_for(CLAIMS, 0, Duration::from_mins(1)).await;
    assert_eq!(world.number("SELECT count(*) FROM deletions WHERE name = 'first'").await, 400);
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_instance_that_is_killed_does_not_keep_the_others_from_purging() {
    let world = World::new().await;
    world.add_claims("old", 2_000, -2 * HOUR).await;
    let url = crate::url(&world.fresh);
    let mut killed = Command::new(env!("CARGO_BIN_EXE_worker")).args([&url, "janitor", "10"]).spawn().unwrap();
    while world.number(CLAIMS).await == 2_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let survivor = janitor(&world).every(Duration::from_millis(200)).spawn();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = world.number(CLAIMS).await;
    assert!(left > 0, "it was killed in the middle of its purge");
    world.wait_for(CLAIMS, 0, Duration::from_secs(30)).await;
    survivor.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_tried_again_after_the_next_interval() {
    let world = World::not_migrated(2).await;
    let working = janitor(&world).every(Duration::from_millis(100)).spawn();
    tokio::time::sleep(Duration::from_millis(500)).await;
    idempotent_runtime::migrate(&world.pool).await.unwrap();
    world.add_claims("old", 10, -2 * HOUR).await;
    world.wait_for(CLAIMS, 0, Duration::from_secs(10)).await;
    working.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_janitor_whose_handle_is_dropped_works_until_its_pool_is_closed() {
    let world = World::new().await;
    let pool = connect(&world.fresh, 1).await;
    drop(Janitor::new(ClaimStore::new(pool.clone())).every(Duration::from_millis(100)).spawn());
    for _ in 0..2 {
        world.add_claims("old", 10, -2 * HOUR).await;
        world.wait_for(CLAIMS, 0, Duration::from_secs(10)).await;
    }
    // With one connection it takes nothing away from the consumers between its batches.
    pool.execute("INSERT INTO effects (id) VALUES ('1')").await.unwrap();
    let handle = Janitor::new(ClaimStore::new(pool.clone())).every(Duration::from_millis(100)).spawn();
    pool.close().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    tokio::time::timeout(Duration::from_secs(5), handle.shutdown()).await.expect("it has ended");
    world.add_claims("old", 10, -2 * HOUR).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.claims().await, 10);
}
