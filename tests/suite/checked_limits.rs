//! The testing kit and tests that cannot end, or prove nothing: each says so, and why.

use std::time::Duration;

use idempotent_runtime::testing::{Aged, Kit};
use idempotent_runtime::{ClaimStore, Outcome, idempotent};
use sqlx::{Executor as _, Pool};

use crate::checked::{fails, insert};
use crate::harness::World;
use crate::{Db, Tx};

fn id(n: u64) -> String {
    format!("evt-{n}")
}

#[idempotent(key = "{id}", consumer = "checked_limits.right")]
async fn right(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_limits.endless")]
async fn endless(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await?;
    std::future::pending().await
}

/// Inserts the same key on both connections.
#[idempotent(key = "{id}", consumer = "checked_limits.waits_for_itself")]
async fn waits_for_itself(#[tx] tx: &mut Tx<'_>, id: &str, pool: &Pool<Db>) -> sqlx::Result<()> {
    tx.execute(insert("singles", id)).await?;
    pool.execute(insert("singles", id)).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_limits.commits")]
async fn commits(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await?;
    let _ = tx.execute("COMMIT").await;
    Ok(())
}

#[tokio::test]
async fn a_delivery_without_an_end_is_given_up() {
    let world = World::new().await;
    let pool = &world.pool;
    let kit = || Kit::new(pool).patience(Duration::from_secs(2));
    let parts = ["the delivery of message 1 did not end within 2s", "Kit::patience"];
    let hangs = async {
        fails(kit().check(async |n| endless(pool, &id(n)).await).await, &parts);
        fails(kit().check(async |n| waits_for_itself(pool, &id(n), pool).await).await, &parts);
        let insists = async |n| loop {
            match right(pool, &id(n)).await {
                Ok(outcome) => return Ok::<_, sqlx::Error>(outcome),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        fails(kit().check(insists).await, &["did not end within 2s", "until it succeeds: let it return the error"]);
        // The table is writable again, and no connection is lost.
        right(pool, "later").await.unwrap();
    };
    tokio::time::timeout(Duration::from_mins(1), hangs).await.expect("it does not hang");
}

#[tokio::test]
async fn a_seen_cache_does_not_hide_what_becomes_of_old_claims() {
    let world = World::new().await;
    let store = ClaimStore::builder(world.pool.clone()).seen_cache(1_000).build().unwrap();
    let kit = Kit::of(&store);
    kit.check(async |n| right(&store, &id(n)).await).await.unwrap();
    assert_eq!(kit.aged(async |n| right(&store, &id(n)).await).await.unwrap(), Aged::RunsAgain);
    // Another store's cache is out of reach.
    let parts = ["is duplicate, although every claim", "the seen cache of another store"];
    fails(Kit::new(&world.pool).aged(async |n| right(&store, &id(100 + n)).await).await, &parts);
}

#[tokio::test]
async fn a_body_that_commits_is_told_so() {
    let world = World::new().await;
    let pool = &world.pool;
    let parts = if crate::BODYS_COMMIT_STAYS {
        ["was committed before the body returned", "usual cause: the body sends COMMIT"]
    } else {
        ["was rolled back before the body returned", "or it sends COMMIT or ROLLBACK itself"]
    };
    fails(Kit::new(pool).check(async |n| commits(pool, &id(n)).await).await, &parts);
}

#[tokio::test]
async fn a_caller_that_never_commits_is_told_so() {
    let world = World::new().await;
    let pool = &world.pool;
    let forgets = async |n| {
        let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
        right(&mut tx, &id(n)).await
    };
    fails(Kit::new(pool).check(forgets).await, &["proves nothing", "the caller's transaction was not committed"]);
    fails(Kit::new(pool).refused(forgets).await, &["proves nothing", "the caller's transaction was not committed"]);
}

#[tokio::test]
async fn a_table_to_leave_out_has_to_be_there() {
    let world = World::new().await;
    let pool = &world.pool;
    let kit = Kit::new(pool).without_table("singles").without_table("efects");
    let deliver = async |n| Ok::<_, sqlx::Error>(right(pool, &id(n)).await?);
    let parts = ["there is no table `efects` to leave out", "`effects`, ", "`singles`", "without_table"];
    fails(kit.check(deliver).await, &parts);
    assert!(matches!(right(pool, &id(1)).await, Ok(Outcome::Processed(()))), "nothing was delivered");
}
