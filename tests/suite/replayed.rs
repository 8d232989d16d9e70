//! `replay` and `fingerprint`: the first answer again, and one key for one content.

use std::collections::BTreeMap;

use idempotent_runtime::{ClaimStore, Disposition, Error, Outcome, ReplayError, idempotent};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::Tx;
use crate::handlers::effect;
use crate::harness::{World, drop_after};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    number: usize,
    text: String,
}

fn receipt(text: &str) -> Receipt {
    Receipt { number: text.len(), text: text.into() }
}

#[idempotent(key = "{id}", replay)]
pub(crate) async fn charge(#[tx] tx: &mut Tx<'_>, id: &str, text: &str) -> Result<Receipt, Error> {
    effect(tx, id).await?;
    Ok(receipt(text))
}

#[idempotent(key = "{id}", replay)]
async fn charge_and_send(#[tx] tx: &mut Tx<'_>, id: &str, sql: &str, fail: bool) -> Result<Receipt, Error> {
    effect(tx, id).await?;
    let _ = tx.execute(AssertSqlSafe(sql)).await;
    if fail { Err(sqlx::Error::RowNotFound.into()) } else { Ok(receipt("secret")) }
}

#[idempotent(key = "{id}", fingerprint = "{account}/{cents}/{note}")]
async fn transfer(#[tx] tx: &mut Tx<'_>, id: &str, account: &str, cents: i64, note: Option<&str>) -> Result<(), Error> {
    Ok(effect(tx, id).await?)
}

#[idempotent(key = "{id}", fingerprint = "{cents}", replay)]
async fn pay(#[tx] tx: &mut Tx<'_>, id: &str, cents: i64) -> Result<i64, Error> {
    effect(tx, id).await?;
    Ok(cents)
}

#[tokio::test]
async fn a_duplicate_gets_the_first_answer_again() {
    let world = World::new().await;
    let odd = "ä\u{1F600}\0\"'\\ \u{7f}\r\n%s";
    assert_eq!(charge(&world.pool, "1", odd).await.unwrap(), Outcome::Processed(receipt(odd)));
    let again = charge(&world.pool, "1", "another").await.unwrap();
    assert_eq!(again, Outcome::Replayed(receipt(odd)));
    assert!(again.is_duplicate() && !again.is_processed() && again.as_str() == "replayed");
    assert_eq!(again.value(), Some(receipt(odd)));
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_duplicate_whose_claim_has_no_value_is_a_plain_duplicate() {
    let world = World::new().await;
    charge(&world.pool, "1", "x").await.unwrap();
    world.run("UPDATE processed_messages SET value = NULL").await; // as of before the handler had `replay`
    assert!(matches!(charge(&world.pool, "1", "x").await, Ok(Outcome::Duplicate(_))));
}

#[tokio::test]
async fn the_result_of_a_failed_run_is_never_stored() {
    let world = World::new().await;
    assert!(charge_and_send(&world.pool, "1", "SELECT 1", true).await.is_err());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(charge_and_send(&world.pool, "1", "SELECT 1", false).await.unwrap().is_processed());
}

#[tokio::test]
async fn the_value_of_a_run_whose_transaction_was_lost_is_never_stored() {
    let world = World::new().await;
    let mut connection = world.pool.acquire().await.unwrap();
    for (id, sql) in [("1", "ROLLBACK"), ("2", "COMMIT"), ("3", "SELECT * FROM missing")] {
        let from_pool = charge_and_send(&world.pool, id, sql, false).await;
        let kept = charge_and_send(&mut connection, &format!("kept-{id}"), sql, false).await;
        for outcome in [from_pool, kept] {
            match outcome {
                Err(Error::TransactionLost(_)) => {}
                Ok(Outcome::Processed(_)) if id == "3" && !crate::ERROR_ABORTS => {}
                other => panic!("{sql}: {other:?}"),
            }
        }
    }
    let stored = "SELECT count(*) FROM processed_messages WHERE value IS NOT NULL";
    assert_eq!(world.number(stored).await, if crate::ERROR_ABORTS { 0 } else { 2 });
}

#[tokio::test]
async fn a_value_over_the_limit_is_refused_and_everything_is_rolled_back() {
    let world = World::with_connections(1).await;
    let five_megabytes = "x".repeat(5_000_000);
    let error = charge(&world.pool, "1", &five_megabytes).await.unwrap_err();
    let Error::Replay(ReplayError::TooLarge { bytes, limit, .. }) = error else { panic!("{error:?}") };
    assert!(bytes > 5_000_000 && limit == 1024 * 1024);
    assert_eq!(error.disposition(), Disposition::DeadLetter);
    assert_eq!((world.effects().await, world.claims().await), (0, 0));

    let store = ClaimStore::builder(world.pool.clone()).max_stored_value(6_000_000).build().unwrap();
    assert!(charge(&store, "1", &five_megabytes).await.unwrap().is_processed());
    assert_eq!(charge(&store, "1", "").await.unwrap().value().map(|receipt| receipt.number), Some(5_000_000));
}

#[idempotent(key = "{id}", replay)]
async fn measure<T: Serialize + DeserializeOwned + Sync>(
    #[tx] tx: &mut Tx<'_>,
    id: &str,
    value: T,
) -> Result<T, Error> {
    effect(tx, id).await?;
    Ok(value)
}

#[tokio::test]
async fn numbers_come_back_to_the_last_digit() {
    let world = World::new().await;
    let numbers = (3.327_025_228_210_866_3e190, -0.0, u128::MAX, BTreeMap::from([(i64::MIN, u64::MAX)]));
    assert_eq!(measure(&world.pool, "1", numbers.clone()).await.unwrap(), Outcome::Processed(numbers.clone()));
    let none = (0.0, 0.0, 0, BTreeMap::new());
    assert_eq!(measure(&world.pool, "1", none).await.unwrap(), Outcome::Replayed(numbers));
}

#[tokio::test]
async fn a_value_that_could_not_be_read_again_is_refused_before_anything_is_committed() {
    let world = World::with_connections(1).await;
    let error = measure(&world.pool, "1", f64::NAN).await.unwrap_err();
    assert!(matches!(&error, Error::Replay(ReplayError::NotSerializable)), "{error:?}");
    assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 500));
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert_eq!(measure(&world.pool, "1", 1.5).await.unwrap(), Outcome::Processed(1.5));
}

