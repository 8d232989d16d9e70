//! The testing kit: it passes handlers that are right, and fails each of those that are wrong on purpose, saying why.

use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_runtime::testing::{Aged, Failure, Kit, Recorder};
use idempotent_runtime::{Claim, ClaimStore, Error, Outcome, UnixSeconds, idempotent};
use sqlx::{AssertSqlSafe, Executor as _, Pool};

use crate::harness::World;
use crate::{Db, Tx};

pub(crate) fn insert(table: &str, id: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("INSERT INTO {table} (id) VALUES ('{id}')"))
}

fn id(n: u64) -> String {
    format!("evt-{n}")
}

#[idempotent(key = "{id}", consumer = "checked.right")]
async fn right(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await?;
    tx.execute(insert("singles", id)).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.adds")]
async fn adds(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let _ = id;
    tx.execute("UPDATE totals SET cents = cents + 5").await?;
    Ok(())
}

/// Sends with a key that stays the same.
#[idempotent(key = "{id}", consumer = "checked.keyed")]
async fn keyed(#[tx] tx: &mut Tx<'_>, claim: &Claim, id: &str, sent: &Recorder) -> sqlx::Result<()> {
    sent.record_with_key(claim.idempotency_key("charge"), "charge");
    tx.execute(insert("effects", id)).await?;
    Ok(())
}

#[idempotent(consumer = "checked.stream", sequence(entity = "{partition}", number = "offset"))]
async fn stream(#[tx] tx: &mut Tx<'_>, partition: u8, offset: u64) -> Result<(), Error> {
    let _ = partition;
    tx.execute(insert("effects", &id(offset))).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.dated", retention = "7d", occurred_at = "at")]
async fn dated(#[tx] tx: &mut Tx<'_>, id: &str, at: UnixSeconds) -> Result<(), Error> {
    tx.execute(insert("effects", id)).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.swallows")]
async fn swallows(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await?;
    let _ = tx.execute(insert("singles", id)).await;
    Ok(())
}

/// On PostgreSQL its last statement fails for the error of the one before.
#[idempotent(key = "{id}", consumer = "checked.swallows_early")]
async fn swallows_early(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let _ = tx.execute(insert("singles", id)).await;
    tx.execute(insert("effects", id)).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.mails_first")]
async fn mails_first(#[tx] tx: &mut Tx<'_>, id: &str, mails: &Recorder) -> sqlx::Result<()> {
    mails.record(format!("mail about {id}"));
    tx.execute(insert("effects", id)).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.mails_last")]
async fn mails_last(#[tx] tx: &mut Tx<'_>, id: &str, mails: &Recorder) -> sqlx::Result<()> {
    tx.execute(insert("effects", id)).await?;
    mails.send(format!("mail about {id}")).await;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.writes_outside")]
async fn writes_outside(#[tx] tx: &mut Tx<'_>, id: &str, pool: &Pool<Db>) -> sqlx::Result<()> {
    pool.execute(insert("effects", id)).await?;
    tx.execute(insert("singles", id)).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.maybe", missing = "process")]
async fn maybe(#[tx] tx: &mut Tx<'_>, id: Option<&str>) -> sqlx::Result<()> {
    let _ = id;
    tx.execute(insert("effects", "any")).await?;
    Ok(())
}

#[idempotent(key = "{id}", consumer = "checked.idle")]
async fn idle(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let _ = (tx, id);
    Ok(())
}

/// That the kit fails, and says all of this.
pub(crate) fn fails<T>(found: Result<T, Failure>, parts: &[&str]) {
    let Err(failure) = found else { panic!("the kit has passed what is wrong: {parts:?} was expected") };
    let text = failure.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert_eq!(format!("{failure:?}"), text, "`unwrap` shows the same");
}

#[tokio::test]
async fn handlers_that_are_right_pass() {
    let world = World::new().await;
    let pool = &world.pool;
    world.run("CREATE TABLE totals (id INTEGER NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)").await;
    world.run("INSERT INTO totals VALUES (1, 0)").await;
    Kit::new(pool).check(async |n| right(pool, &id(n)).await).await.unwrap();
    assert_eq!(world.effects().await, world.number("SELECT count(DISTINCT id) FROM effects").await, "one each");
    Kit::new(pool).check(async |n| adds(pool, &id(n)).await).await.unwrap();
    let sent = Recorder::new();
    Kit::new(pool).recorder(&sent).check(async |n| keyed(pool, &id(n), &sent).await).await.unwrap();
    Kit::new(pool).check(async |n| stream(pool, 1, n).await).await.unwrap();
}

/// A handler that joins its caller's transaction is delivered as the caller delivers it.
#[tokio::test]
async fn a_caller_with_a_transaction_of_its_own_passes() {
    let world = World::new().await;
    let pool = &world.pool;
    let deliver = async |n| {
        let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
        let outcome = right(&mut tx, &id(n)).await?;
        idempotent_runtime::commit(tx).await?;
        Ok::<_, sqlx::Error>(outcome)
    };
    let kit = Kit::new(pool);
    kit.twice(deliver).await.unwrap();
    kit.together(3, deliver).await.unwrap();
    kit.refused(deliver).await.unwrap();
}

#[tokio::test]
async fn an_effect_outside_the_transaction_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let around = async |n| {
        pool.execute(insert("effects", &id(n))).await?;
        right(pool, &id(n)).await
    };
    let parts = [
        "the second delivery of message 1 is duplicate",
        "table `effects`: 3 rows, 2 before",
        "outside the handler's transaction",
    ];
    fails(Kit::new(pool).check(around).await, &parts);
    // An update leaves the number of rows as it was.
    let around = async |n| {
        pool.execute("UPDATE singles SET id = concat(id, '+')").await?;
        right(pool, &id(100 + n)).await
    };
    fails(
        Kit::new(pool).check(around).await,
        &["table `singles`: 2 rows as before, with other values", "outside the handler's"],
    );
    if crate::ONE_WRITER {
        return; // what the body writes past its transaction waits for it, and fails
    }
    let inside = async |n| writes_outside(pool, &id(200 + n), pool).await;
    let kit = Kit::new(pool);
    kit.twice(inside).await.expect("a duplicate does not run the body");
    let parts = ["failed at table `singles`", "table `effects`: ", "outside the handler's transaction"];
    fails(kit.refused(inside).await, &parts);
    // A drop has to fall between the two effects, and how many polls there are is the scheduler's to say.
    let mut found = kit.interrupted(inside).await;
    for _ in 0..100 {
        if found.is_err() {
            break;
        }
        found = kit.interrupted(inside).await;
    }
    fails(found, &["broken off after", "table `effects`: ", "outside the handler's transaction"]);
}

#[tokio::test]
async fn a_swallowed_error_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let kit = Kit::new(pool);
    let deliver = async |n| swallows(pool, &id(n)).await;
    kit.twice(deliver).await.expect("nothing has failed yet");
    let seen = if crate::ERROR_ABORTS { "the body went on as if it had not" } else { "yet the delivery is processed" };
    fails(kit.check(deliver).await, &["table `singles` refused a write", seen, "ignores the error of a statement"]);
    let deliver = async |n| swallows_early(pool, &id(100 + n)).await;
    fails(kit.check(deliver).await, &["table `singles` refused a write", seen, "ignores the error of a statement"]);
    // The table is writable again.
    right(pool, "later").await.unwrap();
}

#[tokio::test]
async fn a_key_from_a_fresh_id_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let fresh = AtomicU64::new(0);
    // As a consumer does that fills in the id of the delivery.
    let deliver = async |_n| right(pool, &format!("fresh-{}", fresh.fetch_add(1, Ordering::Relaxed))).await;
    let parts = ["a later delivery of message 1 is processed", "`fresh-0` of", "`fresh-1` of", "made on delivery"];
    fails(Kit::new(pool).check(deliver).await, &parts);
    fails(Kit::new(pool).twice(async |_n| maybe(pool, None).await).await, &["no claim", "missing = \"process\""]);
    // The opposite: one key for all of them.
    let same = async |_n| right(pool, "same").await;
    fails(Kit::new(pool).check(same).await, &["is duplicate, and was to do the work", "have the same key"]);
}

#[tokio::test]
async fn a_mail_before_the_commit_is_found() {
    let world = World::new().await;
    let pool = &world.pool;
    let mails = Recorder::new();
    let first = async |n| mails_first(pool, &id(n), &mails).await;
    let parts = ["failed at table `effects`", "the recorder: 1 sent", "before the commit", "outbox"];
    fails(Kit::new(pool).recorder(&mails).check(first).await, &parts);
    let last = async |n| mails_last(pool, &id(n), &mails).await;
    let parts = ["broken off where it had sent", "the recorder: 1 sent", "before the commit", "idempotency_key"];
    fails(Kit::new(pool).recorder(&mails).interrupted(last).await, &parts);
    // After it, and for a duplicate too.
    let after = async |n| {
        let outcome = right(pool, &id(n)).await;
        mails.record("mail");
        outcome
    };
    let parts = ["the second delivery of message 1 is duplicate", "the recorder: 1 sent", "for duplicates too"];
    fails(Kit::new(pool).recorder(&mails).check(after).await, &parts);
    assert!(mails.entries().iter().any(|mail| mail == "mail about evt-1"), "{:?}", mails.entries());
}

#[tokio::test]
async fn a_delivery_without_a_visible_effect_proves_nothing_and_fails() {
    let world = World::new().await;
    let pool = &world.pool;
    fails(Kit::new(pool).check(async |n| idle(pool, &id(n)).await).await, &["the test proves nothing"]);
    let kit = Kit::new(pool).without_table("effects").without_table("singles");
    fails(kit.check(async |n| right(pool, &id(n)).await).await, &["the test proves nothing", "left out"]);
    let kit = Kit::new(pool);
    let broken = async |_n| Err::<Outcome<()>, _>(Error::from(sqlx::Error::RowNotFound));
    fails(kit.check(broken).await, &["the first delivery of message 1 is failed", "RowNotFound"]);
}

/// Claims are no effect, in whatever table they are, and what is committed with one is not outside the transaction.
#[tokio::test]
async fn a_handler_of_another_store_than_the_kits_is_checked_and_told_from_one_that_does_nothing() {
    let world = World::new().await;
    let pool = &world.pool;
    let store = ClaimStore::builder(pool.clone()).table("other_claims").build().unwrap();
    store.migrate().await.unwrap();
    fails(Kit::new(pool).check(async |n| idle(&store, &id(n)).await).await, &["the test proves nothing"]);
    let kit = Kit::new(pool);
    let deliver = async |n| right(&store, &id(n)).await;
    kit.twice(deliver).await.unwrap();
    kit.refused(deliver).await.unwrap();
    kit.interrupted(deliver).await.unwrap();
    fails(kit.aged(deliver).await, &["is duplicate, although", "in another table", "`Kit::of(&store)`"]);
    Kit::of(&store).check(async |n| right(&store, &id(100 + n)).await).await.unwrap();
}

#[tokio::test]
async fn a_database_without_the_claim_table_is_told_to_be_migrated() {
    let world = World::not_migrated(2).await;
    let pool = &world.pool;
    fails(Kit::new(pool).check(async |n| idle(pool, &id(n)).await).await, &["`processed_messages`", "migrate"]);
}

#[tokio::test]
async fn claims_past_their_expiry_are_still_duplicates_and_what_follows_their_purge_is_said() {
    let world = World::new().await;
    let pool = &world.pool;
    let kit = Kit::new(pool);
    // What is left of the first run is a unique key of the application's own.
    assert_eq!(kit.aged(async |n| right(pool, &id(n)).await).await.unwrap(), Aged::Fails);
    assert_eq!(kit.aged(async |n| keyed(pool, &id(n), &Recorder::new()).await).await.unwrap(), Aged::RunsAgain);
    assert_eq!(kit.aged(async |n| stream(pool, 2, n).await).await.unwrap(), Aged::Stale);
    let of_2020 = UnixSeconds(1_577_836_800);
    assert_eq!(kit.aged(async |n| dated(pool, &id(n), of_2020).await).await.unwrap(), Aged::Expired);
}
