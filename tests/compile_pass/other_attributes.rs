//! M14: other attributes, above and below.

#![deny(warnings)]

use idempotent_runtime::idempotent;
use sqlx::{SqlitePool, SqliteTransaction};
use tracing::instrument;

#[derive(Debug)]
struct Event {
    id: u64,
}

#[instrument(skip(tx), fields(id = %event.id))]
#[idempotent(key = "{event.id}")]
async fn instrumented_above(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(event.id)
}

#[idempotent(key = "{event.id}")]
#[instrument(skip(tx), err, fields(id = %event.id))]
async fn instrumented_below(tx: &mut SqliteTransaction<'_>, event: &Event, recorded: u8) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(event.id)
}

struct Ledger;

impl Ledger {
    #[instrument(skip_all)]
    #[idempotent(key = "{event.id}")]
    #[inline]
    async fn method(&self, tx: &mut SqliteTransaction<'_>, Event { id }: &Event, event: &Event) -> sqlx::Result<u64> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(event.id + id)
    }
}

#[must_use]
#[allow(unused_variables)]
#[idempotent(key = "{event.id}")]
#[cfg_attr(all(), allow(unused_mut))]
#[cfg_attr(any(), nonsense)]
#[cfg(all())]
#[doc(alias = "other")]
async fn of_the_compiler(mut tx: &mut SqliteTransaction<'_>, event: &Event, unused: u8) -> sqlx::Result<u64> {
    Ok(event.id)
}

#[cfg_attr(all(), idempotent(key = "{event.id}"))]
async fn conditional(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<u64> {
    #![allow(unused_variables)]
    Ok(event.id)
}

#[idempotent(key = "{event.id}")]
#[cfg(any())]
async fn absent(tx: &mut Nowhere, event: &Nowhere) -> Nowhere {}

#[idempotent(key = "{id}")]
async fn on_parameters(
    #[expect(unused_variables)] tx: &mut SqliteTransaction<'_>,
    id: u64,
    #[allow(unused_variables)] unused: u8,
    #[expect(unused_mut)] mut unchanged: u8,
) -> sqlx::Result<u8> {
    Ok(unchanged)
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    let event = Event { id: 1 };
    instrumented_above(pool, &event).await?;
    instrumented_below(pool, &event, 1).await?;
    Ledger.method(pool, &event, &event).await?;
    let _ = of_the_compiler(pool, &event, 1).await?;
    conditional(pool, &event).await?;
    on_parameters(pool, 1, 1, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
