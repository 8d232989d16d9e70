//! The caller's transaction is moved into the first of two handlers.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

async fn caller(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    handler(tx, event).await?;
    handler(tx, event).await?;
    Ok(())
}

fn main() {}
