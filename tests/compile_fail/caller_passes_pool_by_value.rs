//! The caller passes the pool by value.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(key = "{event.id}")]
pub(crate) async fn handler_of_the_crate(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

async fn caller(pool: sqlx::SqlitePool, event: &Event) -> sqlx::Result<()> {
    handler(pool, event).await?;
    Ok(())
}

async fn caller_of_the_crate(pool: sqlx::SqlitePool, event: &Event) -> sqlx::Result<()> {
    handler_of_the_crate(pool, event).await?;
    Ok(())
}

fn main() {}
