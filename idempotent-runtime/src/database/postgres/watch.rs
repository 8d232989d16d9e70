//! What identifies the claim's transaction, and what becomes of one that is another.

use std::future::poll_fn;

use sqlx::postgres::{PgConnection, PgTransactionManager};
use sqlx::{AssertSqlSafe, Either, PgTransaction, SqlStr};
use sqlx_core::transaction::TransactionManager as _;

use crate::catalog::Isolation;
use crate::database::Failed;

/// Whether the first statement of a request was through before the request failed.
pub(super) struct Passed(pub(super) bool);

/// Sends several statements in one request, of which the first is the check. They are made of constants, a number and
/// savepoint names that end in one.
pub(super) async fn checked(connection: &mut PgConnection, request: SqlStr) -> Result<(), (Passed, sqlx::Error)> {
    let mut passed = false;
    let mut results = sqlx::raw_sql(request).fetch_many(connection);
    while let Some(result) = poll_fn(|context| results.as_mut().poll_next(context)).await {
        match result {
            Ok(_) => passed = true,
            Err(error) => return Err((Passed(passed), error)),
        }
    }
    Ok(())
}

/// Begins a transaction and leaves the proof in it. The cursor reads nothing, and is gone with the transaction.
pub(super) const fn begin(isolation: Option<Isolation>) -> &'static str {
    macro_rules! begin {
        ($begin:literal) => {
            concat!($begin, "; DECLARE idempotent_claim NO SCROLL CURSOR FOR SELECT 1")
        };
    }
    match isolation {
        None => begin!("BEGIN"),
        Some(Isolation::ReadCommitted) => begin!("BEGIN ISOLATION LEVEL READ COMMITTED"),
        Some(Isolation::RepeatableRead) => begin!("BEGIN ISOLATION LEVEL REPEATABLE READ"),
        Some(Isolation::Serializable) => begin!("BEGIN ISOLATION LEVEL SERIALIZABLE"),
    }
}

/// What identifies the claim's transaction.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub(super) id: i64,
    /// 1 for a transaction of the handler's own, which was [begun](begin) with the cursor.
    pub(super) depth: usize,
}

/// The text that the server logs where a check has failed. A cast fails with it; `concat` keeps the planner from
/// evaluating the cast in advance.
const GONE: &str = "concat('idempotent: the transaction of the claim is gone')::int";

impl Watch {
    /// Fails unless the current transaction is the claim's. Outside one the id is NULL, which equals nothing.
    pub(super) fn check(self) -> String {
        if self.depth == 1 {
            return "CLOSE idempotent_claim".to_owned();
        }
        format!("SELECT CASE txid_current_if_assigned() WHEN {} THEN 1 ELSE {GONE} END", self.id)
    }

    /// sqlx's name for the savepoint of a joined transaction.
    pub(super) fn savepoint(self) -> Option<String> {
        (self.depth > 1).then(|| format!("_sqlx_savepoint_{}", self.depth - 1))
    }

    /// Ends a transaction that did not pass the check.
    pub(super) async fn give_up(self, mut transaction: PgTransaction<'_>, error: sqlx::Error) -> Failed {
        let end = async {
            if is_aborted(&error) {
                // A statement failed and its error was swallowed. Behind a savepoint, the caller's work is untouched.
                transaction.rollback().await?;
                return Ok(false);
            }
            // The body has ended the transaction. Whatever stands in its place goes.
            let status = format!("SELECT coalesce(txid_status({}) = 'committed', false)", self.id);
            let counted = PgTransactionManager::get_transaction_depth(&transaction);
            let request = if self.depth > 1 && counted >= self.depth {
                // The caller's transaction is gone too: what it does next must not commit without what it did before,
                // so it gets an aborted one.
                format!("ROLLBACK; BEGIN; {status}; SELECT {GONE}")
            } else {
                format!("ROLLBACK; {status}")
            };
            let mut kept = None;
            let mut results = sqlx::raw_sql(AssertSqlSafe(request)).fetch_many(&mut *transaction);
            while let Some(result) = poll_fn(|context| results.as_mut().poll_next(context)).await {
                match result {
                    Ok(Either::Right(row)) if kept.is_none() => kept = Some(sqlx::Row::try_get(&row, 0)?),
                    Ok(_) => {}
                    Err(_) if kept.is_some() => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(kept.unwrap_or(true))
        };
        match end.await {
            Ok(kept) => Failed::Lost { kept },
            Err(error) => Failed::AtEnd(error),
        }
    }
}

/// SQLSTATE 25P02: the transaction is aborted, and was neither committed nor rolled back.
pub(super) fn is_aborted(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("25P02"))
}
