//! The testing kit and commits that fail: what a body does last, past its transaction, and statements that are cut off.

use std::sync::atomic::{AtomicUsize, Ordering};

use idempotent_runtime::testing::{Kit, Recorder};
use idempotent_runtime::{ClaimStore, Claimed, Error, Key, Outcome, idempotent};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Pool};

use crate::checked::{fails, insert};
use crate::harness::{World, rounds};
use crate::{Db, Tx};

const ADD: &str = "UPDATE totals SET cents = cents + 5";

fn id(n: u64) -> String {
    format!("evt-{n}")
}

#[idempotent(key = "{id}", consumer = "checked_commits.adds_outside")]
async fn adds_outside(#[tx] tx: &mut Tx<'_>, id: &str, pool: &Pool<Db>) -> sqlx::Result<()> {
    let _ = (tx, id);
    pool.execute(ADD).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_commits.audits_outside")]
async fn audits_outside(#[tx] tx: &mut Tx<'_>, id: &str, pool: &Pool<Db>) -> sqlx::Result<()> {
    tx.execute(ADD).await?;
    pool.execute(insert("effects", id)).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_commits.posts_last")]
async fn posts_last(#[tx] tx: &mut Tx<'_>, id: &str, posts: &Recorder) -> sqlx::Result<()> {
    let _ = id;
    tx.execute(ADD).await?;
    posts.record("POST");
    Ok(())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_commits.batch")]
async fn batch(#[tx] tx: &mut Tx<'_>, ids: Vec<String>, posts: Option<&Recorder>) -> sqlx::Result<()> {
    for _ in ids {
        tx.execute(ADD).await?;
    }
    posts.inspect(|posts| posts.record("POST"));
    Ok(())
}

/// Can be broken off at the very moment when its statement is sent, and runs.
#[idempotent(key = "{id}", consumer = "checked_commits.slow")]
async fn adds_outside_slowly(#[tx] tx: &mut Tx<'_>, id: &str, pool: &Pool<Db>, posts: &Recorder) -> sqlx::Result<()> {
    let _ = (tx, id);
    let mut connection = pool.acquire().await?;
    posts.record("POST");
    connection.execute(AssertSqlSafe(format!("{ADD} WHERE ({}) IS NOT NULL", crate::SLEEP))).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_commits.adds")]
async fn adds(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let _ = id;
    tx.execute(ADD).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_commits.replayed", replay)]
async fn replayed(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<u32> {
    let _ = id;
    tx.execute(ADD).await?;
    Ok(5)
}

#[idempotent(consumer = "checked_commits.stream", sequence(entity = "{partition}", number = "offset"))]
async fn stream(#[tx] tx: &mut Tx<'_>, partition: u8, offset: u64) -> sqlx::Result<()> {
    let _ = (partition, offset);
    tx.execute(ADD).await.map(drop)
}

#[idempotent(key = "{id}", consumer = "checked_commits.retried", retry = 100, isolation = "serializable")]
async fn retried(#[tx] tx: &mut Tx<'_>, id: &str, runs: &AtomicUsize) -> sqlx::Result<()> {
    let _ = id;
    runs.fetch_add(1, Ordering::Relaxed);
    tx.execute(ADD).await.map(drop)
}

async fn world() -> World {
    let world = World::new().await;
    world.run("CREATE TABLE totals (id INTEGER NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)").await;
    world.run("INSERT INTO totals VALUES (1, 0)").await;
    world
}

#[tokio::test]
async fn what_a_body_does_last_and_past_its_transaction_is_found_each_time() {
    let world = world().await;
    let pool = &world.pool;
    let posts = Recorder::new();
    let sent = ["whose commit failed, has changed", "the recorder: 1 sent", "before the commit"];
    for round in 0..rounds(3, 20) {
        let id = |n| format!("{round}-{n}");
        let posting = async |n| posts_last(pool, &id(n), &posts).await;
        fails(Kit::new(pool).recorder(&posts).check(posting).await, &sent);
        let posting = async |n| batch(pool, vec![id(n), id(n + 1)], Some(&posts)).await;
        fails(Kit::new(pool).recorder(&posts).check(posting).await, &sent);
    }
    let adding = async |n| adds_outside(pool, &id(n), pool).await;
    if crate::ONE_WRITER {
        fails(Kit::new(pool).check(adding).await, &["on SQLite, SQL of the body runs on the pool instead of `tx`"]);
        return;
    }
    for round in 0..rounds(3, 20) {
        let id = |n| format!("{round}-{n}");
        let adding = async |n| adds_outside(pool, &id(n), pool).await;
        let parts = [
            "the delivery of message",
            "whose commit failed, has changed",
            "`totals`: 1 row as before",
            "instead of `tx`",
        ];
        fails(Kit::new(pool).check(adding).await, &parts);
        let auditing = async |n| audits_outside(pool, &id(n), pool).await;
        fails(
            Kit::new(pool).check(auditing).await,
            &["whose commit failed, has changed", "`effects`: ", "outside the"],
        );
    }
}

/// The row is as it was when the delivery is dropped, and has changed a moment later.
#[tokio::test]
async fn a_statement_that_is_cut_off_is_waited_for() {
    if crate::ONE_WRITER {
        return; // what the body writes past its transaction waits for it, and fails
    }
    let world = world().await;
    let pool = &world.pool;
    let posts = Recorder::new();
    let adding = async |n| adds_outside_slowly(pool, &id(n), pool, &posts).await;
    let parts = ["broken off where it had sent something", "`totals`: 1 row as before", "the recorder: 1 sent"];
    fails(Kit::new(pool).recorder(&posts).interrupted(adding).await, &parts);
    // What somebody else keeps is not waited for each time.
    let _kept = pool.acquire().await.unwrap();
    let begun = std::time::Instant::now();
    Kit::new(pool).check(async |n| adds(pool, &id(n)).await).await.unwrap();
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn handlers_that_are_right_survive_a_commit_that_fails() {
    let world = world().await;
    let pool = &world.pool;
    Kit::new(pool).check(async |n| replayed(pool, &id(n)).await).await.unwrap();
    Kit::new(pool).check(async |n| stream(pool, 1, n).await).await.unwrap();
    Kit::new(pool).check(async |n| batch(pool, vec![id(n), id(n + 1)], None).await).await.unwrap();
    let runs = AtomicUsize::new(0);
    let retrying = async |n| retried(pool, &id(n), &runs).await;
    let kit = Kit::new(pool);
    kit.uncommitted(retrying).await.unwrap();
    assert_eq!(
        runs.load(Ordering::Relaxed),
        5,
        "two to see what it does, one refused, redelivered, one with no commit more"
    );
    kit.check(retrying).await.unwrap();
    let store = ClaimStore::new(pool.clone());
    let by_hand = async |n| {
        let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
        let outcome = match store.claim(&mut tx, "checked_commits.by_hand", &Key::new(&id(n))?).await? {
            Claimed::New(_) => Outcome::Processed(tx.execute(ADD).await.map(drop)?),
            Claimed::Duplicate(duplicate) => Outcome::Duplicate(duplicate),
        };
        idempotent_runtime::commit(tx).await?;
        Ok::<_, Error>(outcome)
    };
    Kit::new(pool).check(by_hand).await.unwrap();
}

/// The handler's own end, which is a savepoint's, and then the caller's commit.
#[tokio::test]
async fn both_commits_of_a_handler_in_its_callers_transaction_fail_once() {
    let world = world().await;
    let pool = &world.pool;
    let mails = Recorder::new();
    let deliver = async |n, mails: Option<&Recorder>| {
        let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
        let outcome = adds(&mut tx, &id(n)).await?;
        if outcome.is_processed() {
            mails.inspect(|mails| mails.record("mail"));
        }
        idempotent_runtime::commit(tx).await?;
        Ok::<_, sqlx::Error>(outcome)
    };
    let kit = Kit::new(pool).recorder(&mails);
    for _ in 0..rounds(5, 20) {
        kit.check(async |n| deliver(n, None).await).await.unwrap();
    }
    let parts = ["whose commit failed, has changed", "the recorder: 1 sent"];
    fails(kit.uncommitted(async |n| deliver(n, Some(&mails)).await).await, &parts);
}

/// What sqlx leaves in the pool would make the deliveries after it fail, or have no effect.
#[tokio::test]
async fn a_begin_of_the_callers_that_is_cut_off_leaves_no_transaction_behind() {
    let world = world().await;
    let pool = &world.pool;
    let posts = Recorder::new();
    let deliver = async |n| {
        let mut connection = pool.acquire().await?;
        posts.record("POST");
        let mut tx = connection.begin_with(crate::BEGIN_TO_WRITE).await?;
        let outcome = adds(&mut tx, &id(n)).await?;
        idempotent_runtime::commit(tx).await?;
        Ok::<_, sqlx::Error>(outcome)
    };
    let mut afterwards = 0;
    for round in 1..=20 {
        // Only now and then the server has got the statement, and the reply is not there yet.
        let kit = Kit::new(pool).recorder(&posts);
        let _ = kit.interrupted(async |n| deliver(round * 100 + n).await).await;
        let mut idle: Vec<_> = std::iter::from_fn(|| pool.try_acquire()).collect();
        for connection in &mut idle {
            connection.execute(insert("effects", "afterwards")).await.unwrap();
        }
        afterwards += idle.len();
    }
    assert_eq!(usize::try_from(world.effects().await).unwrap(), afterwards, "each commits itself");
}

#[tokio::test]
async fn a_consumer_that_acknowledges_what_was_not_committed_is_found() {
    let world = world().await;
    let pool = &world.pool;
    let acknowledges = async |n| Ok::<_, sqlx::Error>(adds(pool, &id(n)).await.unwrap_or(Outcome::Processed(())));
    let parts = ["the commit of message 3 failed, and yet the delivery is processed", "acknowledged and lost"];
    fails(Kit::new(pool).uncommitted(acknowledges).await, &parts);
}
