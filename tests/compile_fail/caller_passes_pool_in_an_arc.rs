//! The caller passes a pool in an `Arc`.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

async fn caller(pool: std::sync::Arc<sqlx::SqlitePool>, event: &Event) -> sqlx::Result<()> {
    handler(&pool, event).await?;
    Ok(())
}

fn main() {}
