//! The testing kit over batches: the same checks, and the same mistakes.

use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_runtime::testing::{Aged, Kit, Recorder};
use idempotent_runtime::{Batch, Claim, Error, UnixSeconds, idempotent};
use sqlx::{AssertSqlSafe, Executor as _, Pool};

use crate::checked::{fails, insert};
use crate::harness::{World, rounds};
use crate::{Db, Tx};

/// Three items that no other batch has.
fn ids(n: u64) -> Vec<String> {
    (0..3).map(|item| format!("evt-{n}-{item}")).collect()
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.right")]
async fn right(#[tx] tx: &mut Tx<'_>, ids: Vec<String>) -> sqlx::Result<usize> {
    for id in &ids {
        tx.execute(insert("effects", id)).await?;
        tx.execute(insert("singles", id)).await?;
    }
    Ok(ids.len())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.keyed")]
async fn keyed(#[tx] tx: &mut Tx<'_>, ids: Vec<String>, claims: &[Claim], sent: &Recorder) -> sqlx::Result<()> {
    for (id, claim) in ids.iter().zip(claims) {
        sent.record_with_key(claim.idempotency_key("charge"), "charge");
        tx.execute(insert("effects", id)).await?;
    }
    Ok(())
}

#[idempotent(
    each = "offset in offsets",
    consumer = "checked_batches.stream",
    sequence(entity = "{partition}", number = "offset")
)]
async fn stream(#[tx] tx: &mut Tx<'_>, partition: u8, offsets: Vec<u64>) -> Result<(), Error> {
    let _ = partition;
    for offset in offsets {
        tx.execute(insert("effects", &offset.to_string())).await?;
    }
    Ok(())
}

