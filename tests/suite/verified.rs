//! `Processed` means: the claim's own transaction was alive when the body returned, and it committed (G2).
//! Each test is a way around that, and what the caller gets.

use idempotent_runtime::{Disposition, Error};

use crate::handlers::{self, Step};
use crate::harness::World;
use crate::{AFTER_BODYS_COMMIT_STAYS, AFTER_BODYS_ROLLBACK_STAYS, BODYS_COMMIT_STAYS, DDL_COMMITS, ERROR_ABORTS};

/// What a script ends in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Processed,
    /// Lost, and everything rolled back: a redelivery runs.
    LostGone,
    /// Lost, and the claim kept: a redelivery would be a duplicate.
    LostKept,
    /// The body's own error.
    Own,
}

/// Runs a script on a pool of one connection and checks the end, what stays, and that the connection is sound.
async fn check(name: &str, steps: &[Step<'_>], expected: End, effects: i64) {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let end = match handlers::scripted(&world.pool, "1", steps).await {
        Ok(outcome) if outcome.is_processed() => End::Processed,
        Ok(outcome) => panic!("{name}: {outcome:?}"),
        Err(Error::TransactionLost(lost)) => {
            let error = Error::TransactionLost(lost.clone());
            let expected = if lost.claim_kept() { Disposition::DeadLetter } else { Disposition::Retry };
            assert_eq!((error.is_transient(), error.disposition()), (!lost.claim_kept(), expected));
            if lost.claim_kept() { End::LostKept } else { End::LostGone }
        }
        Err(_) => End::Own,
    };
    assert_eq!(end, expected, "{name}");
    assert_eq!(world.effects().await, effects, "{name}: effects");
    let claimed = matches!(expected, End::Processed | End::LostKept);
    assert_eq!(world.claims().await, i64::from(claimed), "{name}: claims");

    let again = handlers::scripted(&world.pool, "1", &[Step::Effect]).await.expect(name);
    assert_eq!(again.is_duplicate(), claimed, "{name}: redelivery");
    let other = handlers::record(&world.pool, "other").await.expect(name);
    assert!(other.is_processed(), "{name}: the connection is sound");
    assert_eq!(world.effects_of("other").await, 1, "{name}: and commits");
}

/// Fails with a violated constraint.
const VIOLATION: &str = "INSERT INTO singles (id) VALUES ('taken')";
const EFFECT: &str = "INSERT INTO effects (id) VALUES ('late')";

#[tokio::test]
async fn an_honest_body_is_processed() {
    check("effect", &[Step::Effect], End::Processed, 1).await;
    check("nothing", &[], End::Processed, 0).await;
    check("read", &[Step::Run("SELECT count(*) FROM effects")], End::Processed, 0).await;
}

#[tokio::test]
async fn a_propagated_error_is_the_bodys_own() {
    check("violation", &[Step::Effect, Step::Run(VIOLATION)], End::Own, 0).await;
    check("after", &[Step::Effect, Step::Fail], End::Own, 0).await;
}

#[tokio::test]
async fn a_swallowed_statement_error_is_never_processed_without_its_effect() {
    // PostgreSQL aborts the transaction; the others undo the statement alone, so the rest is sound.
    let (end, effects) = if ERROR_ABORTS { (End::LostGone, 0) } else { (End::Processed, 1) };
    check("before", &[Step::Try(VIOLATION), Step::Try(EFFECT)], end, effects).await;
    check("after", &[Step::Effect, Step::Try(VIOLATION)], end, effects).await;
    check("twice", &[Step::Try(VIOLATION), Step::Try(VIOLATION)], end, 0).await;
    check("syntax", &[Step::Effect, Step::Try("SELEC 1")], end, effects).await;
    check("swallowed, then its own", &[Step::Effect, Step::Try(VIOLATION), Step::Fail], End::Own, 0).await;
}

#[tokio::test]
async fn a_rollback_sent_by_the_body_is_seen() {
    let stays = i64::from(AFTER_BODYS_ROLLBACK_STAYS);
    check("rollback", &[Step::Effect, Step::Run("ROLLBACK")], End::LostGone, 0).await;
    check("rollback, then more", &[Step::Effect, Step::Run("ROLLBACK"), Step::Try(EFFECT)], End::LostGone, stays).await;
    check("rollback, fail", &[Step::Effect, Step::Run("ROLLBACK"), Step::Fail], End::LostGone, 0).await;
    check("rollback, begin", &[Step::Run("ROLLBACK"), Step::Run("BEGIN"), Step::Try(EFFECT)], End::LostGone, 0).await;
    check("rollback, begin, fail", &[Step::Run("ROLLBACK"), Step::Run("BEGIN"), Step::Fail], End::LostGone, 0).await;
}