/// Panics while it is written, or while it is read.
#[derive(Debug, PartialEq)]
struct Explosive(&'static str);

impl Serialize for Explosive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, "written", "exploded");
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        assert_ne!(text, "read", "exploded");
        Ok(Self("harmless"))
    }
}

#[tokio::test]
async fn a_value_that_panics_leaves_nothing_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    for when in ["written", "read"] {
        let pool = world.pool.clone();
        let run = tokio::spawn(async move { measure(&pool, "1", Explosive(when)).await });
        assert!(run.await.unwrap_err().is_panic(), "{when}");
        assert_eq!((world.effects().await, world.claims().await), (0, 0), "{when}");
    }
    assert!(measure(&world.pool, "1", Explosive("harmless")).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_stored_value_that_cannot_be_read_is_an_error_and_never_a_second_run() {
    let world = World::new().await;
    charge(&world.pool, "1", "x").await.unwrap();
    for stored in ["", "secret", "{\"number\":\"secret\"}"] {
        world.run(&format!("UPDATE processed_messages SET value = '{stored}'")).await;
        let error = charge(&world.pool, "1", "x").await.unwrap_err();
        assert!(matches!(&error, Error::Replay(ReplayError::Unreadable { .. })), "{error:?}");
        assert_eq!((error.disposition(), error.http_status()), (Disposition::Retry, 500));
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn the_same_key_with_another_content_is_refused_and_changes_nothing() {
    let world = World::new().await;
    assert!(transfer(&world.pool, "1", "a", 100, None).await.unwrap().is_processed());
    let row = "SELECT count(*) FROM processed_messages WHERE fingerprint IS NOT NULL AND value IS NULL";
    for (account, cents, note) in [("b", 100, None), ("a", 101, None), ("a", 100, Some("")), ("a/100", 100, None)] {
        let error = transfer(&world.pool, "1", account, cents, note).await.unwrap_err();
        let Error::FingerprintMismatch(mismatch) = &error else { panic!("{error:?}") };
        assert_eq!((mismatch.consumer(), mismatch.key()), ("tests.transfer", "1"));
        assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 422));
    }
    assert!(transfer(&world.pool, "1", "a", 100, None).await.unwrap().is_duplicate());
    assert!(transfer(&world.pool, "2", "b", 100, Some("")).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.number(row).await), (2, 2));
}