#[idempotent(
    key = "{item.0}",
    each = "item in items",
    consumer = "checked_batches.dated",
    occurred_at = "item.1",
    expired = "skip"
)]
async fn dated(#[tx] tx: &mut Tx<'_>, items: Vec<(String, UnixSeconds)>) -> Result<(), Error> {
    for (id, _) in items {
        tx.execute(insert("effects", &id)).await?;
    }
    Ok(())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.swallows")]
async fn swallows(#[tx] tx: &mut Tx<'_>, ids: Vec<String>) -> sqlx::Result<()> {
    for id in ids {
        tx.execute(insert("effects", &id)).await?;
        let _ = tx.execute(insert("singles", &id)).await;
    }
    Ok(())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.mails")]
async fn mails(#[tx] tx: &mut Tx<'_>, ids: Vec<String>, mails: &Recorder) -> sqlx::Result<()> {
    for id in ids {
        tx.execute(insert("effects", &id)).await?;
        mails.send(format!("mail about {id}")).await;
    }
    Ok(())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.outside")]
async fn outside(#[tx] tx: &mut Tx<'_>, ids: Vec<String>, pool: &Pool<Db>) -> sqlx::Result<()> {
    for id in ids {
        pool.execute(insert("effects", &id)).await?;
        tx.execute(insert("singles", &id)).await?;
    }
    Ok(())
}

/// Works on all items, the old ones too.
#[idempotent(key = "{id}", each = "id in fresh", consumer = "checked_batches.all")]
async fn works_on_all(#[tx] tx: &mut Tx<'_>, fresh: Vec<String>, all: &[String]) -> sqlx::Result<()> {
    let _ = fresh;
    for id in all {
        tx.execute(insert("singles", id)).await?;
    }
    Ok(())
}

#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.maybe", missing = "process")]
async fn maybe(#[tx] tx: &mut Tx<'_>, ids: Vec<Option<String>>) -> sqlx::Result<()> {
    for id in ids {
        tx.execute(insert("effects", id.as_deref().unwrap_or("none"))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn batches_that_are_right_pass() {
    let world = World::new().await;
    let pool = &world.pool;
    Kit::new(pool).check(async |n| right(pool, ids(n)).await).await.unwrap();
    assert_eq!(world.effects().await, world.number("SELECT count(DISTINCT id) FROM effects").await, "one each");
    let sent = Recorder::new();
    let kit = Kit::new(pool).recorder(&sent);
    kit.check(async |n| keyed(pool, ids(n), &sent).await).await.unwrap();
    let deliver = async |n: u64| stream(pool, 1, vec![2 * n, 2 * n + 1]).await;
    Kit::new(pool).check(deliver).await.unwrap();
    // Each has an item of the one before, and an item twice.
    let overlapping = async |n: u64| right(pool, [n, n, n + 1].map(|n| format!("shared-{n}")).to_vec()).await;
    Kit::new(pool).check(overlapping).await.unwrap();
}

#[tokio::test]
async fn an_effect_of_a_batch_outside_the_transaction_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let around = async |n| {
        pool.execute(insert("effects", "around")).await?;
        right(pool, ids(n)).await
    };
    let parts = ["the second delivery of batch 1 is 3 duplicate", "table `effects`: 5 rows, 4 before", "outside the"];
    fails(Kit::new(pool).check(around).await, &parts);
    if crate::ONE_WRITER {
        return; // what the body writes past its transaction waits for it, and fails
    }
    let inside = async |n| outside(pool, ids(100 + n), pool).await;
    let kit = Kit::new(pool);
    kit.twice(inside).await.expect("a duplicate does not run the body");
    let parts = ["which failed at table `singles`, has changed", "`effects`: ", "outside the"];
    fails(kit.refused(inside).await, &parts);
}

#[tokio::test]
async fn an_error_that_a_batch_swallows_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let deliver = async |n| swallows(pool, ids(n)).await;
    let seen = if crate::ERROR_ABORTS {
        "the body went on as if it had not: the delivery failed ("
    } else {
        "and yet the delivery is 3 processed"
    };
    let parts = ["table `singles` refused a write of batch ", seen, "ignores the error of a statement"];
    fails(Kit::new(pool).check(deliver).await, &parts);
}

#[tokio::test]
async fn a_key_from_a_fresh_id_is_found_in_one_item_of_a_batch() {
    let world = World::new().await;
    let pool = &world.pool;
    let next = AtomicU64::new(0);
    let fresh = || format!("fresh-{}", next.fetch_add(1, Ordering::Relaxed));
    let all = async |_n| right(pool, vec![fresh(), fresh()]).await;
    let parts = ["a later delivery of batch 1 is 2 processed", "at first: `fresh-", "later:    `fresh-", "on delivery"];
    fails(Kit::new(pool).check(all).await, &parts);
    let one = async |n: u64| right(pool, vec![format!("evt-{n}"), fresh()]).await;
    let parts =
        ["a later delivery of batch 1 is 1 processed, 1 duplicate", "later:    `fresh-5` of", "made on delivery"];
    fails(Kit::new(pool).check(one).await, &parts);
    let keyless = async |n: u64| maybe(pool, vec![Some(format!("evt-{n}")), None]).await;
    let parts = ["is 1 processed, 1 duplicate", "has no claim", "missing = \"process\""];
    fails(Kit::new(pool).check(keyless).await, &parts);
    let same = async |_n| right(pool, vec!["same".to_owned()]).await;
    fails(Kit::new(pool).check(same).await, &["batch 2 is 1 duplicate, and was to do the work", "have the same key"]);
}

#[tokio::test]
async fn a_mail_of_a_batch_before_the_commit_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let sent = Recorder::new();
    let deliver = async |n| mails(pool, ids(n), &sent).await;
    let parts = ["broken off where it had sent", "the recorder: 1 sent", "before the commit", "idempotency_key"];
    fails(Kit::new(pool).recorder(&sent).interrupted(deliver).await, &parts);
}

/// Of all items, the old ones too, and nothing refuses it.
#[idempotent(key = "{id}", each = "id in fresh", consumer = "checked_batches.counts_all")]
async fn counts_all(#[tx] tx: &mut Tx<'_>, fresh: Vec<String>, all: &[String]) -> sqlx::Result<()> {
    let _ = fresh;
    tx.execute(AssertSqlSafe(format!("UPDATE totals SET items = items + {}", all.len()))).await.map(drop)
}

#[idempotent(key = "{id}", each = "id in fresh", consumer = "checked_batches.counts_fresh")]
async fn counts_fresh(#[tx] tx: &mut Tx<'_>, fresh: Vec<String>) -> sqlx::Result<()> {
    tx.execute(AssertSqlSafe(format!("UPDATE totals SET items = items + {}", fresh.len()))).await.map(drop)
}

/// With its last item alone it does the same as with all of them.
#[idempotent(key = "{id}", each = "id in ids", consumer = "checked_batches.keeps_last")]
async fn keeps_last(#[tx] tx: &mut Tx<'_>, ids: Vec<u64>) -> sqlx::Result<()> {
    tx.execute(AssertSqlSafe(format!("UPDATE totals SET items = {}", ids.last().unwrap()))).await.map(drop)
}

#[tokio::test]
async fn a_body_that_counts_all_items_is_found_whatever_its_batches_are() {
    let world = World::new().await;
    let pool = &world.pool;
    world.run("CREATE TABLE totals (id INTEGER NOT NULL PRIMARY KEY, items BIGINT NOT NULL)").await;
    world.run("INSERT INTO totals VALUES (1, 0)").await;
    let parts = ["same effect on `totals` with one of its items fresh as with ", "the parameter of `each`"];
    for round in 0..rounds(3, 15) {
        let apart = |n| [1, 2].map(|item| format!("{round}-{n}-{item}")).to_vec();
        fails(Kit::new(pool).check(async |n| counts_all(pool, apart(n), &apart(n)).await).await, &parts);
        let shared = |n| [n, n + 1, n + 2].map(|item| format!("{round}-{item}")).to_vec();
        fails(Kit::new(pool).check(async |n| counts_all(pool, shared(n), &shared(n)).await).await, &parts);
    }
    let kit = Kit::new(pool);
    let ids = |n| [n, n + 1, n + 2].map(|item| format!("fresh-{item}")).to_vec();
    kit.check(async |n| counts_fresh(pool, ids(n)).await).await.unwrap();
    let items = world.number("SELECT items FROM totals").await;
    kit.fresh_only(async |n| counts_fresh(pool, ids(n)).await).await.unwrap();
    assert_eq!(world.number("SELECT items FROM totals").await, items, "nothing is committed");
    Kit::new(pool).check(async |n| keeps_last(pool, vec![n, n + 1]).await).await.unwrap();
}

/// The body that takes more than the fresh items needs a batch that is fresh in part.
#[tokio::test]
async fn a_body_that_works_on_old_items_too_is_found_by_batches_that_overlap() {
    let world = World::new().await;
    let pool = &world.pool;
    let apart = async |n| works_on_all(pool, ids(n), &ids(n)).await;
    Kit::new(pool).refused(apart).await.expect("every batch is fresh or old");
    let overlapping = async |n: u64| {
        let ids = [n, n + 1].map(|n| format!("shared-{n}"));
        works_on_all(pool, ids.to_vec(), &ids).await
    };
    fails(Kit::new(pool).check(overlapping).await, &["the first delivery of batch 2 is failed", "works on old items"]);
}

#[tokio::test]
async fn a_batch_of_nothing_proves_nothing() {
    let world = World::new().await;
    let pool = &world.pool;
    let empty = async |_n| right(pool, Vec::new()).await;
    fails(Kit::new(pool).check(empty).await, &["the first delivery of batch 1 is without items", "a batch of nothing"]);
    let broken = async |_n| Err::<Batch<()>, _>(Error::from(sqlx::Error::RowNotFound));
    fails(Kit::new(pool).check(broken).await, &["the first delivery of batch 1 is failed", "RowNotFound"]);
}

#[tokio::test]
async fn what_follows_the_purge_of_a_batchs_claims_is_said() {
    let world = World::new().await;
    let pool = &world.pool;
    let kit = Kit::new(pool);
    assert_eq!(kit.aged(async |n| right(pool, ids(n)).await).await.unwrap(), Aged::Fails);
    assert_eq!(kit.aged(async |n| keyed(pool, ids(n), &Recorder::new()).await).await.unwrap(), Aged::RunsAgain);
    assert_eq!(kit.aged(async |n: u64| stream(pool, 2, vec![2 * n, 2 * n + 1]).await).await.unwrap(), Aged::Stale);
    let of_2020 = |id: String| (id, UnixSeconds(1_577_836_800));
    let old = async |n| dated(pool, ids(n).into_iter().map(of_2020).collect()).await;
    assert_eq!(kit.aged(old).await.unwrap(), Aged::Expired);
}