#[tokio::test]
async fn a_commit_sent_by_the_body_is_seen() {
    let (end, effects) = if BODYS_COMMIT_STAYS { (End::LostKept, 1) } else { (End::LostGone, 0) };
    let late = i64::from(AFTER_BODYS_COMMIT_STAYS);
    check("commit", &[Step::Effect, Step::Try("COMMIT")], end, effects).await;
    check("commit, then more", &[Step::Effect, Step::Try("COMMIT"), Step::Try(EFFECT)], end, effects + late).await;
    check("commit, fail", &[Step::Effect, Step::Try("COMMIT"), Step::Fail], end, effects).await;
    let begin = [Step::Effect, Step::Try("COMMIT"), Step::Try("BEGIN"), Step::Try(EFFECT)];
    check("commit, begin", &begin, end, effects).await;
    let fail = [Step::Effect, Step::Try("COMMIT"), Step::Try("BEGIN"), Step::Try(EFFECT), Step::Fail];
    check("commit, begin, fail", &fail, end, effects).await;
}

#[tokio::test]
async fn ddl_that_commits_by_itself_is_seen() {
    let ddl = Step::Run("CREATE TABLE made_by_the_body (id INTEGER)");
    let (end, kept) = if DDL_COMMITS { (End::LostKept, true) } else { (End::Processed, true) };
    check("ddl", &[Step::Effect, ddl], end, i64::from(kept)).await;
    let (end, effects) = if DDL_COMMITS { (End::LostKept, 1) } else { (End::Own, 0) };
    check("ddl, fail", &[Step::Effect, ddl, Step::Fail], end, effects).await;
}

#[tokio::test]
async fn a_savepoint_of_the_bodys_own_changes_nothing() {
    let own = [Step::Run("SAVEPOINT mine"), Step::Effect, Step::Run("ROLLBACK TO SAVEPOINT mine")];
    check("rolled back", &own, End::Processed, 0).await;
    check("left open", &[Step::Run("SAVEPOINT mine"), Step::Effect], End::Processed, 1).await;
    let recovered =
        [Step::Run("SAVEPOINT mine"), Step::Try(VIOLATION), Step::Run("ROLLBACK TO SAVEPOINT mine"), Step::Effect];
    check("recovered", &recovered, End::Processed, 1).await;
}

/// sqlx then counts one transaction more than there is to end.
#[tokio::test]
async fn a_nested_transaction_that_the_body_forgets_costs_nothing_but_itself() {
    let world = World::with_connections(1).await;
    for round in 0..3 {
        let id = format!("round-{round}");
        match handlers::scripted(&world.pool, &id, &[Step::Effect, Step::Forget]).await {
            Ok(outcome) => {
                assert!(outcome.is_processed());
                assert_eq!(world.effects_of(&id).await, 1);
            }
            Err(error) => {
                assert!(matches!(&error, Error::TransactionLost(lost) if !lost.claim_kept()), "{error:?}");
                assert_eq!(world.effects_of(&id).await, 0);
            }
        }
        let _ = handlers::scripted(&world.pool, "fails", &[Step::Forget, Step::Fail]).await.unwrap_err();
        let hanging = handlers::scripted(&world.pool, "hangs", &[Step::Forget, Step::Hang]);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(100), hanging).await.is_err());
        assert_eq!(world.effects_of("forgotten").await, 0);
        let next = format!("next-{round}");
        assert!(handlers::record(&world.pool, &next).await.unwrap().is_processed(), "the connection is sound");
        assert_eq!(world.effects_of(&next).await, 1);
    }
}

#[tokio::test]
async fn a_joined_handler_whose_transaction_is_lost_takes_the_callers_with_it_and_says_so() {
    for steps in [[Step::Try("ROLLBACK"), Step::Try(EFFECT)], [Step::Try("ROLLBACK"), Step::Try("BEGIN")]] {
        let world = World::with_connections(1).await;
        let mut tx = world.pool.begin().await.unwrap();
        handlers::effect(&mut tx, "callers").await.unwrap();
        let error = handlers::scripted(&mut tx, "1", &steps).await.unwrap_err();
        assert!(matches!(&error, Error::TransactionLost(lost) if !lost.claim_kept()), "{error:?}");
        // A caller that goes on regardless must not commit half of its work.
        let _ = handlers::effect(&mut tx, "callers-too").await;
        let committed = idempotent_runtime::commit(tx).await;
        let lost = matches!(committed, Err(Error::TransactionLost(_))) || DDL_COMMITS; // MySQL's connection is closed
        assert!(committed.is_err() && lost, "what came before is gone: {committed:?}");
        assert_eq!(world.effects_of("callers-too").await, 0);
        assert_eq!(world.claims().await, 0);
        assert!(handlers::record(&world.pool, "other").await.unwrap().is_processed());
    }
}
