//! The handlers that the suite delivers messages to. Every database's binary has its own, so the names never collide.

use idempotent_runtime::{Claim, Error, idempotent};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::Tx;
use crate::harness::drop_after;

/// A message from a sender that numbers its messages.
pub(crate) struct Message {
    pub(crate) sender: &'static str,
    pub(crate) id: &'static str,
}

/// Inserts one row: the effect that has to count once.
pub(crate) async fn effect(tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let row = format!("INSERT INTO effects (id) VALUES ('{id}')");
    tx.execute(AssertSqlSafe(row)).await.map(drop)
}

#[idempotent(key = "{id}")]
pub(crate) async fn record(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    effect(tx, id).await
}

#[idempotent(key = "{id}", consumer = "suite.record-elsewhere")]
pub(crate) async fn record_elsewhere(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    effect(tx, id).await
}

#[idempotent(key = "{message.id}", sender = "{message.sender}")]
pub(crate) async fn record_by_sender(#[tx] tx: &mut Tx<'_>, message: &Message) -> sqlx::Result<()> {
    effect(tx, message.id).await
}

#[idempotent(key = "{tenant}/{id}", missing = "reject")]
pub(crate) async fn record_composite(#[tx] tx: &mut Tx<'_>, tenant: &str, id: Option<&str>) -> Result<(), Error> {
    Ok(effect(tx, &format!("{tenant}-{}", id.unwrap_or("none"))).await?)
}

#[idempotent(key = "{id}", missing = "process")]
pub(crate) async fn record_anyway(#[tx] tx: &mut Tx<'_>, id: Option<&str>) -> Result<(), Error> {
    Ok(effect(tx, id.unwrap_or("none")).await?)
}

/// Stores nothing of the key itself, so that any text can be one.
#[idempotent(key = "{key}")]
pub(crate) async fn count(#[tx] tx: &mut Tx<'_>, key: &str) -> sqlx::Result<()> {
    effect(tx, "counted").await
}

#[idempotent(key = "{id}", retention = "3s")]
pub(crate) async fn record_for_three_seconds(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    effect(tx, id).await
}

#[idempotent(key = "{id}")]
pub(crate) async fn identify(#[tx] tx: &mut Tx<'_>, claim: &Claim, id: &str) -> sqlx::Result<[String; 4]> {
    effect(tx, id).await?;
    Ok([claim.consumer().into(), claim.sender().into(), claim.key().into(), claim.idempotency_key("mail")])
}

/// What a scripted body does.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    /// Runs a statement, and ignores its error.
    Try(&'a str),
    /// Runs a statement that has to succeed.
    Run(&'a str),
    /// Inserts the effect.
    Effect,
    /// Returns an error of its own.
    Fail,
    /// Begins a nested transaction, inserts the effect in it, and forgets it without ending it.
    Forget,
    /// Begins a nested transaction and drops that after so many polls.
    DropNested(usize),
    /// Panics.
    Panic,
    /// Never returns.
    Hang,
}

/// Does what it is told: the body that tries to get around the guarantees.
#[idempotent(key = "{id}")]
pub(crate) async fn scripted(#[tx] tx: &mut Tx<'_>, id: &str, steps: &[Step<'_>]) -> Result<(), Error> {
    for step in steps {
        match *step {
            Step::Try(sql) => drop(tx.execute(AssertSqlSafe(sql)).await),
            Step::Run(sql) => {
                tx.execute(AssertSqlSafe(sql)).await?;
            }
            Step::Effect => effect(tx, id).await?,
            Step::Fail => return Err(sqlx::Error::RowNotFound.into()),
            Step::Forget => {
                let mut nested = tx.begin().await?;
                effect(&mut nested, "forgotten").await?;
                std::mem::forget(nested);
            }
            Step::DropNested(polls) => drop(drop_after(polls, tx.begin()).await),
            Step::Panic => panic!("the body panics on purpose"),
            Step::Hang => std::future::pending().await,
        }
    }
    Ok(())
}

/// A handler that calls another one in its own transaction.
#[idempotent(key = "{id}")]
pub(crate) async fn outer(#[tx] tx: &mut Tx<'_>, id: &str, inner_steps: &[Step<'_>]) -> Result<bool, Error> {
    effect(tx, id).await?;
    let inner = scripted(&mut *tx, &format!("{id}-inner"), inner_steps).await;
    let twice = record(&mut *tx, id).await?.is_processed() && record(&mut *tx, id).await?.is_duplicate();
    Ok(inner.is_ok() && twice)
}
