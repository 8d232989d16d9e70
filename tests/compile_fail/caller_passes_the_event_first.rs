//! The caller passes the message in the place of the transaction.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

async fn caller(pool: &sqlx::SqlitePool, event: &Event) -> sqlx::Result<()> {
    handler(event, pool).await?;
    Ok(())
}

fn main() {}