#[tokio::test]
async fn another_content_is_refused_before_anything_is_replayed() {
    let world = World::new().await;
    assert_eq!(pay(&world.pool, "1", 100).await.unwrap(), Outcome::Processed(100));
    assert!(matches!(pay(&world.pool, "1", 101).await, Err(Error::FingerprintMismatch(_))));
    assert_eq!(pay(&world.pool, "1", 100).await.unwrap(), Outcome::Replayed(100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_deliveries_at_once_one_runs_and_all_get_its_answer() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut deliveries = JoinSet::new();
        for delivery in 0..16 {
            let pool = pool.clone();
            deliveries.spawn(async move { charge(&pool, "1", &format!("from {delivery}")).await });
        }
        let outcomes: Vec<_> =
            deliveries.join_all().await.into_iter().map(|outcome| outcome.expect("no error")).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_processed()).count(), 1, "{level}");
        let answers: Vec<_> = outcomes.into_iter().map(|outcome| outcome.value().expect("an answer")).collect();
        assert!(answers.iter().all(|answer| answer == &answers[0]), "{level}");
        assert_eq!((world.effects().await, world.claims().await), (1, 1), "{level}");
    }
}

#[tokio::test]
async fn answers_are_replayed_in_the_callers_transaction_and_on_its_connection() {
    let world = World::new().await;
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    assert!(pay(&mut tx, "1", 1).await.unwrap().is_processed());
    assert_eq!(pay(&mut tx, "1", 1).await.unwrap(), Outcome::Replayed(1));
    assert!(matches!(pay(&mut tx, "1", 2).await, Err(Error::FingerprintMismatch(_))));
    assert!(pay(&mut tx, "2", 2).await.unwrap().is_processed());
    idempotent_runtime::commit(tx).await.unwrap();
    let mut connection = world.pool.acquire().await.unwrap();
    assert_eq!(pay(&mut connection, "2", 2).await.unwrap(), Outcome::Replayed(2));
    assert!(pay(&mut connection, "3", 3).await.unwrap().is_processed());
    assert_eq!(pay(&mut *connection, "3", 3).await.unwrap(), Outcome::Replayed(3));
    assert_eq!((world.effects().await, world.claims().await), (3, 3));
}

/// An answer inside an answer.
#[idempotent(key = "{id}", replay)]
async fn order(#[tx] tx: &mut Tx<'_>, id: &str, fail: bool) -> Result<Vec<Receipt>, Error> {
    effect(tx, &format!("order-{id}")).await?;
    let first = charge(&mut *tx, id, "inner").await?;
    let again = charge(&mut *tx, id, "another").await?;
    assert_eq!((first.as_str(), again.as_str()), ("processed", "replayed"));
    if fail {
        return Err(sqlx::Error::RowNotFound.into());
    }
    Ok(first.value().into_iter().chain(again.value()).collect())
}

#[tokio::test]
async fn an_answer_inside_a_handler_stays_or_goes_with_it() {
    let world = World::with_connections(1).await;
    assert!(order(&world.pool, "1", true).await.is_err());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    let answers = vec![receipt("inner"), receipt("inner")];
    assert_eq!(order(&world.pool, "1", false).await.unwrap(), Outcome::Processed(answers.clone()));
    assert_eq!(order(&world.pool, "1", false).await.unwrap(), Outcome::Replayed(answers));
    assert_eq!(charge(&world.pool, "1", "alone").await.unwrap(), Outcome::Replayed(receipt("inner")));
    assert_eq!((world.effects().await, world.claims().await), (2, 2));
}

#[tokio::test]
async fn a_dropped_future_leaves_claim_effect_and_value_together_or_none() {
    let world = World::with_connections(1).await;
    for polls in 1..40 {
        drop_after(polls, charge(&world.pool, &format!("id-{polls}"), "x")).await;
    }
    assert!(charge(&world.pool, "last", "x").await.unwrap().is_processed());
    let without_value = "SELECT count(*) FROM processed_messages WHERE value IS NULL";
    assert_eq!((world.effects().await, world.number(without_value).await), (world.claims().await, 0));
}
